// Cuts the tree of merges into any number of groups, and draws it.
// tree: {n, merges, heights}: the number of images and the n - 1 merges from the lowest up, each with two
// nodes and a height. Node i < n is image i; node n + m is the result of merge m.

import { svg } from "./dom.js";

// The rows of each group of the tree cut at k, the largest first: undo all but the last k - 1 merges.
export function cutTree({ n, merges }, k) {
  const parent = Int32Array.from({ length: 2 * n - 1 }, (_, node) => node);
  for (let m = 0; m < n - k; m++) parent[merges[2 * m]] = parent[merges[2 * m + 1]] = n + m;
  const found = new Map();
  for (let row = 0; row < n; row++) {
    let node = row;
    while (parent[node] !== node) node = parent[node] = parent[parent[node]];
    if (!found.has(node)) found.set(node, []);
    found.get(node).push(row);
  }
  return [...found.values()].sort((a, b) => b.length - a.length || a[0] - b[0]);
}

// The positions of the last merges: leaves from left to right, each fork above the middle of its two branches.
function treeShape({ n, merges, heights }, most) {
  const first = 2 * n - 1 - Math.min(most, n - 1);
  const forks = [];
  let leaves = 0;
  const visit = (node) => {
    if (node < first) return { node, x: leaves++, height: 0 };
    const m = node - n;
    const [left, right] = [visit(merges[2 * m]), visit(merges[2 * m + 1])];
    const fork = { node, m, left, right, x: (left.x + right.x) / 2, height: heights[m] };
    forks.push(fork);
    return fork;
  };
  visit(2 * n - 2);
  return { forks, leaves };
}

function someRow({ n, merges }, node) {
  while (node >= n) node = merges[2 * (node - n)];
  return node;
}

// The last merges of a tree of at least two images, cut into k groups. size: {width, height, pad,
// merges}: lengths in units of the drawing, and the number of merges shown. colour(row): the colour of an
// image's group. choose(k): called when a click chooses another cut.
export function drawTree(tree, k, size, colour, choose) {
  const { n, heights } = tree;
  const { width, height, pad } = size;
  const { forks, leaves } = treeShape(tree, size.merges);
  const top = heights[n - 2] || 1;
  const x = (place) => pad + ((place + 0.5) * (width - 2 * pad)) / leaves;
  // The square root spreads out the low merges without changing their order.
  const y = (h) => height - pad - Math.sqrt(Math.max(0, h) / top) * (height - 3 * pad);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `The last ${forks.length} merges, cut into ${k} groups` });
  for (const fork of forks) {
    const joined = fork.m < n - k;
    for (const side of [fork.left, fork.right]) {
      const below = joined || side.node < 2 * n - k;
      const stroke = below ? colour(someRow(tree, side.node)) : "currentColor";
      root.append(svg("path", { d: `M${x(fork.x)} ${y(fork.height)}H${x(side.x)}V${y(side.height)}`, stroke, class: below ? "branch" : "branch trunk" }));
    }
  }
  const above = k > 1 ? heights[n - k] : top * 1.05;
  const under = k < n ? heights[n - k - 1] : 0;
  root.append(svg("path", { d: `M0 ${(y(above) + y(under)) / 2}H${width}`, class: "cut" }));
  root.addEventListener("click", (event) => {
    const box = root.getBoundingClientRect();
    const clicked = ((event.clientY - box.top) * height) / box.height;
    choose(1 + heights.filter((h) => y(h) < clicked).length);
  });
  return root;
}
