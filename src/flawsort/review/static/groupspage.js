// The groups page: the images of one group in a grid, and the actions on it.

import { actions } from "./actions.js";
import { display, heatControl, onDisplay, orderControl, sizeControl } from "./display.js";
import { button, count, el, percent, soon } from "./dom.js";
import { Grid } from "./grid.js";
import { openImage } from "./imageview.js";
import { mark } from "./marks.js";
import { model, sorted } from "./model.js";
import { selection } from "./selection.js";

const ROLE_WORDS = { flaw: "A kind of flaw", normal: "Normal: no flaw", unsure: "Unsure" };

export class GroupsPage {
  static place = "groups";
  static title = "Groups";
  static rail = true;

  constructor(shell) {
    Object.assign(this, { shell, current: null, shown: null, query: "" });
    this.grid = new Grid({ label: "Images", open: openImage });
    this.head = el("header", { class: "group-head" });
    const search = el("input", { type: "search", placeholder: "File name", "aria-label": "Search by file name", autocomplete: "off", spellcheck: "false" });
    search.addEventListener("input", () => { this.query = search.value; this.draw(); });
    this.note = el("span", { class: "soft number" });
    const bar = el("div", { class: "bar" }, orderControl(), heatControl(), sizeControl(), search, this.note);
    this.empty = el("p", { class: "empty", hidden: true });
    this.node = el("section", { class: "page groups-page", "aria-label": "Groups" }, this.head, bar, this.empty, this.grid.node);
    this.resize = soon(() => this.grid.layout());
    onDisplay((key) => { if (key === "size") this.resize(); else if (key !== "opacity") this.draw(); });
  }

  group() { return this.current === "all" ? null : this.current; }
  row() { return this.grid.focused; }
  listed() { return this.current; }
  show(id) { this.shell.go(GroupsPage.place, id); }
  focus() { this.grid.node.focus(); }

  rows() {
    const rows = this.current === "all" ? model.state.labels.map((_, row) => row) : model.members.get(this.current) ?? [];
    const wanted = this.query.trim().toLowerCase();
    const found = wanted ? rows.filter((row) => model.run.names[row].toLowerCase().includes(wanted)) : rows;
    return sorted(found, display.order);
  }

  draw(group = this.current) {
    this.current = group;
    if (this.node.hidden) return;
    const rows = this.rows();
    this.grid.own = this.current === "all";
    this.grid.show(rows, { top: this.shown !== this.current });
    this.shown = this.current;
    this.grid.node.setAttribute("aria-label", `Images of ${this.current === "all" ? "all groups" : model.title(this.current)}`);
    this.note.textContent = this.query ? `${count(rows.length, "image")} found` : "";
    this.empty.hidden = rows.length > 0;
    this.empty.textContent = this.query ? "No file name matches." : "This group has no images left. It stays in the list until you merge it into another.";
    this.drawHead();
  }

  drawHead() {
    const group = model.group(this.current);
    if (!group) return void this.head.replaceChildren(el("div", { class: "titles" }, el("h1", {}, "All images"), el("p", { class: "soft" }, this.progress())));
    const facts = [count(group.n, "image"), `${group.confirmed.toLocaleString("en")} confirmed`, `about ${percent(group.pure)} pure`];
    const done = group.confirmed === group.n;
    this.head.replaceChildren(
      el("div", { class: "titles" },
        el("div", { class: "title-line" }, mark(group.id), el("h1", { class: "clip", title: group.title }, group.title), this.role(group)),
        el("p", { class: "soft" }, facts.join(" · "))),
      el("div", { class: "row tools" },
        button(done && group.n ? "All accepted" : "Accept all", () => { selection.clear(); actions.accept(); }, { key: "A", css: "primary", disabled: done }),
        button("Rename…", () => actions.rename(), { key: "R" }),
        button("Merge into…", () => actions.merge(), { key: "G" }),
        button("Split…", () => { selection.clear(); actions.split(); }, { key: "S", disabled: group.n < 2 })));
  }

  progress() {
    const sure = model.state.confirmed.length;
    return `${count(model.run.n, "image")} in ${count(model.groups.length, "group")} · ${percent(sure / model.run.n)} confirmed · ${count(model.state.spent, "answer")} given`;
  }

  role(group) {
    const choices = Object.entries(ROLE_WORDS).map(([role, words]) => el("option", { value: role }, words));
    const select = el("select", { "aria-label": "Role of the group", class: `role ${group.role}`, onchange: () => actions.role(group, select.value) }, choices);
    select.value = group.role;
    return select;
  }

  key(event) {
    const by = { "[": -1, "]": 1 }[event.key];
    if (!by) return false;
    const ids = model.groups.map((group) => group.id);
    const next = ids[ids.indexOf(this.current) + by];
    if (next !== undefined) this.show(next);
    return true;
  }
}
