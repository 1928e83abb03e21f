// The run as numbers: unpacked arrays, and the groups at any cut of the tree.

import { unpack } from "./dom.js";
import { cutTree } from "./tree.js";

export const D = JSON.parse(document.getElementById("data").textContent);

export const N = D.n;
export const HEAT = new Uint8Array(unpack(D.heat));
export const HEAT_COLOURS = new Uint8Array(unpack(D.colours));
export const LAYOUT = new Uint16Array(unpack(D.layout));
export const TREE = { n: N, merges: new Int32Array(unpack(D.merges)), heights: new Float32Array(unpack(D.heights)) };
const VECTORS = new Int16Array(unpack(D.vectors));
const REGION_VECTORS = new Int16Array(unpack(D.regions.vectors));

// What a group is called: as people left it at the saved cut of a reviewed run, else by its number.
export const titleOf = (id, saved) => (saved && D.reviewed ? D.reviewed.titles[id] : `Group ${id}`);

// Groups by size, ties by their smallest row. At the saved k they keep the table's numbers.
function membership(k) {
  if (k !== D.k.saved) return cutTree(TREE, k).map((rows, rank) => ({ id: rank, rank, rows }));
  const found = new Map();
  D.cluster.forEach((id, i) => {
    if (!found.has(id)) found.set(id, []);
    found.get(id).push(i);
  });
  const ordered = [...found].sort((a, b) => b[1].length - a[1].length || a[1][0] - b[1][0]);
  return ordered.map(([id, rows], rank) => ({ id, rank, rows }));
}

function centresOf(groups) {
  return groups.map(({ rows }) => {
    const centre = new Float64Array(D.dims);
    for (const i of rows) for (let d = 0; d < D.dims; d++) centre[d] += VECTORS[i * D.dims + d];
    return centre.map((sum) => sum / rows.length);
  });
}

function distance(i, centre, vectors = VECTORS) {
  let sum = 0;
  for (let d = 0; d < D.dims; d++) sum += (vectors[i * D.dims + d] - centre[d]) ** 2;
  return Math.sqrt(sum);
}

// A group looks normal when nearly all of its images do.
function looksNormal(rows) {
  const cold = rows.filter((i) => D.looksNormal[i]);
  return cold.length >= D.normalGroupShare * rows.length;
}

function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
}

// The regions of each image, the hottest first.
export const REGIONS_OF = new Map();
D.regions.image.forEach((i, r) => {
  if (!REGIONS_OF.has(i)) REGIONS_OF.set(i, []);
  REGIONS_OF.get(i).push(r);
});

// The rank of the group that each region resembles; -1, at any k, if it resembles no image.
function likeWhich(groups, centres, saved) {
  const byId = new Map(groups.map((group) => [group.id, group.rank]));
  return D.regions.cluster.map((id, r) => {
    if (id < 0) return -1;
    if (saved) return byId.get(id) ?? -1;
    const far = centres.map((centre) => distance(r, centre, REGION_VECTORS));
    return far.indexOf(Math.min(...far));
  });
}

// For each image, the ranks of its own group and of the groups that its regions resemble, or that a
// person gave it.
function kindsOf(groups, rank, like, saved) {
  if (saved && D.reviewed) {
    const byId = new Map(groups.map((group) => [group.id, group.rank]));
    return D.reviewed.kinds.map((ids) => ids.map((id) => byId.get(id)).filter((found) => found !== undefined));
  }
  const kinds = Array.from(rank, (own) => [own]);
  like.forEach((kind, r) => {
    const of = kinds[D.regions.image[r]];
    if (kind >= 0 && !groups[kind].plain && !of.includes(kind)) of.push(kind);
  });
  return kinds;
}

// For each image its group's rank, the distance to its own centre, and the nearest other group.
function measure(groups, saved) {
  const centres = centresOf(groups);
  const rank = new Int32Array(N);
  for (const group of groups) for (const i of group.rows) rank[i] = group.rank;
  const own = new Float64Array(N);
  const margin = new Float64Array(N).fill(1);
  const next = new Int32Array(N).fill(-1);
  for (let i = 0; i < N; i++) {
    own[i] = distance(i, centres[rank[i]]);
    let nearest = Infinity;
    centres.forEach((centre, g) => {
      if (g === rank[i]) return;
      const far = distance(i, centre);
      if (far < nearest) [nearest, next[i]] = [far, g];
    });
    if (nearest < Infinity) margin[i] = nearest > 0 ? 1 - own[i] / nearest : 0;
  }
  return { rank, own, margin, next, like: likeWhich(groups, centres, saved) };
}

const partitions = new Map();

// Everything about the groups at k, computed once.
export function partition(k) {
  if (partitions.has(k)) return partitions.get(k);
  const groups = membership(k);
  const saved = k === D.k.saved;
  const { rank, own, margin, next, like } = measure(groups, saved);
  if (saved && !D.reviewed) {
    const byId = new Map(groups.map((group) => [group.id, group.rank]));
    D.runnerUp.forEach((id, i) => { if (byId.has(id) && byId.get(id) !== rank[i]) next[i] = byId.get(id); });
  }
  const unlike = (i) => (saved && !D.reviewed && D.typicality[i] !== null ? -D.typicality[i] : own[i]);
  for (const group of groups) {
    group.rows = [...group.rows].sort((a, b) => unlike(a) - unlike(b) || own[a] - own[b] || a - b);
    group.score = mean(group.rows.map((i) => D.score[i]));
    group.title = titleOf(group.id, saved);
    group.normal = saved && D.reviewed ? D.reviewed.normal.includes(group.id) : looksNormal(group.rows);
    // Nothing stands out in most of its images, so no region can be of its kind.
    group.plain = group.normal || group.rows.filter((i) => REGIONS_OF.has(i)).length < D.standingOutShare * group.rows.length;
    group.borderline = group.rows
      .filter((i) => margin[i] < D.borderlineBelow)
      .sort((a, b) => margin[a] - margin[b] || a - b);
  }
  const kinds = kindsOf(groups, rank, like, saved);
  const out = { k, saved, groups, rank, margin, next, like, kinds };
  partitions.set(k, out);
  return out;
}
