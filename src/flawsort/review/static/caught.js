// What a lasso caught, beside the map: a grid with the same actions as everywhere.

import { button, count, el, number } from "./dom.js";
import { Grid } from "./grid.js";
import { openImage } from "./imageview.js";
import { mark } from "./marks.js";
import { model } from "./model.js";
import { query } from "./query.js";
import { selection } from "./selection.js";

const SIZE = 84;
const LISTED = 4;

export class Caught {
  // point(row): called with the image in focus, or -1. changed(): called when the panel has opened or closed.
  constructor({ point, changed }) {
    Object.assign(this, { rows: [], changed });
    this.grid = new Grid({ label: "Images caught on the map", open: openImage, size: () => SIZE, active: (row) => point(row ?? -1) });
    this.grid.own = true;
    this.words = el("h2", { role: "status" });
    this.groups = el("p", { class: "soft several small" });
    this.all = button("Select all", () => { selection.all(this.grid.rows); this.grid.node.focus(); }, { css: "quiet" });
    this.head = el("header", { class: "caught-head" }, this.words, this.all, button("×", () => this.show([]), { css: "close", "aria-label": "Close what was caught" }), this.groups);
    this.empty = el("p", { class: "empty" }, "Draw around images on the map: they appear here, to be looked at, selected, moved, split off or accepted.");
    this.node = el("aside", { class: "caught", "aria-label": "Caught images" }, this.head, this.empty, this.grid.node);
  }

  show(rows) {
    const opened = !rows.length !== !this.rows.length;
    this.rows = rows;
    this.draw({ top: true });
    if (opened) this.changed();
  }

  draw({ top = false } = {}) {
    const rows = query.rows(this.rows);
    const none = !this.rows.length;
    this.node.classList.toggle("none", none);
    this.head.hidden = this.grid.node.hidden = none;
    this.empty.hidden = !none;
    if (none) return;
    const counts = new Map();
    for (const row of rows) counts.set(model.groupOf(row), (counts.get(model.groupOf(row)) ?? 0) + 1);
    const parts = [...counts].sort((a, b) => b[1] - a[1]);
    const words = `${count(rows.length, "image")} caught`;
    if (this.words.textContent !== words) this.words.textContent = words;
    this.groups.replaceChildren(...parts.slice(0, LISTED).map(([id, n]) => el("span", { class: "with-mark" }, mark(id), el("span", { class: "clip" }, `${model.title(id)} ${number(n)}`))),
      parts.length > LISTED ? `and ${number(parts.length - LISTED)} more groups` : "");
    this.grid.show(rows, { top });
  }
}
