// Two groups in numbers: their scores, how much of their images is flawed, and where.

import { areaOf } from "./columns.js";
import { el, figure, number, percent, svg } from "./dom.js";
import { colourOf } from "./marks.js";
import { model } from "./model.js";

const BARS = 36;
const CELLS = 24;

// The middle value and the middle half of some numbers, or null of none.
function middle(values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!known.length) return null;
  const at = (share) => known[Math.round(share * (known.length - 1))];
  return { low: at(0.25), mid: at(0.5), high: at(0.75) };
}

const inWords = (found, show) => (found ? `${show(found.mid)} (${show(found.low)} to ${show(found.high)})` : "–");
const regions = (row) => model.regionsOf.get(row)?.length ?? 0;
const scoreOf = (row) => model.run.scores[row];
const ofAll = (n, all) => `${number(n)} of ${number(all)}`;

// Images of a group whose next nearest group is the other one, the least typical first.
export function towards(id, other) {
  const { typicality } = model.run;
  return model.members.get(id).filter((row) => model.nextTo(row) === other).sort((a, b) => (typicality[a] ?? -1) - (typicality[b] ?? -1) || a - b);
}

// The other group that most images of a group are near to; null if there is only one.
export function nearest(id) {
  const others = model.groups.filter((group) => group.id !== id && group.n);
  const counts = new Map(others.map((group) => [group.id, 0]));
  for (const row of model.members.get(id)) {
    const next = model.nextTo(row);
    if (counts.has(next)) counts.set(next, counts.get(next) + 1);
  }
  return others.length ? others.reduce((best, group) => (counts.get(group.id) > counts.get(best.id) ? group : best)).id : null;
}

// A table with a line for each fact and a column for each group.
export function factsTable(one, other) {
  const facts = [one, other].map((id, side) => factsOf(id, [one, other][1 - side]));
  const lines = facts[0].map(([words, value], at) => el("tr", {}, el("th", { scope: "row" }, words), el("td", {}, value), el("td", {}, facts[1][at][1])));
  return el("table", { class: "facts-table" }, el("caption", { class: "unseen" }, "The two groups in numbers"),
    el("thead", {}, el("tr", {}, el("td", {}), [one, other].map((id) => el("th", { scope: "col", class: "clip" }, model.title(id))))), el("tbody", {}, lines));
}

function factsOf(id, other) {
  const group = model.group(id);
  const rows = model.members.get(id);
  return [
    ["Images", number(group.n)],
    ["Decided", ofAll(group.decided, group.n)],
    ["Anomaly score", inWords(middle(rows.map(scoreOf)), figure)],
    ["With a flawed region", ofAll(rows.filter(regions).length, group.n)],
    ["Regions an image", inWords(middle(rows.map(regions)), number)],
    ["Size of the flaw", inWords(middle(rows.map(areaOf)), (value) => percent(value / 100))],
    ["Nearest to the other", ofAll(towards(id, other).length, group.n)],
  ];
}

// How the scores of both groups are spread, on one scale: one above the line, one below.
export function scoreChart(one, other) {
  const values = [one, other].map((id) => model.members.get(id).map(scoreOf).filter((value) => value !== null));
  const all = values.flat();
  if (!all.length) return null;
  const least = all.reduce((a, b) => Math.min(a, b));
  const step = (all.reduce((a, b) => Math.max(a, b)) - least) / BARS || 1;
  const shares = values.map((of) => {
    const counts = new Array(BARS).fill(0);
    for (const value of of) counts[Math.min(BARS - 1, Math.floor((value - least) / step))] += 1 / of.length;
    return counts;
  });
  const top = Math.max(...shares.flat());
  const bars = shares.map((counts, side) => counts.map((share, at) => {
    const high = (38 * share) / top;
    return share ? svg("rect", { x: at, y: side ? 41 : 39 - high, width: 0.88, height: high, fill: colourOf([one, other][side]) }) : null;
  }));
  const words = `Anomaly scores from ${figure(least)} to ${figure(least + step * BARS)}: ${model.title(one)} above the line, ${model.title(other)} below it`;
  return el("figure", { class: "spread-figure" }, svg("svg", { viewBox: `0 0 ${BARS} 80`, preserveAspectRatio: "none", role: "img", "aria-label": words }, svg("rect", { x: 0, y: 39.5, width: BARS, height: 1, class: "axis-line" }), ...bars.flat()),
    el("figcaption", { class: "hint" }, el("span", {}, figure(least)), el("span", {}, "Anomaly scores"), el("span", {}, figure(least + step * BARS))));
}

// Where the regions of a group lie: the more images have one at a place, the darker it is.
export function whereMap(id) {
  const { box } = model.run.regions;
  const counts = new Float64Array(CELLS * CELLS);
  for (const row of model.members.get(id)) {
    for (const region of model.regionsOf.get(row) ?? []) {
      const [left, top, right, bottom] = [0, 1, 2, 3].map((side) => (box[4 * region + side] * CELLS) / 1000);
      for (let y = Math.floor(top); y < Math.min(CELLS, bottom); y++) for (let x = Math.floor(left); x < Math.min(CELLS, right); x++) counts[y * CELLS + x]++;
    }
  }
  const most = Math.max(1, ...counts);
  const cells = Array.from(counts, (n, at) => (n ? svg("rect", { x: at % CELLS, y: Math.floor(at / CELLS), width: 1, height: 1, opacity: (n / most).toFixed(2) }) : null));
  return el("figure", { class: "where", css: { "--group": colourOf(id) } },
    svg("svg", { viewBox: `0 0 ${CELLS} ${CELLS}`, "shape-rendering": "crispEdges", role: "img", "aria-label": `Where the regions of ${model.title(id)} lie` }, ...cells.filter(Boolean)), el("figcaption", { class: "hint clip" }, model.title(id)));
}
