// The audit: one random image after another, shown without anything that tells its group.

import { api } from "./api.js";
import { pickGroup } from "./dialogs.js";
import { button, count, el } from "./dom.js";
import { edit, reading } from "./editing.js";
import { mark } from "./marks.js";
import { announce } from "./messages.js";
import { insteadOfNew } from "./naming.js";
import { numbers } from "./numbers.js";
import { picture } from "./pictures.js";

export class Audit {
  constructor(stop) {
    Object.assign(this, { stop, row: null, turn: 0, busy: false });
    this.words = el("p", { class: "soft number", role: "status" });
    this.stage = el("div", { class: "stage", tabindex: -1 });
    this.choices = el("div", { class: "audit-choices" });
    this.node = el("div", { class: "audit" },
      el("header", { class: "bar" }, el("h1", {}, "What does this image show?"), this.words, button("Stop", stop, { key: "B", css: "quiet" })),
      el("div", { class: "audit-body" }, this.stage, this.choices));
  }

  async draw() {
    const turn = ++this.turn;
    const found = await reading(api.audit());
    if (!found || turn !== this.turn) return;
    this.words.textContent = `${count(found.n, "answer")} so far`;
    if (found.row === null) return void this.drawNothing();
    if (found.row !== this.row || !this.stage.firstChild) {
      this.row = found.row;
      // Neither heat nor regions: what the software noticed must not lead the answer.
      this.stage.replaceChildren(picture(this.row, { source: "image", heat: false }));
      if (!document.querySelector("dialog[open]")) this.stage.focus();
    }
    this.drawChoices();
  }

  drawNothing() {
    this.row = null;
    this.stage.replaceChildren(el("p", { class: "empty" }, "Every image has been audited."));
    this.choices.replaceChildren();
  }

  drawChoices() {
    const flaws = numbers.groups().map((group) =>
      button([mark(group.id), el("span", { class: "clip" }, group.title)], () => this.answer(group.id), { key: numbers.of(group.id) }));
    this.choices.replaceChildren(...flaws,
      button("Another group…", () => this.pick(), { key: "M" }),
      button("Normal", () => this.answer("normal"), { key: "N" }),
      button("I cannot tell", () => this.answer("unsure"), { key: "U", css: "quiet" }),
      el("p", { class: "hint" }, "The image was drawn at random. Where it is now is not shown, so that your answer measures it. Undo takes an answer back."));
  }

  async answer(to, name = "") {
    if (this.row === null || this.busy) return;
    this.busy = true; // a second key press must not answer for the next image, nor again for this one
    const payload = { image: this.row, to, ...(to === "new" && name ? { name } : {}) };
    const refused = to === "new" ? insteadOfNew(name, "the image", { join: (there) => this.again(there), again: () => this.again() }) : null;
    if (await edit("audit", payload, "audit an image", { refused })) this.row = null; // until the next one is shown
    this.busy = false;
  }

  // Another answer about the same image, which the first one waits for. to: asked for if it is missing.
  again(to) {
    this.busy = false;
    return to === undefined ? this.pick() : this.answer(to);
  }

  async pick() {
    const chosen = await pickGroup("What does it show?", { fresh: true });
    if (chosen) await this.answer(chosen.to, chosen.name);
  }

  key(event) {
    const key = event.key.toLowerCase();
    const group = /^[1-9]$/.test(key) ? numbers.group(Number(key)) : null;
    if (group) this.answer(group.id);
    else if (/^[1-9]$/.test(key)) announce(numbers.none(key));
    else if (key === "m") this.pick();
    else if (key === "n" || key === "0") this.answer("normal");
    else if (key === "u") this.answer("unsure");
    // Keys that act on images elsewhere do nothing here.
    return key.length === 1 && key !== "?" && key !== " ";
  }
}
