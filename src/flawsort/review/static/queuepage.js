// The queue page: one question at a time, starting with the one whose answer labels most images.

import { actions } from "./actions.js";
import { api } from "./api.js";
import { onDisplay } from "./display.js";
import { button, count, el, number, percent } from "./dom.js";
import { edit, reading } from "./editing.js";
import { fitting, Grid } from "./grid.js";
import { openImage } from "./imageview.js";
import { mark, named } from "./marks.js";
import { model, sorted } from "./model.js";
import { frames, picture, square } from "./pictures.js";
import { selection } from "./selection.js";

const BESIDE = 6;

export class QueuePage {
  static place = "queue";
  static title = "Queue";
  static rail = true;
  static keys = [
    ["Enter", "yes: accept"], ["N", "name the group"], ["0", "mark as normal"], ["U", "mark as unsure"], ["J", "ask later"], ["O", "open the image in focus"],
    ["G  S  M  1 – 9", "merge, split, move"],
  ];

  constructor(shell) {
    Object.assign(this, { shell, answer: null, shown: "", skipped: [], turn: 0 });
    this.grid = new Grid({ label: "Examples", open: openImage, enterOpens: false, size: fitting });
    this.tiles = el("dl", { class: "tiles" });
    this.meter = el("span", { class: "meter big" }, el("i"));
    this.head = el("header", { class: "question-head" });
    this.tools = el("div", { class: "row tools question-tools" });
    this.one = el("div", { class: "one" });
    this.node = el("section", { class: "page queue-page", "aria-label": "Queue" }, el("div", { class: "queue-top" }, this.meter, this.tiles),
      el("div", { class: "question" }, this.head, this.tools), this.grid.node, this.one);
    onDisplay((key) => { if (key !== "opacity" && !this.node.hidden) this.drawQuestion(); });
  }

  get question() { return this.answer?.question ?? null; }
  group() { return this.question?.group ?? null; }
  listed() { return this.group(); }
  row() { return this.question?.kind === "image" ? this.question.rows[0] : this.grid.focused; }

  // Ask the server again: every edit may change the next question.
  async draw() {
    if (this.node.hidden) return;
    const turn = ++this.turn;
    const answer = await reading(api.queue(this.skipped));
    if (!answer || turn !== this.turn || this.node.hidden) return;
    this.answer = answer;
    this.drawProgress();
    this.drawQuestion();
    this.shell.changed();
  }

  drawProgress() {
    const { done, total, spent, pure } = this.answer;
    this.meter.firstChild.style.width = `${(100 * done) / Math.max(1, total)}%`;
    const tile = (name, value, words) => el("div", {}, el("dt", {}, name), el("dd", {}, value), el("dd", { class: "words" }, words));
    this.tiles.replaceChildren(
      tile("Done", `${number(done)} of ${number(total)}`, "images confirmed"),
      tile("Answers given", number(spent), done > spent && spent ? `${(done / spent).toFixed(1)} images confirmed per answer` : "so far"),
      tile("Purity", `≈ ${percent(pure)}`, "of images seem to be in the right group"));
  }

  drawQuestion() {
    if (!this.answer) return;
    const { question } = this;
    const shown = JSON.stringify(question && [question.kind, question.group, question.rows]);
    const fresh = shown !== this.shown;
    this.shown = shown;
    this.grid.node.hidden = question?.kind !== "group";
    this.one.hidden = question?.kind !== "image";
    this.tools.hidden = !question;
    if (!question) return this.drawNothing();
    if (question.kind === "group") this.drawGroup(question, fresh);
    else this.drawImage(question);
    // Focus the question, so that the next key answers it.
    if (fresh && !document.querySelector("dialog[open]")) (question.kind === "group" ? this.grid.node : this.one).focus();
    return undefined;
  }

  drawNothing() {
    const again = this.skipped.length ? button("Ask the postponed questions", () => { this.skipped = []; this.draw(); }) : null;
    this.head.replaceChildren(el("h1", {}, this.skipped.length ? "Nothing else to ask" : "Nothing left to ask"),
      el("p", { class: "lead" }, this.skipped.length ? `${count(this.skipped.length, "question")} postponed.` : "Every group has an answer. Look through the groups, or export them."), again);
  }

