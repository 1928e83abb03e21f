// The run, which never changes, and the current groups, which the server derives from the edits.

import { number, unpack } from "./dom.js";

const listeners = new Set();
const UNKNOWN = 255; // the probability of an image that is decided or as clustered

export const model = {
  run: null, state: null, mine: false, groups: [], byId: new Map(), members: new Map(), decided: new Uint8Array(0), percent: new Uint8Array(0),

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

  // mine: whether it is the answer to an edit that was made here.
  update(state, { mine = false } = {}) {
    model.state = state;
    model.mine = mine;
    model.groups = inOrder(state.groups);
    model.byId = new Map(state.groups.map((group) => [group.id, group]));
    model.members = new Map(state.groups.map((group) => [group.id, []]));
    state.labels.forEach((id, row) => model.members.get(id)?.push(row));
    model.decided = new Uint8Array(model.run.n);
    for (const row of state.decided) model.decided[row] = 1;
    model.percent = new Uint8Array(unpack(state.probability));
    model.wandered = null;
    for (const listener of [...listeners]) listener();
  },

  // Calls `listener` after each change of the groups.
  watch(listener) { listeners.add(listener); },

  group: (id) => model.byId.get(id),
  title: (id) => model.byId.get(id)?.title ?? `Group ${id}`,
  groupOf: (row) => model.state.labels[row],
  // Whether the taught model suggests the group of an image, and how sure it is, in percent; null if it does not.
  suggested: (row) => !model.decided[row] && model.percent[row] !== UNKNOWN,
  sureness: (row) => (model.suggested(row) ? model.percent[row] : null),
  // What people wrote about an image, or "".
  note: (row) => model.state.notes[row] ?? "",
  undecided: (rows) => rows.filter((row) => !model.decided[row]),
  // All groups of an image, its own group first.
  kinds: (row) => model.state.kinds[row] ?? [model.state.labels[row]],
  flaws: () => model.groups.filter((group) => group.role === "flaw"),
  firstOf: (role) => model.groups.find((group) => group.role === role),
  // The group, besides its own, that an image is nearest to, or null: where most images of its second
  // nearest cluster are now.
  nextTo(row) {
    const id = groupOfCluster(model.run.runner_up[row]);
    return id < 0 || id === model.groupOf(row) ? null : id;
  },
};

// Flaws, then normal, then unsure groups; named ones first, then by id, so that the order does not depend
// on counts. Clusters of which nobody said anything and whose images are all suggested elsewhere are left out.
function inOrder(groups) {
  const rank = { flaw: 0, normal: 2, unsure: 4 };
  const place = ({ role, name }) => rank[role] + (name ? 0 : 1);
  return groups.filter(({ n, name, severity, note }) => n || name || severity || note).sort((a, b) => place(a) - place(b) || a.id - b.id);
}

// These rows, the most typical of their group first.
export function mostTypical(rows) {
  const { typicality } = model.run;
  return [...rows].sort((a, b) => (typicality[b] ?? -1) - (typicality[a] ?? -1) || a - b);
}

// What is known of an image's group, in words.
export function standing(row) {
  if (model.decided[row]) return "decided";
  return model.suggested(row) ? `suggested, ${model.percent[row]}% sure` : "as clustered";
}

// What is known of a group's images, in words.
export function factsOf(group) {
  const rest = group.n - group.decided - group.suggested;
  const part = (n, word) => (n ? `${number(n)} ${word}` : null);
  return [part(group.decided, "decided"), part(group.suggested, "suggested"), part(rest, "as clustered")].filter(Boolean).join(" · ") || "empty";
}

// The current group that a region resembles, or -1. A region like its image's own cluster follows the
// image; another region goes where most images of the cluster it resembles are now.
export function regionGroup(region) {
  const { regions, clusters } = model.run;
  const [row, like] = [regions.image[region], regions.cluster[region]];
  if (like < 0) return -1;
  return like === clusters[row] ? model.groupOf(row) : groupOfCluster(like);
}

// The group where most images of a cluster are now, or -1 if there is no such cluster.
function groupOfCluster(cluster) {
  model.wandered ??= whereClustersWent(model.run.clusters);
  return model.wandered.get(cluster) ?? -1;
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
