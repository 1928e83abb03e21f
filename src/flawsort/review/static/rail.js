// The list of groups beside the images. Click a group to show it, or drop images on it to move them.

import { move } from "./actions.js";
import { count, el, number, percent } from "./dom.js";
import { draggedRows } from "./grid.js";
import { colourOf, mark } from "./marks.js";
import { model } from "./model.js";

const ROLES = { flaw: "Kinds of flaws", normal: "Normal", unsure: "Unsure" };
const EMPTY = { normal: "Images without a flaw: drop them here or press N", unsure: "Images to decide later: drop them here or press U" };

// The key that moves images to a group: its number, or the first letter of its role.
function keyOf(group) {
  if (group.role === "flaw") {
    const nth = model.flaws().indexOf(group) + 1;
    return nth <= 9 ? String(nth) : "";
  }
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

function item(group, current) {
  const share = group.n ? group.confirmed / group.n : 0;
  const words = group.n ? `${number(group.confirmed)} confirmed · ≈ ${percent(group.pure)} pure` : "empty";
  const key = keyOf(group);
  const node = el("button", {
    type: "button", class: "rail-item", "data-group": group.id, "aria-current": current ? "true" : null, tabindex: current ? 0 : -1,
    css: { "--group": colourOf(group.id) }, title: `${group.title}: ${count(group.n, "image")}, ${words}`,
  }, mark(group.id), el("span", { class: "clip title" }, group.title), el("span", { class: "number" }, number(group.n)),
  el("kbd", { class: key ? null : "none", "aria-hidden": "true" }, key), el("span", { class: "meter" }, el("i", { css: { width: percent(share).replace(" ", "") } })),
  el("span", { class: "soft small" }, words));
  return droppable(node, group.id);
}

export class Rail {
  // choose(id): called on a click, with an id or "all".
  constructor(choose) {
    Object.assign(this, { choose, current: null });
    this.node = el("nav", { class: "rail", id: "rail", "aria-label": "Groups", onclick: (event) => this.click(event), onkeydown: (event) => this.key(event) });
  }

  show(current) {
    const had = this.node.contains(document.activeElement) ? document.activeElement.dataset.group : null;
    this.current = current;
    const top = this.node.scrollTop;
    this.node.replaceChildren(this.everything(), ...Object.keys(ROLES).map((role) => this.section(role)));
    this.node.scrollTop = top;
    // One entry must always be reachable with Tab.
    if (!this.node.querySelector(".rail-item[tabindex='0']")) this.node.querySelector(".rail-item").tabIndex = 0;
    if (had) this.node.querySelector(`[data-group="${had}"]`)?.focus();
  }

  everything() {
    const on = this.current === "all";
    return el("button", { type: "button", class: "rail-item all", "data-group": "all", "aria-current": on ? "true" : null, tabindex: on ? 0 : -1 },
      el("span", { class: "title" }, "All images"), el("span", { class: "number" }, number(model.run.n)));
  }

  section(role) {
    const groups = model.groups.filter((group) => group.role === role);
    const items = groups.map((group) => item(group, group.id === this.current));
    if (!items.length && role !== "flaw") items.push(droppable(el("p", { class: "rail-empty" }, EMPTY[role]), role));
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
    const items = [...this.node.querySelectorAll(".rail-item")];
    items[items.indexOf(document.activeElement) + by]?.focus();
  }
}
