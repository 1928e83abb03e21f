// The tree page: how groups merge, and a preview of the groups at another cut.

import { button, count, el, number, soon } from "./dom.js";
import { edit } from "./editing.js";
import { colourOf, mark } from "./marks.js";
import { model, mostOf, mostTypical } from "./model.js";
import { square } from "./pictures.js";
import { cutTree, drawTree } from "./tree.js";

const TREE = { width: 1120, height: 300, pad: 10, merges: 60 };
const SHOWN = 8;

export class TreePage {
  static place = "tree";
  static title = "Tree";
  static rail = false;

  constructor() {
    this.k = null;
    this.words = el("output", { class: "strong k-words" });
    this.slider = el("input", { type: "range", step: 1, "aria-label": "Number of groups" });
    this.slider.addEventListener("input", () => this.set(Number(this.slider.value)));
    this.slider.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); this.cut(); } });
    this.less = button("−", () => this.set(this.k - 1), { css: "step", "aria-label": "One group fewer" });
    this.more = button("+", () => this.set(this.k + 1), { css: "step", "aria-label": "One group more" });
    this.yes = button("", () => this.cut(), { css: "primary" });
    this.back = button("Back", () => this.set(model.state.k), { css: "quiet" });
    this.tree = el("div", { class: "tree" });
    this.note = el("p", { class: "hint" });
    this.cards = el("div", { class: "cards" });
    this.node = el("section", { class: "page scroll-page tree-page", "aria-label": "Tree" },
      el("div", { class: "panel" },
        el("div", { class: "bar" }, this.words, this.less, this.slider, this.more, this.yes, this.back), this.tree,
        el("p", { class: "hint" }, "Every fork joins two groups: the higher the fork, the more they differ. The dashed line cuts the tree; click to cut it at another height. Nothing changes until you press the button, and you can undo the cut.")),
      this.note, this.cards);
    this.later = soon(() => this.draw());
  }

  set(k) {
    const { min, max } = model.run.k;
    this.k = Math.max(min, Math.min(max, k));
    this.later();
  }

  async cut() {
    if (this.k === model.state.k) return;
    const { k } = this;
    await edit("cut", { k }, `cut the tree into ${count(k, "group")}`);
  }

  draw() {
    if (this.node.hidden) return;
    const { run, state } = model;
    // An edit elsewhere, or an undo, resets the slider to the current cut.
    if (this.k === null || this.version !== state.version) this.k = state.k;
    this.version = state.version;
    Object.assign(this.slider, { min: run.k.min, max: Math.max(run.k.max, this.k), disabled: run.n < 3 });
    this.slider.value = this.k;
    this.words.textContent = count(this.k, "group");
    this.less.disabled = this.k <= run.k.min;
    this.more.disabled = this.k >= run.k.max;
    const same = this.k === state.k;
    this.yes.disabled = this.back.hidden = same;
    this.yes.textContent = same ? "Current cut" : `Cut into ${count(this.k, "group")}`;
    this.back.textContent = `Back to ${state.k}`;
    const parts = heirs(cutTree(model.tree, this.k));
    this.tree.replaceChildren(this.drawTree(parts));
    const kept = state.decided.length;
    this.note.textContent = kept ? `Decided images stay in their groups at any cut: ${number(kept)} so far. Suggested images stay where the answers suggest.` : "No image is decided yet, so a cut may move any image.";
    this.cards.replaceChildren(...parts.map(card));
  }

  drawTree(parts) {
    if (model.run.n < 2) return el("p", { class: "empty" }, "A single image has no tree.");
    const colour = new Map(parts.flatMap((part) => part.rows.map((row) => [row, colourOf(part.id)])));
    return drawTree(model.tree, this.k, TREE, (row) => colour.get(row), (k) => this.set(k));
  }
}

// The group that each cluster would most likely become: the one most of its images are in; each group once.
function heirs(clusters) {
  const overlaps = clusters.flatMap((rows, cluster) => {
    const counts = new Map();
    for (const row of rows) counts.set(model.groupOf(row), (counts.get(model.groupOf(row)) ?? 0) + 1);
    return [...counts].map(([id, shared]) => ({ cluster, id, shared }));
  });
  const [owner, taken] = [new Map(), new Set()];
  for (const { cluster, id } of overlaps.sort((a, b) => b.shared - a.shared)) {
    if (owner.has(cluster) || taken.has(id)) continue;
    owner.set(cluster, id);
    taken.add(id);
  }
  let fresh = Math.max(...model.byId.keys()) + 1;
  return clusters.map((rows, cluster) => ({ rows, known: owner.has(cluster), id: owner.get(cluster) ?? fresh++ }));
}

function card({ rows, known, id }) {
  const counts = new Map();
  for (const row of rows) counts.set(model.groupOf(row), (counts.get(model.groupOf(row)) ?? 0) + 1);
  const most = mostOf(counts);
  const from = known && counts.size === 1 && counts.get(id) === model.group(id).n ? "unchanged" : `mostly from ${model.title(most)}`;
  return el("article", { class: "card", css: { "--group": colourOf(id) } },
    el("header", {}, mark(id), el("h3", { class: "clip" }, known ? model.title(id) : "New group"), el("span", { class: "soft number" }, number(rows.length))),
    el("p", { class: "soft small clip" }, from),
    el("div", { class: "strip" }, mostTypical(rows).slice(0, SHOWN).map((row) => square(row))));
}
