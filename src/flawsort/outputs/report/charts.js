// The map of all images, the top of the tree, and the evidence for k.

import { $, count, el, figure, placeTip, svg } from "./dom.js";
import { MapView } from "./map.js";
import { colourOf } from "./marks.js";
import { D, LAYOUT, N, TREE } from "./model.js";
import { picture } from "./pictures.js";
import { drawTree } from "./tree.js";

const SIZE = { width: 360, height: 210, pad: 8, merges: 30 };
const ARROWS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

const canvas = $("map");
let part = null;
const groupOf = (i) => part.groups[part.rank[i]];
const view = new MapView(canvas, {
  n: N,
  layout: LAYOUT,
  groups: () => part.groups.map(({ id, rows }) => ({ id, title: String(id), rows })),
  groupOf: (i) => groupOf(i).id,
  ringed: () => [],
}, { pad: 18 });

function nearest(event) {
  const box = canvas.getBoundingClientRect();
  return view.nearest(event.clientX - box.left, event.clientY - box.top);
}

function step(by) {
  const order = part.groups.flatMap((group) => group.rows);
  const place = order.indexOf(view.at);
  map.point(order[place < 0 ? 0 : (place + by + N) % N]);
}

export const map = {
  show(shown, matches) {
    part = shown;
    view.matches = matches;
    map.point(-1);
    view.draw();
  },

  // Highlight one group; null for none.
  highlight(id) {
    view.group = id;
    view.later();
  },

  // Mark an image and show its tooltip; -1 for none.
  point(i) {
    if (i === view.at) return;
    view.at = i;
    view.later();
    canvas.style.cursor = i >= 0 ? "pointer" : "";
    const tip = $("tip");
    tip.hidden = i < 0;
    if (i < 0) return;
    const words = el("span", { class: "tip-words" }, el("span", { class: "clip file" }, D.names[i]), `${groupOf(i).title} · anomaly score ${figure(D.score[i])}`);
    tip.replaceChildren(el("span", { class: "square" }, picture(i, 112)), words);
    const [box, [x, y]] = [canvas.getBoundingClientRect(), view.place(i)];
    placeTip(tip, box.left + x, box.top + y);
  },

  // open(i): called on a click and on Enter.
  listen(open) {
    canvas.addEventListener("pointermove", (event) => map.point(nearest(event)));
    canvas.addEventListener("pointerleave", () => map.point(-1));
    canvas.addEventListener("blur", () => map.point(-1));
    canvas.addEventListener("click", (event) => {
      const i = nearest(event);
      if (i >= 0) open(i);
    });
    canvas.addEventListener("keydown", (event) => {
      if (ARROWS[event.key]) step(ARROWS[event.key]);
      else if ((event.key === "Enter" || event.key === " ") && view.at >= 0) open(view.at);
      else return;
      event.preventDefault();
    });
  },
};

export function showTree(setK) {
  if (N > 1) $("tree").replaceChildren(drawTree(TREE, part.k, SIZE, (row) => colourOf(groupOf(row).id), setK));
}

// One chart: a title, values over k as dots on stems, and the advised k and its range marked.
function evidenceStrip(title, key, most) {
  const points = D.candidates.filter((entry) => entry[key] !== null && entry[key] !== undefined);
  const [width, height, left, base] = [520, 150, 44, 122];
  const ks = D.candidates.map((entry) => entry.k);
  const [low, high] = [Math.min(...ks), Math.max(...ks)];
  const x = (k) => left + ((k - low + 0.5) * (width - left - 6)) / (high - low + 1);
  const y = (value) => base - (value / most) * (base - 30);
  const half = (x(low + 1) - x(low)) / 2;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title} for each number of groups` });
  const text = (px, py, words, extra = {}) => root.append(svg("text", { x: px, y: py, ...extra }, words));
  const { low: from, high: to, k } = D.advised;
  root.append(svg("rect", { class: "range", x: x(from) - half, y: 22, width: x(to) - x(from) + 2 * half, height: base - 22 }));
  for (const value of [0, most]) {
    root.append(svg("path", { class: "grid", d: `M${left} ${y(value)}H${width}` }));
    text(left - 6, y(value) + 4, Number(value.toPrecision(2)).toString(), { "text-anchor": "end" });
  }
  for (const entry of points) {
    const css = entry.k === k ? "dot best" : "dot";
    root.append(svg("path", { class: css, d: `M${x(entry.k)} ${base}V${y(entry[key])}` }));
    const dot = svg("circle", { class: css, cx: x(entry.k), cy: y(entry[key]), r: 4.5 });
    dot.append(svg("title", {}, `${count(entry.k, "group")}: ${title.toLowerCase()} ${figure(entry[key])}`));
    root.append(dot);
  }
  const every = Math.ceil((high - low + 1) / 20);
  ks.forEach((value, i) => {
    if (value === k || (i % every === 0 && Math.abs(value - k) >= every)) {
      text(x(value), base + 17, value, { "text-anchor": "middle", class: value === k ? "best" : "" });
    }
  });
  text(left, 14, title, { class: "title" });
  text(width, 14, "number of groups →", { "text-anchor": "end" });
  return root;
}

export function drawEvidence() {
  if (!D.candidates.length || !D.advised) return;
  const gaps = D.candidates.map((entry) => entry.gap || 0);
  const strips = [evidenceStrip("Stability", "stability", 1), evidenceStrip("Gap", "gap", Math.max(...gaps) || 1)];
  const hint = el("p", { class: "hint" }, "Stability: how well the groups agree with the groups found in random parts of the images (1 is full agreement). Gap: how much more the next two groups to merge differ than the last two that merged. A good number of groups is high in both. The advised number is filled, and its defensible range is shaded.");
  $("evidence-chart").replaceChildren(el("div", { class: "strips" }, ...strips), hint);
}
