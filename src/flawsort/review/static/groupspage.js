// The groups page: the images of one group in a grid, and the actions on it.

import { acceptRows, actions } from "./actions.js";
import { choose } from "./dialogs.js";
import { heatControl, onDisplay, sizeControl, tilesControl } from "./display.js";
import { button, count, el, number, percent, soon } from "./dom.js";
import { FilterBar } from "./filterbar.js";
import { Grid } from "./grid.js";
import { orderedGroups } from "./grouporder.js";
import { findingMark, findingsOf, healthNotice } from "./health.js";
import { openImage } from "./imageview.js";
import { mark } from "./marks.js";
import { factsOf, model } from "./model.js";
import { offersOf } from "./offers.js";
import { orderControl, query } from "./query.js";
import { noteOf, noteOnGroup, severityControl } from "./remarks.js";
import { SureBar } from "./surebar.js";
import { selection } from "./selection.js";

const LISTED = 8;
const ROLE_WORDS = { flaw: "A kind of flaw", normal: "Normal: no flaw", unsure: "Unsure" };

export class GroupsPage {
  static place = "groups";
  static title = "Groups";
  static rail = true;
  static filters = true;

  constructor(shell) {
    Object.assign(this, { shell, current: null, shown: null, version: null });
    this.grid = new Grid({ label: "Images", open: openImage });
    this.head = el("header", { class: "group-head" });
    this.offers = el("div", { class: "offers" });
    this.filters = new FilterBar(query, { rows: () => this.all, skip: () => (this.current === "all" ? [] : ["group"]) });
    const bar = el("div", { class: "bar" }, this.filters.tools, orderControl(), tilesControl(), heatControl(), sizeControl());
    this.sure = new SureBar((rows) => this.accept(rows), model);
    this.empty = el("div", { class: "empty", hidden: true });
    this.node = el("section", { class: "page groups-page", "aria-label": "Groups" }, this.head, this.offers, this.sure.node, bar, this.filters.foot, this.empty, this.grid.node);
    this.resize = soon(() => this.grid.layout());
    onDisplay((key) => { if (key === "size") this.resize(); else if (key !== "opacity") this.draw(); });
  }

  group() { return this.current === "all" ? null : this.current; }
  row() { return this.grid.focused; }
  listed() { return this.current; }
  parts() { return [this.current]; }
  show(id) { this.shell.go(GroupsPage.place, [id]); }
  focus() { this.grid.node.focus(); }
  shows(row) { return (this.current === "all" || model.groupOf(row) === this.current) && query.has(row); }

  open([group]) {
    const id = group === "all" ? group : Number.parseInt(group, 10);
    if (id !== "all" && !model.group(id)) return;
    if (id !== this.current && this.current !== null) selection.clear();
    this.current = id;
  }

  // All images of the group, without the filters.
  get all() { return this.current === "all" ? model.state.labels.map((_, row) => row) : model.members.get(this.current) ?? []; }

  draw() {
    this.current = standing(this.current);
    if (this.node.hidden) return;
    const { all } = this;
    const rows = query.rows(all);
    this.grid.own = this.current === "all";
    const same = this.shown === this.current;
    this.grid.show(rows, { top: !same, calm: same && this.version !== model.state.version });
    Object.assign(this, { shown: this.current, version: model.state.version });
    this.grid.node.setAttribute("aria-label", `Images of ${this.current === "all" ? "all groups" : model.title(this.current)}`);
    this.filters.draw(rows.length, all.length);
    this.sure.show(rows);
    this.drawEmpty(rows.length, all.length);
    this.drawHead();
    const go = { compare: (one, other) => this.shell.go("compare", [one, other]), merged: (id) => this.show(id) };
    this.offers.replaceChildren(...healthNotice(this.shell, () => this.draw()), ...offersOf(this.group(), go));
  }

