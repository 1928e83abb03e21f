// The export page: one download for each format, of the current groups.

import { count, el, percent } from "./dom.js";
import { model } from "./model.js";

function card({ name, title, words }) {
  const sentence = words.charAt(0).toUpperCase() + words.slice(1);
  return el("li", { class: "card format" }, el("h3", {}, title), el("p", { class: "soft" }, sentence),
    el("a", { class: "button", href: `export/${encodeURIComponent(name)}`, download: "", "aria-label": `Download ${title}` }, "Download"));
}

export class ExportPage {
  static place = "export";
  static title = "Export";
  static rail = false;

  constructor() {
    this.note = el("p", { class: "lead" });
    this.list = el("ul", { class: "cards formats" });
    this.node = el("section", { class: "page scroll-page", "aria-label": "Export" }, el("h1", {}, "Export"), this.note, this.list);
  }

  draw() {
    if (this.node.hidden) return;
    const { run, state } = model;
    const open = run.n - state.decided.length;
    const named = model.groups.filter((group) => group.name).length;
    const sure = open ? `Not decided yet: ${count(open, "image")} (${percent(open / run.n)}), exported in the groups suggested for them and marked as not decided.` : "Every image is decided.";
    this.note.textContent = `${count(run.n, "image")} in ${count(model.groups.length, "group")}, ${named} of them named. ${sure}`;
    if (!this.list.children.length) this.list.replaceChildren(...run.formats.map(card));
  }
}
