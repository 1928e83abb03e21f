// The list of groups beside the images. Click a group to show it, or drop images on it to move them.

import { move } from "./actions.js";
import { onDisplay } from "./display.js";
import { count, el, number, percent } from "./dom.js";
import { draggedRows } from "./grid.js";
import { groupOrderControl, orderedGroups } from "./grouporder.js";
import { findingMark } from "./health.js";
import { colourOf, mark } from "./marks.js";
import { factsOf, model } from "./model.js";
import { numbers } from "./numbers.js";
import { query } from "./query.js";
import { severityBadge } from "./remarks.js";

const ROLES = { flaw: "Kinds of flaws", normal: "Normal", unsure: "Unsure" };
const EMPTY = { normal: "Images without a flaw: drop them here or press N", unsure: "Images to decide later: drop them here or press U" };
const SORTED = 5; // more groups than these can be sorted
const SEARCHED = 12; // more than these can be searched

// The key that moves images to a group: its number, or the first letter of its role.
function keyOf(group) {
  if (group.role === "flaw") return numbers.of(group.id);
  return model.firstOf(group.role) === group ? group.role[0].toUpperCase() : "";
}

function droppable(node, to) {
  let depth = 0; // children fire their own enter and leave
  const over = (by) => { depth += by; node.classList.toggle("over", depth > 0); };
  node.addEventListener("dragenter", (event) => { event.preventDefault(); over(1); });
  node.addEventListener("dragover", (event) => event.preventDefault());
  node.addEventListener("dragleave", () => over(-1));
  node.addEventListener("drop", (event) => { event.preventDefault(); over(-depth); move(draggedRows(), to); });
  return node;
}

// The number of images, and of those that meet the filters if there are any.
const sizeOf = (n, found) => el("span", { class: "number" }, found === null ? number(n) : [el("b", {}, number(found)), el("span", { class: "soft" }, ` of ${number(n)}`)]);

function item(group, current, found) {
  const share = (n) => percent(group.n ? n / group.n : 0).replace(" ", "");
  const words = factsOf(group);
  const key = keyOf(group);
  const some = found === null ? "" : `, ${number(found)} found by the filters`;
  const node = el("button", {
    type: "button", class: `rail-item${found === 0 ? " none-found" : ""}`, "data-group": group.id, "aria-current": current ? "true" : null, tabindex: current ? 0 : -1,
    css: { "--group": colourOf(group.id) }, title: `${group.title}: ${count(group.n, "image")}${some}, ${words}`,
  }, mark(group.id), el("span", { class: "clip title" }, group.title), sizeOf(group.n, found),
  el("kbd", { class: key ? null : "none", "aria-hidden": "true" }, key), el("span", { class: "meter" }, el("i", { css: { width: share(group.decided) } }), el("i", { class: "maybe", css: { width: share(group.suggested) } })),
  el("span", { class: "soft small" }, findingMark(group.id), severityBadge(group), words, group.note ? el("span", { title: group.note }, " · ✎") : null));
  return droppable(node, group.id);
}

export class Rail {
  // choose(id): called on a click, with an id or "all".
  constructor(choose) {
    Object.assign(this, { choose, current: null, filtered: false });
    this.search = el("input", { type: "search", placeholder: "Find a group", "aria-label": "Find a group", autocomplete: "off", spellcheck: "false", oninput: () => this.draw() });
    this.order = groupOrderControl();
    this.tools = el("div", { class: "rail-tools" }, this.search, this.order);
    this.list = el("div", { onclick: (event) => this.click(event), onkeydown: (event) => this.key(event) });
    this.node = el("nav", { class: "rail", id: "rail", "aria-label": "Groups" }, this.tools, this.list);
    onDisplay((key) => { if (key === "groups") this.draw(); });
  }

  // current: the entry to mark. filtered: whether the page shows only what the filters find.
  show(current, filtered) {
    Object.assign(this, { current, filtered });
    this.draw();
  }

  draw() {
    const had = this.list.contains(document.activeElement) ? document.activeElement.dataset.group : null;
    this.search.hidden = model.groups.length <= SEARCHED;
    this.order.hidden = model.groups.length <= SORTED;
    this.tools.hidden = this.search.hidden && this.order.hidden;
    if (this.search.hidden) this.search.value = "";
    const top = this.node.scrollTop;
    const counts = this.filtered && query.filters && !query.waits ? this.found() : null;
    this.list.replaceChildren(this.everything(counts), ...Object.keys(ROLES).map((role) => this.section(role, counts)));
    this.node.scrollTop = top;
    // One entry must always be reachable with Tab.
    if (!this.list.querySelector(".rail-item[tabindex='0']")) this.list.querySelector(".rail-item").tabIndex = 0;
    if (had) this.list.querySelector(`[data-group="${had}"]`)?.focus();
  }

  // The number of images of each group that the filters find.
  found() {
    const counts = new Map(model.groups.map((group) => [group.id, 0]));
    model.state.labels.forEach((id, row) => { if (query.has(row)) counts.set(id, counts.get(id) + 1); });
    return counts;
  }

  everything(counts) {
    const on = this.current === "all";
    const found = counts && [...counts.values()].reduce((sum, n) => sum + n, 0);
    return el("button", { type: "button", class: "rail-item all", "data-group": "all", "aria-current": on ? "true" : null, tabindex: on ? 0 : -1 },
      el("span", { class: "title" }, "All images"), sizeOf(model.run.n, found));
  }

  section(role, counts) {
    const wanted = this.search.value.trim().toLowerCase();
    const groups = orderedGroups().filter((group) => group.role === role);
    const items = groups.filter((group) => group.title.toLowerCase().includes(wanted)).map((group) => item(group, group.id === this.current, counts && counts.get(group.id)));
    if (!groups.length && role !== "flaw") items.push(droppable(el("p", { class: "rail-empty" }, EMPTY[role]), role));
    if (role === "flaw" && groups.some((group) => !numbers.of(group.id))) items.push(el("p", { class: "hint rail-hint" }, "A group keeps its number key. Those without one are picked by name: press M."));
    return el("section", {}, el("h3", {}, ROLES[role], groups.length > 1 ? el("span", { class: "soft" }, ` ${groups.length}`) : null), items);
  }

  click(event) {
    const id = event.target.closest(".rail-item")?.dataset.group;
    if (id !== undefined) this.choose(id === "all" ? "all" : Number(id));
  }

  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const items = [...this.list.querySelectorAll(".rail-item")];
    items[items.indexOf(document.activeElement) + by]?.focus();
  }
}