  drawGroup({ group: id, rows, why }, fresh) {
    const group = model.group(id);
    if (!group) return;
    const open = group.n - group.confirmed;
    this.head.replaceChildren(el("p", { class: "soft" }, "Is this one kind?"),
      el("h1", { class: "with-mark" }, mark(id), el("span", { class: "clip" }, group.title)), el("p", { class: "lead" }, why));
    this.tools.replaceChildren(
      button(`Yes, accept ${open === 1 ? "it" : `all ${number(open)}`}`, () => this.yes(), { key: "Enter", css: "primary" }),
      button(group.name ? "Rename…" : "Name…", () => actions.rename(), { key: "N" }),
      button("Normal", () => this.normal(), { key: "0" }),
      button("Unsure", () => this.unsure(), { key: "U" }),
      button("Split…", () => actions.split(), { key: "S" }),
      button("Merge into…", () => actions.merge(), { key: "G" }),
      button("Later", () => this.later(), { key: "J", css: "quiet" }),
      el("p", { class: "hint" }, `${count(rows.length, "example")}: the most typical, then the most doubtful. Select those that do not belong (Space) and move them (M), then accept the rest.`));
    this.grid.show(rows, { top: fresh });
  }

  drawImage({ group: id, rows: [row], why }) {
    const group = model.group(id);
    if (!group) return;
    this.head.replaceChildren(el("p", { class: "soft" }, "Does this image belong here?"),
      el("h1", { class: "with-mark" }, mark(id), el("span", { class: "clip" }, group.title)), el("p", { class: "lead" }, why));
    this.tools.replaceChildren(
      button("Yes, it belongs here", () => this.yes(), { key: "Enter", css: "primary" }),
      button("Move…", () => actions.pick(), { key: "M" }),
      button("Normal", () => this.normal(), { key: "0" }),
      button("Unsure", () => this.unsure(), { key: "U" }),
      button("Several kinds…", () => actions.several(), { key: "K" }),
      button("Later", () => this.later(), { key: "J", css: "quiet" }));
    const shown = picture(row, { source: "image" });
    shown.append(...frames(row));
    const beside = el("div", { class: "beside" }, this.strip(`Typical of ${group.title}`, sorted(model.members.get(id), "typical").filter((one) => one !== row).slice(0, BESIDE)));
    this.one.tabIndex = -1;
    this.one.replaceChildren(el("button", { type: "button", class: "stage", "aria-label": `Open ${model.run.names[row]}`, onclick: () => openImage([row], 0) }, shown), beside);
    this.drawAlike(row, beside);
  }

  strip(title, rows) {
    const thumbs = rows.map((one, index) => el("button", { type: "button", class: "thumb", "aria-label": `Open ${model.run.names[one]}`, onclick: () => openImage(rows, index) },
      square(one), named(model.group(model.groupOf(one)))));
    return el("section", {}, el("h3", {}, title), el("div", { class: "alike" }, thumbs));
  }

  async drawAlike(row, beside) {
    const found = await reading(api.similar(row, BESIDE));
    if (found && beside.isConnected) beside.prepend(this.strip("Most similar", found.map((one) => one.row)));
  }

  yes() {
    const { question } = this;
    if (!question) return null;
    selection.clear();
    if (question.kind === "image") return edit("accept", { images: question.rows }, "accept the image");
    return edit("accept", { group: question.group }, `accept all of ${model.title(question.group)}`);
  }

  // Applies to the selected images, or to the whole group: sets its role and accepts it.
  async normal() {
    if (selection.size || this.question?.kind === "image") return actions.moveTo("normal");
    const group = model.group(this.group());
    if (group.role !== "normal" && !(await actions.role(group, "normal"))) return null;
    return edit("accept", { group: group.id }, `accept all of ${group.title}`);
  }

  unsure() {
    if (selection.size || this.question?.kind === "image") return actions.moveTo("unsure");
    return actions.role(model.group(this.group()), "unsure");
  }

  later() {
    const { kind, group, rows } = this.question;
    this.skipped.push(kind === "group" ? ["skip", group] : ["later", rows[0]]);
    selection.clear();
    this.draw();
  }

  key(event) {
    if (!this.question || event.ctrlKey || event.metaKey || event.altKey) return false;
    const whole = this.question.kind === "group";
    const act = {
      enter: () => this.yes(), 0: () => this.normal(), u: () => this.unsure(), j: () => this.later(),
      n: () => (whole ? actions.rename() : this.normal()), o: () => openImage(whole ? this.grid.rows : this.question.rows, whole ? this.grid.active : 0),
    }[event.key.toLowerCase()];
    // Enter on a button presses the button.
    if (!act || (event.key === "Enter" && event.target.closest("button, a, select, input"))) return false;
    act();
    return true;
  }
}
