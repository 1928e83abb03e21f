// The page that shows two groups side by side, to tell whether they are one kind or two.

import { factsTable, nearest, scoreChart, towards, whereMap } from "./comparison.js";
import { pickGroup } from "./dialogs.js";
import { onDisplay } from "./display.js";
import { button, count, el, number } from "./dom.js";
import { Grid } from "./grid.js";
import { openImage } from "./imageview.js";
import { mark } from "./marks.js";
import { announce } from "./messages.js";
import { model, mostTypical } from "./model.js";
import { keepApart, mergeGroups } from "./naming.js";
import { query } from "./query.js";

const SHOWN = 8;
const SIZE = 112;

// The images of one group: typical ones, and those that are near to the other group.
class Side {
  constructor(page, at) {
    const grid = (label) => new Grid({ label, open: openImage, size: () => SIZE });
    Object.assign(this, { page, at, typical: grid("Typical images"), near: grid("Borderline images") });
    this.pick = button("", () => page.pick(at), { css: "pick", "aria-haspopup": "dialog" });
    this.words = el("p", { class: "soft" });
    this.nearHead = el("div", { class: "row" });
    this.node = el("section", { class: "side" }, el("header", {}, this.pick, this.words), el("h3", {}, "Typical"), this.typical.node, this.nearHead, this.near.node);
  }

  get id() { return this.page.ids[this.at]; }
  get focused() { return this.typical.focused ?? this.near.focused; }

  draw() {
    const { id } = this;
    const [group, other] = [model.group(id), model.group(this.page.ids[1 - this.at])];
    const rows = model.members.get(id);
    this.node.setAttribute("aria-label", group.title);
    this.pick.replaceChildren(mark(id), el("span", { class: "clip" }, group.title), el("span", { "aria-hidden": "true" }, "▾"));
    this.pick.setAttribute("aria-label", `${group.title}: choose another group to compare`);
    this.words.textContent = count(group.n, "image");
    this.typical.show(mostTypical(rows).slice(0, SHOWN));
    const near = towards(id, other.id);
    const borderline = near.length ? near : mostTypical(rows.filter((row) => model.borderline[row])).reverse();
    const words = near.length ? `Borderline, nearest to ${other.title}: ${number(near.length)}` : borderline.length ? "Borderline" : `No image is near ${other.title}`;
    this.nearHead.replaceChildren(el("h3", { class: "clip" }, words), near.length > SHOWN ? button("Show all", () => this.page.showNear(id, other.id), { css: "link quiet" }) : "");
    this.near.node.hidden = !borderline.length;
    this.near.show(borderline.slice(0, SHOWN));
    for (const [grid, what] of [[this.typical, "Typical"], [this.near, "Borderline"]]) grid.node.setAttribute("aria-label", `${what} images of ${group.title}`);
  }
}

export class ComparePage {
  static place = "compare";
  static title = "Compare";
  static rail = true;
  static keys = [["G", "they are one kind: merge them"], ["D", "they are two kinds"], ["W", "swap them"], ["1 – 9, M, X, A", "the image in focus or the selected ones"]];

  constructor(shell) {
    Object.assign(this, { shell, ids: [null, null] });
    this.sides = [new Side(this, 0), new Side(this, 1)];
    this.title = el("h1");
    this.same = button("One kind: merge them", () => this.merge(), { key: "G", css: "primary" });
    this.two = button("Two kinds", () => this.differ(), { key: "D" });
    this.swap = button("Swap", () => this.open([this.ids[1], this.ids[0]], true), { key: "W", css: "quiet" });
    this.note = el("p", { class: "hint" });
    this.numbers = el("div", { class: "panel compared" });
    this.body = el("div", {}, el("header", { class: "compare-head" }, this.title, el("div", { class: "row tools" }, this.same, this.two, this.swap), this.note),
      this.numbers, el("div", { class: "sides" }, this.sides.map((side) => side.node)));
    this.empty = el("p", { class: "empty", hidden: true }, "There is only one group, so there is nothing to compare.");
    this.node = el("section", { class: "page scroll-page compare-page", "aria-label": "Compare" }, this.body, this.empty);
    onDisplay((key) => { if (key !== "opacity" && !this.node.hidden) this.draw(); });
  }

