// One new image in a large view: what it seems to be, and the answers that teach.

import { askName, pickGroup } from "./dialogs.js";
import { button, el, figure, number } from "./dom.js";
import { edit, redo, undo } from "./editing.js";
import { announce } from "./messages.js";
import { modal } from "./modal.js";
import { model } from "./model.js";
import { insteadOfNew } from "./naming.js";
import { NEW_KIND, newNamed, newStanding } from "./newimages.js";
import { numbers } from "./numbers.js";
import { Zoom } from "./zoom.js";

let view = null;

// page: has the batch. rows: to go through.
export function openNew(page, rows, index) {
  view = new NewView(page, rows);
  view.show(index);
  const closed = view.box.open().then(() => { view = null; });
  view.stage.focus();
  return closed;
}

// Redraw what an answer has changed.
export const redrawNew = () => view?.draw();

// Say what new images show. to: as of a move; accepted images are said to be what they are shown as.
export function answer(batch, rows, to, name = "") {
  const payload = { batch, rows, to, ...(name ? { name } : {}) };
  const where = to === "new" ? name : typeof to === "string" ? to : model.title(to);
  const what = rows.length === 1 ? "a new image" : `${number(rows.length)} new images`;
  const refused = to === "new" ? insteadOfNew(name, what, { join: (there) => answer(batch, rows, there), again: () => another(batch, rows, name) }) : null;
  return edit("answer", payload, `teach ${where} with ${what}`, { refused });
}

async function another(batch, rows, name) {
  const other = await askName("New group", name, "This image is the first of it.");
  return other ? answer(batch, rows, "new", other) : null;
}

class NewView {
  constructor(page, rows) {
    Object.assign(this, { page, rows, at: 0 });
    this.box = modal("", "image-view new-view");
    this.stage = el("div", { class: "stage", tabindex: -1 });
    this.facts = el("dl", { class: "facts" });
    this.place = el("span", { class: "soft number" });
    this.prev = button("← Previous", () => this.step(-1));
    this.next = button("Next →", () => this.step(1));
    this.accept = button("Accept", () => this.yes(), { key: "A", css: "primary" });
    const tools = el("div", { class: "row tools" }, this.accept,
      button("It is…", () => this.pick(), { key: "M" }), button("Normal", () => this.say("normal"), { key: "N" }),
      button("New group…", () => this.first(), { key: "S" }), button("Unsure", () => this.say("unsure"), { key: "U" }));
    this.hint = el("p", { class: "hint" });
    this.zoom = new Zoom(this.stage);
    this.box.node.append(el("div", { class: "view-body" }, el("div", { class: "view-left" }, this.stage, el("div", { class: "bar" }, this.zoom.tools, this.zoom.words)), el("div", { class: "view-right" }, this.facts, tools, this.hint)),
      el("div", { class: "box-foot" }, this.prev, this.place, this.next));
    this.box.node.addEventListener("keydown", (event) => this.key(event));
  }

  get batch() { return this.page.batch; }
  get row() { return this.rows[this.at]; }

  show(at) {
    this.at = at;
    const name = this.batch.table.name[this.row];
    this.box.heading.textContent = this.box.heading.title = name;
    this.box.node.setAttribute("aria-label", name);
    this.place.textContent = `${number(at + 1)} of ${number(this.rows.length)}`;
    this.prev.disabled = at === 0;
    this.next.disabled = at === this.rows.length - 1;
    this.drawPicture();
    this.draw();
  }

  drawPicture() {
    const image = el("img", { alt: "", decoding: "async" });
    const shown = el("span", { class: "picture" }, image);
    image.addEventListener("load", () => {
      shown.classList.add("here");
      if (shown.isConnected) this.zoom.measure(image.naturalWidth / image.naturalHeight || 1, image.naturalWidth);
    });
    image.addEventListener("error", () => shown.classList.add("gone"));
    image.src = `assigned/${encodeURIComponent(this.batch.name)}/image/${this.row}.jpg`;
    this.stage.replaceChildren(shown);
  }

  draw() {
    const { batch, row } = this;
    const facts = [["Group", newNamed(batch.groups[row])], ["How it is known", newStanding(batch, row)]];
    if (batch.verdicts[row]) facts.push(["Verdict", batch.verdicts[row]]);
    facts.push(["Counted in", batch.table.period[row] || "–"], ["Anomaly score", figure(batch.table.score[row])]);
    this.facts.replaceChildren(...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
    this.accept.disabled = Boolean(this.page.reason(row)) || batch.groups[row] === NEW_KIND || batch.decided[row];
    this.hint.textContent = this.page.reason(row) ?? "An answer teaches at once: the groups of all other images follow.";
  }

  yes() {
    const { batch, row } = this;
    if (this.accept.disabled) return announce(batch.decided[row] ? "It is decided already." : "There is no group to accept. Say what it is (M), or make a new group (S).");
    return this.say(batch.groups[row] < 0 ? "normal" : batch.groups[row]);
  }

  say(to, name) {
    if (this.page.reason(this.row)) return announce(this.page.reason(this.row));
    return this.answered(answer(this.batch.name, [this.row], to, name));
  }

  // After an answer the next image comes.
  async answered(saved) {
    const { row } = this;
    const state = await saved;
    if (state && row === this.row) this.step(1);
    return state;
  }

  async pick() {
    const chosen = await pickGroup(`What is ${this.batch.table.name[this.row]}?`, { fresh: true });
    if (chosen?.to === "new") await this.named(chosen.name);
    else if (chosen) await this.say(chosen.to);
  }

  async first() {
    const name = await askName("New group", "", "This image is the first of it.");
    if (name !== null) await this.named(name);
  }

  named(name) {
    return name ? this.say("new", name) : announce("A new group needs a name.");
  }

  nth(number_) {
    const group = numbers.group(number_);
    return group ? this.say(group.id) : announce(numbers.none(number_));
  }

  step(by) {
    const at = this.at + by;
    if (at < 0 || at >= this.rows.length) return;
    this.show(at);
    if (document.activeElement === document.body || document.activeElement?.disabled) this.stage.focus();
  }

  key(event) {
    if (event.altKey || event.repeat) return;
    const key = event.key.toLowerCase();
    if (event.ctrlKey || event.metaKey) {
      if (key !== "z") return;
      if (event.shiftKey) redo();
      else undo();
    } else if (/^[1-9]$/.test(key)) this.nth(Number(key));
    else if (!this.zoom.key(event)) {
      const act = {
        a: () => this.yes(), m: () => this.pick(), n: () => this.say("normal"), 0: () => this.say("normal"), s: () => this.first(),
        u: () => this.say("unsure"), arrowleft: () => this.step(-1), arrowright: () => this.step(1),
      }[key];
      if (!act) return;
      act();
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

