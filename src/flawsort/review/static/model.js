// The run, which never changes, and the current groups, which the server derives from the edits.

import { unpack } from "./dom.js";

const listeners = new Set();

export const model = {
  run: null, state: null, groups: [], byId: new Map(), members: new Map(), confirmed: new Uint8Array(0),

  load(run) {
    model.run = run;
    model.tree = { n: run.n, merges: new Int32Array(unpack(run.merges)), heights: new Float32Array(unpack(run.heights)) };
    model.layout = new Uint16Array(unpack(run.layout));
    model.borderline = Uint8Array.from(run.flags, (flags) => (flags.split(";").includes("borderline") ? 1 : 0));
    model.regionsOf = new Map();
    run.regions.image.forEach((row, region) => {
      if (!model.regionsOf.has(row)) model.regionsOf.set(row, []);
      model.regionsOf.get(row).push(region);
    });
  },

  update(state) {
    model.state = state;
    model.groups = inOrder(state.groups);
    model.byId = new Map(state.groups.map((group) => [group.id, group]));
    model.members = new Map(state.groups.map((group) => [group.id, []]));
    state.labels.forEach((id, row) => model.members.get(id)?.push(row));
    model.confirmed = new Uint8Array(model.run.n);
    for (const row of state.confirmed) model.confirmed[row] = 1;
    model.wandered = null;
    for (const listener of [...listeners]) listener();
  },

  // Calls `listener` after each change of the groups.
  watch(listener) { listeners.add(listener); },

  group: (id) => model.byId.get(id),
  title: (id) => model.byId.get(id)?.title ?? `Group ${id}`,
  groupOf: (row) => model.state.labels[row],
  // All groups of an image, its own group first.
  kinds: (row) => model.state.kinds[row] ?? [model.state.labels[row]],
  flaws: () => model.groups.filter((group) => group.role === "flaw"),
  firstOf: (role) => model.groups.find((group) => group.role === role),
};

// Flaws, then normal, then unsure groups; by id, so that the order does not depend on counts.
function inOrder(groups) {
  const rank = { flaw: 0, normal: 1, unsure: 2 };
  return [...groups].sort((a, b) => rank[a.role] - rank[b.role] || a.id - b.id);
}

const typical = (row) => model.run.typicality[row] ?? -1;
const score = (row) => model.run.scores[row] ?? -Infinity;
const border = (row) => model.borderline[row];

export const ORDERS = {
  typical: { words: "Most typical first", by: (a, b) => typical(b) - typical(a) },
  borderline: { words: "Borderline first", by: (a, b) => border(b) - border(a) || typical(a) - typical(b) },
  odd: { words: "Most unusual first", by: (a, b) => score(b) - score(a) },
  open: { words: "Not confirmed first", by: (a, b) => model.confirmed[a] - model.confirmed[b] || typical(b) - typical(a) },
  name: { words: "By file name", by: () => 0 },
};

export const sorted = (rows, order) => [...rows].sort((a, b) => ORDERS[order].by(a, b) || a - b);

// The current group that a region resembles, or -1. A region like its image's own cluster follows the
// image; another region goes where most images of the cluster it resembles are now.
export function regionGroup(region) {
  const { regions, clusters } = model.run;
  const [row, like] = [regions.image[region], regions.cluster[region]];
  if (like < 0) return -1;
  if (like === clusters[row]) return model.groupOf(row);
  model.wandered ??= whereClustersWent(clusters);
  return model.wandered.get(like) ?? -1;
}

function whereClustersWent(clusters) {
  const tally = new Map();
  clusters.forEach((cluster, row) => {
    if (!tally.has(cluster)) tally.set(cluster, new Map());
    const of = tally.get(cluster);
    of.set(model.groupOf(row), (of.get(model.groupOf(row)) ?? 0) + 1);
  });
  return new Map([...tally].map(([cluster, of]) => [cluster, mostOf(of)]));
}

// The key with the largest count; the smaller key in a tie.
export const mostOf = (counts) => [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0][0];
