// The history page: who changed what, and when; and undo of one's own edits.

import { api } from "./api.js";
import { button, el, number } from "./dom.js";
import { edit, reading } from "./editing.js";
import { openImage } from "./imageview.js";
import { model } from "./model.js";
import { person } from "./person.js";
import { square } from "./pictures.js";

const AT_ONCE = 100;
const SHOWN = 4; // pictures of an edit
const WHAT = { edit: "", undo: "Undone: ", redo: "Done again: " };
const day = (at) => at.toLocaleDateString(undefined, { weekday: "long", year: "numeric", month: "long", day: "numeric" });
const time = (at) => at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });

export class HistoryPage {
  static place = "history";
  static title = "History";
  static rail = false;

  constructor(shell) {
    Object.assign(this, { shell, entries: [], more: false, turn: 0, version: null, who: null });
    this.select = el("select", { "aria-label": "Whose edits", onchange: () => { this.who = this.select.value || null; this.drawList(); } });
    this.list = el("div", { class: "history-list" });
    this.foot = el("p", {}, button("Earlier edits", () => this.earlier()));
    this.node = el("section", { class: "page scroll-page history-page", "aria-label": "History" },
      el("header", { class: "bar" }, el("h1", {}, "Who changed what"), this.select),
      el("p", { class: "lead" }, "Every edit is kept, and so is every undo. You can undo your own edits here, also earlier ones, unless a later answer rests on them."),
      this.list, this.foot);
    person.watch(() => { if (!this.node.hidden) this.drawList(); });
  }

  async draw() {
    if (this.node.hidden || this.version === model.state.version) return;
    const turn = ++this.turn;
    // As many as were shown, so that nothing jumps.
    const found = await reading(api.history(Math.min(500, Math.max(AT_ONCE, this.entries.length))));
    if (!found || turn !== this.turn) return;
    Object.assign(this, { entries: found.entries, more: found.more, version: found.version });
    this.drawList();
  }

  async earlier() {
    const found = await reading(api.history(AT_ONCE, this.entries.at(-1).seq));
    if (!found) return;
    this.entries.push(...found.entries);
    this.more = found.more;
    this.drawList();
  }

  drawList() {
    const people = [...new Set(this.entries.map((one) => one.author))].sort();
    if (this.who !== null && !people.map(nameOf).includes(this.who)) this.who = null;
    this.select.replaceChildren(el("option", { value: "" }, "Everybody"), ...people.map((one) => el("option", { value: nameOf(one) }, nameOf(one))));
    this.select.value = this.who ?? "";
    this.select.hidden = people.length < 2;
    const parts = [];
    let last = null;
    for (const one of this.entries) {
      if (this.who !== null && nameOf(one.author) !== this.who) continue;
      const at = new Date(one.at);
      if (day(at) !== last) {
        last = day(at);
        parts.push(el("h2", {}, last), el("ol", {}));
      }
      parts.at(-1).append(this.item(one, at));
    }
    this.list.replaceChildren(...(parts.length ? parts : [el("p", { class: "empty" }, "Nobody has changed anything yet.")]));
    this.foot.hidden = !this.more;
  }

  item(one, at) {
    const undone = one.what === "edit" && !one.in_force;
    const rows = one.what === "edit" ? one.rows.filter((row) => row < model.run.n) : [];
    const thumbs = rows.slice(0, SHOWN).map((row, index) => el("button", { type: "button", class: "thumb", "aria-label": `Open ${model.run.names[row]}`, title: model.run.names[row], onclick: () => openImage(rows, index) }, square(row, { heat: false })));
    const rest = one.n_rows - thumbs.length;
    return el("li", { class: `history-item${undone ? " undone" : ""}${one.what === "edit" ? "" : " reversal"}`, "data-seq": one.seq },
      el("time", { datetime: one.at, class: "soft number", title: at.toLocaleString() }, time(at)),
      el("span", { class: `who clip${one.author ? "" : " soft"}`, title: nameOf(one.author) }, nameOf(one.author)),
      el("span", { class: "what" }, WHAT[one.what], el("span", { class: "words" }, one.words), undone ? el("span", { class: "soft small" }, " (undone)") : null),
      el("span", { class: "thumbs" }, thumbs, thumbs.length && rest > 0 ? el("span", { class: "soft small" }, `+ ${number(rest)}`) : null),
      this.tools(one));
  }

  // Edits without a name are everybody's.
  tools(one) {
    const mine = one.author === (person.name ?? "") || one.author === "";
    if (one.what !== "edit" || !mine) return el("span");
    const kind = one.in_force ? "undo" : "redo";
    return button(one.in_force ? "Undo" : "Do it again", () => edit(kind, { of: one.seq }, `${kind} “${one.words}”`, { sentence: one.words }), { css: "quiet", "aria-label": `${one.in_force ? "Undo" : "Do again"}: ${one.words}` });
  }
}

const nameOf = (author) => author || "Without a name";