  drawEmpty(n, all) {
    this.empty.hidden = n > 0;
    if (query.waits) this.empty.replaceChildren("Reading…");
    else if (all) this.empty.replaceChildren(el("p", {}, "No image here meets these filters."), el("p", {}, button("Clear the filters", () => query.clear())));
    else if (model.group(this.current)?.name) this.empty.replaceChildren("This group has no images left. It stays in the list until you merge it into another.");
    else this.empty.replaceChildren("No images are left here: they were moved, or are suggested elsewhere.");
  }

  drawHead() {
    const group = model.group(this.current);
    if (!group) return void this.head.replaceChildren(el("div", { class: "titles" }, el("h1", {}, "All images"), el("p", { class: "soft" }, this.progress())));
    this.head.replaceChildren(
      el("div", { class: "titles" },
        el("div", { class: "title-line" }, mark(group.id), el("h1", { class: "clip", title: group.title }, group.title), this.role(group), severityControl(group)),
        el("p", { class: "soft" }, `${count(group.n, "image")} · ${factsOf(group)}`), noteOf(group.note),
        findingsOf(group.id).map((one) => el("p", { class: "soft finding" }, findingMark(group.id), one.sentence, " ", one.advice))),
      el("div", { class: "row tools" },
        button("Rename…", () => actions.rename(), { key: "R" }),
        button("Compare…", () => this.compare(), { key: "C", disabled: model.groups.length < 2 }),
        button("Merge into…", () => actions.merge(), { key: "G" }),
        button("Note…", () => noteOnGroup(group.id)),
        button("Split…", () => { selection.clear(); actions.split(); }, { key: "S", disabled: group.n < 2 })));
  }

  progress() {
    const sure = model.state.decided.length;
    return `${count(model.run.n, "image")} in ${count(model.groups.length, "group")} · ${percent(sure / model.run.n)} decided · ${count(model.state.spent, "answer")} given`;
  }

  role(group) {
    const choices = Object.entries(ROLE_WORDS).map(([role, words]) => el("option", { value: role }, words));
    const select = el("select", { "aria-label": "Role of the group", class: `role ${group.role}`, onchange: () => actions.role(group, select.value) }, choices);
    select.value = group.role;
    return select;
  }

  // Images of several groups are accepted only after a list of them.
  async accept(rows) {
    if (this.current === "all" && !(await confirmGroups(rows))) return;
    selection.clear();
    acceptRows(rows);
  }

  compare() {
    if (this.group() !== null) this.shell.go("compare", [this.current]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const key = event.key.toLowerCase();
    if (event.shiftKey && key === "a") this.sure.accept();
    else if (key === "c") this.compare();
    else if (key === "[" || key === "]") this.step(key === "[" ? -1 : 1);
    else return this.filters.key(event);
    return true;
  }

  step(by) {
    const ids = orderedGroups().map((group) => group.id);
    const next = ids[ids.indexOf(this.current) + by];
    if (next !== undefined) this.show(next);
  }
}

// A group that is gone was merged or emptied: the next one takes its place.
function standing(id) {
  if (id === "all" || model.byId.has(id)) return id;
  return (model.groups.find((group) => group.id > (id ?? -1) && group.n) ?? model.groups[0]).id;
}

function confirmGroups(rows) {
  const counts = new Map();
  for (const row of rows) counts.set(model.groupOf(row), (counts.get(model.groupOf(row)) ?? 0) + 1);
  if (counts.size < 2) return true;
  const parts = [...counts].sort((a, b) => b[1] - a[1]).map(([id, n]) => `${number(n)} ${model.title(id)}`);
  const rest = parts.length > LISTED ? ` and ${number(parts.length - LISTED)} more groups` : "";
  return choose(`Accept ${count(rows.length, "image")} in ${count(counts.size, "group")}?`,
    `They count as decided then, each in the group where it is shown: ${parts.slice(0, LISTED).join(", ")}${rest}.`, [{ value: true, words: `Accept ${number(rows.length)}`, css: "primary" }]);
}