  // The group of the image in focus, or the first one.
  group() { return (this.sides.find((side) => side.focused !== null) ?? this.sides[0]).id; }
  row() { return this.sides.map((side) => side.focused).find((row) => row !== null) ?? null; }
  listed() { return this.ids[0]; }
  parts() { return this.ids.filter((id) => id !== null); }
  shows(row) { return this.sides.some((side) => side.typical.rows.includes(row) || side.near.rows.includes(row)); }
  show() { this.draw(); }

  // ids: of one group or two. show: whether to redraw.
  open(ids, show = false) {
    const known = ids.map(Number).filter((id, at) => ids[at] !== "" && model.group(id));
    if (known.length) this.ids = [known[0], known.find((id) => id !== known[0]) ?? null];
    if (show) {
      this.draw();
      this.shell.changed();
    }
  }

  // A click in the list of groups compares the first group with that one.
  choose(id) {
    if (id !== "all") this.open([id === this.ids[0] ? this.ids[1] : this.ids[0], id], true);
  }

  async pick(at) {
    const answer = await pickGroup(at ? `Compare ${model.title(this.ids[0])} with` : "Compare which group?", { exclude: [this.ids[1 - at]] });
    if (answer) this.open(at ? [this.ids[0], answer.to] : [answer.to, this.ids[1]], true);
    this.sides[at].pick.focus();
  }

  draw() {
    if (this.node.hidden) return;
    this.settle();
    const [one, other] = this.ids;
    this.empty.hidden = other !== null;
    this.body.hidden = other === null;
    if (other === null) return;
    const titles = this.ids.map((id) => el("span", { class: "with-mark" }, mark(id), el("span", { class: "clip" }, model.title(id))));
    this.title.replaceChildren(titles[0], el("span", { class: "soft" }, "and"), titles[1]);
    const apart = model.state.different.some(([a, b]) => this.ids.includes(a) && this.ids.includes(b));
    this.two.disabled = apart;
    this.note.textContent = apart ? "You said that these are two kinds." : `Merged, all ${number(model.group(one).n + model.group(other).n)} images are ${this.mergedTitle()}.`;
    this.numbers.replaceChildren(factsTable(one, other), ...[scoreChart(one, other)].filter(Boolean), el("div", { class: "wheres" }, whereMap(one), whereMap(other), el("p", { class: "hint" }, "Where the regions lie")),
      el("p", { class: "hint" }, "Middle values, and in brackets the middle half of the images."));
    for (const side of this.sides) side.draw();
  }

  mergedTitle() {
    const [one, other] = this.ids.map(model.group);
    return one.name || !other.name ? one.title : other.title;
  }

  // A group that is gone was merged: compare with the one that is nearest.
  settle() {
    const [one, other] = this.ids;
    const first = model.group(one) ? one : model.group(other) ? other : model.groups.find((group) => group.n)?.id ?? model.groups[0].id;
    this.ids = [first, other !== first && model.group(other) ? other : nearest(first)];
  }

  merge() {
    const [one, other] = this.ids;
    return other === null ? null : mergeGroups(other, one);
  }

  differ() {
    if (this.ids[1] === null) return null;
    return this.two.disabled ? announce("You said already that these are two kinds.") : keepApart(...this.ids);
  }

  // All images of a group that are near to the other.
  showNear(id, other) {
    query.set("near", new Set([String(other)]));
    this.shell.go("groups", [id]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
    const act = { g: () => this.merge(), d: () => this.differ(), w: () => this.swap.click() }[event.key.toLowerCase()];
    act?.();
    return Boolean(act);
  }
}
