// The page of the tree: how groups merge, and what another number of groups would make of them.

import { button, count, el, number, soon, svg } from "./dom.js";
import { edit } from "./editing.js";
import { colourOf, mark } from "./marks.js";
import { cutTree, model, mostOf, sorted } from "./model.js";
import { square } from "./pictures.js";

const TREE = { width: 1120, height: 300, pad: 10, merges: 60 };
const SHOWN = 8;

export class TreePage {
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
        el("p", { class: "hint" }, "Every fork joins two groups; the higher, the more unlike they are. The dashed line cuts the tree; click to cut it elsewhere. Nothing changes until you press the button, and then it can be undone.")),
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
    // An edit elsewhere, or undo, brings the slider back to what is.
    if (this.k === null || this.version !== state.version) this.k = state.k;
    this.version = state.version;
    Object.assign(this.slider, { min: run.k.min, max: Math.max(run.k.max, this.k), disabled: run.n < 3 });
    this.slider.value = this.k;
    this.words.textContent = count(this.k, "group");
    this.less.disabled = this.k <= run.k.min;
    this.more.disabled = this.k >= run.k.max;
    const same = this.k === state.k;
    this.yes.disabled = this.back.hidden = same;
    this.yes.textContent = same ? "This is the cut" : `Cut into ${count(this.k, "group")}`;
    this.back.textContent = `Back to ${state.k}`;
    const parts = heirs(cutTree(this.k));
    this.tree.replaceChildren(this.drawTree(parts));
    const kept = state.confirmed.length;
    this.note.textContent = kept ? `${count(kept, "image")} that people confirmed stay in their groups, whatever the cut.` : "No image is confirmed yet: a cut moves any of them.";
    this.cards.replaceChildren(...parts.map(card));
  }

  drawTree(parts) {
    const { n } = model.run;
    if (n < 2) return el("p", { class: "empty" }, "One image has no tree.");
    const colour = new Map(parts.flatMap((part) => part.rows.map((row) => [row, colourOf(part.id)])));
    const { forks, leaves } = treeShape();
    const { width, height, pad } = TREE;
    const top = model.heights[n - 2] || 1;
    const x = (place) => pad + ((place + 0.5) * (width - 2 * pad)) / leaves;
    // The square root opens up the low merges without changing any order.
    const y = (h) => height - pad - Math.sqrt(Math.max(0, h) / top) * (height - 3 * pad);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `The last ${forks.length} merges, cut into ${this.k} groups` });
    for (const fork of forks) {
      const joined = fork.m < n - this.k;
      for (const side of [fork.left, fork.right]) {
        const below = joined || side.node < 2 * n - this.k;
        const stroke = below ? colour.get(someRow(side.node)) : "currentColor";
        root.append(svg("path", { d: `M${x(fork.x)} ${y(fork.height)}H${x(side.x)}V${y(side.height)}`, stroke, class: below ? "branch" : "branch trunk" }));
      }
    }
    const above = this.k > 1 ? model.heights[n - this.k] : top * 1.05;
    const under = this.k < n ? model.heights[n - this.k - 1] : 0;
    root.append(svg("path", { d: `M0 ${(y(above) + y(under)) / 2}H${width}`, class: "cut" }));
    root.addEventListener("click", (event) => {
      const box = root.getBoundingClientRect();
      const clicked = ((event.clientY - box.top) * height) / box.height;
      this.set(1 + model.heights.filter((h) => y(h) < clicked).length);
    });
    return root;
  }
}

// Which group each cluster would most likely become: that of most of its images, each once.
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
  const from = known && counts.size === 1 && counts.get(id) === model.group(id).n ? "as it is" : `mostly from ${model.title(most)}`;
  return el("article", { class: "card", css: { "--group": colourOf(id) } },
    el("header", {}, mark(id), el("h3", { class: "clip" }, known ? model.title(id) : "New group"), el("span", { class: "soft number" }, number(rows.length))),
    el("p", { class: "soft small clip" }, from),
    el("div", { class: "strip" }, sorted(rows, "typical").slice(0, SHOWN).map((row) => square(row))));
}

// Where the last merges stand: leaves from left to right, forks above the middle of their two.
function treeShape() {
  const { n } = model.run;
  const shown = Math.min(TREE.merges, n - 1);
  const first = 2 * n - 1 - shown;
  const forks = [];
  let leaves = 0;
  const visit = (node) => {
    if (node < first) return { node, x: leaves++, height: 0 };
    const m = node - n;
    const [left, right] = [visit(model.merges[2 * m]), visit(model.merges[2 * m + 1])];
    const fork = { node, m, left, right, x: (left.x + right.x) / 2, height: model.heights[m] };
    forks.push(fork);
    return fork;
  };
  visit(2 * n - 2);
  return { forks, leaves };
}

function someRow(node) {
  while (node >= model.run.n) node = model.merges[2 * (node - model.run.n)];
  return node;
}
