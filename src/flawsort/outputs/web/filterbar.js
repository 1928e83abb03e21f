// The bar above images: search by file name, filters and their chips, and how many images are shown.

import { conditionWords } from "./conditions.js";
import { button, el, number } from "./dom.js";
import { openFilters } from "./filterpanel.js";

export class FilterBar {
  // search: a Search with a column "name". rows(): the images to filter. skip(): names of columns that make no sense for
  // them. tools: the search field and the button; foot: the chips below them.
  constructor(search, { rows, skip = () => [] }) {
    Object.assign(this, { search, rows, skip });
    this.field = el("input", { type: "search", placeholder: "File name", "aria-label": "Search by file name", autocomplete: "off", spellcheck: "false", oninput: () => search.set("name", this.field.value) });
    this.open = button("Filters…", () => this.edit(), { key: "/", "aria-haspopup": "dialog" });
    this.chips = el("ul", { class: "chips", "aria-label": "Filters" });
    this.note = el("p", { class: "found number", role: "status" });
    this.foot = el("div", { class: "chip-line", hidden: true }, this.note, this.chips, button("Clear all", () => { search.clear(); this.open.focus(); }, { css: "quiet" }));
    this.tools = [this.field, this.open];
  }

  edit(at) { return openFilters(this.search, { rows: this.rows, skip: this.skip() }, at).then(() => this.open.focus()); }

  // n: the number of images shown; of: without the filters.
  draw(n, of) {
    const { search } = this;
    if (document.activeElement !== this.field) this.field.value = search.conditions.get("name") ?? "";
    this.foot.hidden = !search.filters;
    const words = search.waits ? "Reading…" : `${number(n)} of ${number(of)} images`;
    if (search.filters && this.note.textContent !== words) this.note.textContent = words;
    const had = [...this.chips.children].findIndex((one) => one.contains(document.activeElement));
    this.chips.replaceChildren(...[...search.conditions].map(([name, condition]) => this.chip(name, condition)));
    if (had >= 0) (this.chips.children[Math.min(had, this.chips.children.length - 1)]?.lastChild ?? this.open).focus();
  }

  chip(name, condition) {
    const column = this.search.columns[name];
    const words = `${column.words}: ${conditionWords(column, condition)}`;
    const drop = () => this.search.set(name, null);
    const node = el("li", { class: "chip" },
      el("button", { type: "button", class: "chip-words clip", title: `Change the filter: ${words}`, onclick: () => this.edit(name) }, words),
      el("button", { type: "button", class: "chip-drop", "aria-label": `Remove the filter ${words}`, title: "Remove", onclick: drop }, "×"));
    node.addEventListener("keydown", (event) => { if (event.key === "Delete" || event.key === "Backspace") { event.preventDefault(); drop(); } });
    return node;
  }

  // Handles the keys of the bar; returns whether it did.
  key(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return false;
    this.edit();
    return true;
  }
}
