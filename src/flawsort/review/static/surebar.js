// Accept all images of a group, or those that the model is sure enough of: a slider, the count, a button.

import { button, count, el, number } from "./dom.js";
import { announce } from "./messages.js";

const FIRST = 80; // percent

export class SureBar {
  // take(rows): called with the images to accept. of: tells which rows are undecided(rows), and the
  // sureness(row) of one in percent, or null. all: what to say of all of them.
  constructor(take, of, all = (n) => `Accept all ${n} shown`) {
    Object.assign(this, { take, of, all, rows: [] });
    this.slider = el("input", { type: "range", min: 0, max: 99, value: FIRST, "aria-label": "How sure the model must be, in percent", oninput: () => this.draw() });
    this.slider.addEventListener("keydown", (event) => { if (event.key === "Enter") this.accept(); });
    this.words = el("output", { class: "number" });
    this.yes = button("", () => this.accept(), { css: "primary" });
    this.choice = el("label", { class: "control" }, "At least", this.slider, this.words);
    this.node = el("div", { class: "sure-bar" }, this.choice, this.yes);
  }

  // rows: the images in view.
  show(rows) {
    this.rows = this.of.undecided(rows);
    this.draw();
  }

  get chosen() {
    if (this.choice.hidden) return this.rows;
    const least = Number(this.slider.value);
    return this.rows.filter((row) => least === 0 || (this.of.sureness(row) ?? -1) >= least);
  }

  draw() {
    this.node.hidden = !this.rows.length;
    this.choice.hidden = !this.rows.some((row) => this.of.sureness(row) !== null);
    this.words.textContent = Number(this.slider.value) ? `${this.slider.value}% sure` : "0%: all";
    const { length } = this.chosen;
    const every = length === this.rows.length;
    this.yes.replaceChildren(every ? this.all(number(length)) : `Accept ${number(length)} of ${number(this.rows.length)}`, el("kbd", { "aria-hidden": "true" }, "Shift A"));
    this.yes.disabled = !length;
  }

  accept() {
    const rows = this.node.hidden ? [] : this.chosen;
    if (rows.length) this.take(rows);
    else announce(this.rows.length ? `None of ${count(this.rows.length, "image")} is that sure.` : "Every image here is decided.");
  }
}
