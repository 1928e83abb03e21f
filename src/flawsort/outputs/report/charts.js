// The map of all images, the top of the tree, and the evidence for k.

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const map = {
  canvas: $("map"), part: null, at: -1, group: -1, matches: null, open: null, places: [],

  show(part, matches) {
    [map.part, map.matches, map.at] = [part, matches, -1];
    $("tip").hidden = true;
    map.draw();
  },

  highlight(rank) {
    if (rank === map.group) return;
    map.group = rank;
    map.draw();
  },

  faded(i) {
    if (map.matches) return !map.matches.has(i);
    return map.group >= 0 && map.part.rank[i] !== map.group;
  },

  draw() {
    const { canvas, part } = map;
    const side = canvas.clientWidth;
    if (!side || !part) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(side * ratio);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const radius = N < 300 ? 5.5 : N < 1500 ? 4 : 2.6;
    const span = side - 36;
    map.places = Array.from({ length: N }, (_, i) =>
      [0, 1].map((axis) => 18 + (span * LAYOUT[2 * i + axis]) / 65535));
    const paths = part.groups.map((group) => new Path2D(shapeOf(group.rank)));
    const order = [...map.places.keys()].sort((a, b) => map.faded(b) - map.faded(a));
    context.strokeStyle = cssColour("--surface");
    for (const i of order) {
      context.save();
      context.translate(...map.places[i]);
      context.scale(radius, radius);
      context.globalAlpha = map.faded(i) ? 0.12 : 0.88;
      context.fillStyle = colourOf(part.rank[i]);
      context.fill(paths[part.rank[i]]);
      context.lineWidth = 0.8 / radius;
      context.stroke(paths[part.rank[i]]);
      context.restore();
    }
    map.numbers(context);
    map.ring(context, radius);
  },

  // Each group's number at its most central image, where it cannot fall between two clouds, and
  // above it where there are too few images to cover any.
  numbers(context) {
    const [paper, ink, taken] = [cssColour("--surface"), cssColour("--ink"), []];
    context.font = "600 13px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 4;
    context.lineJoin = "round";
    for (const group of map.part.groups) {
      if (map.group >= 0 && map.group !== group.rank) continue;
      const [cx, cy] = [0, 1].map((axis) => median(group.rows.map((i) => map.places[i][axis])));
      const off = (i) => (map.places[i][0] - cx) ** 2 + (map.places[i][1] - cy) ** 2;
      const [x, y] = map.places[group.rows.reduce((best, i) => (off(i) < off(best) ? i : best))];
      // The larger group keeps its number where two would cover each other.
      if (taken.some(([tx, ty]) => Math.abs(tx - x) < 18 && Math.abs(ty - y) < 15)) continue;
      taken.push([x, y]);
      const above = group.rows.length < 6 ? 14 : 0;
      [context.strokeStyle, context.fillStyle] = [paper, ink];
      context.strokeText(group.id, x, y - above);
      context.fillText(group.id, x, y - above);
    }
  },

  ring(context, radius) {
    if (map.at < 0) return;
    context.beginPath();
    context.arc(...map.places[map.at], radius + 5, 0, 7);
    context.lineWidth = 2.5;
    context.strokeStyle = cssColour("--ink");
    context.stroke();
  },

  nearest(event) {
    const box = map.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [best, far] = [-1, 20 ** 2];
    map.places.forEach(([px, py], i) => {
      const d = (px - x) ** 2 + (py - y) ** 2;
      if (d < far) [best, far] = [i, d];
    });
    return best;
  },

  point(i) {
    if (i === map.at) return;
    map.at = i;
    map.draw();
    map.canvas.style.cursor = i >= 0 ? "pointer" : "";
    $("tip").hidden = i < 0;
    if (i < 0) return;
    const group = map.part.groups[map.part.rank[i]];
    const words = el("span", { class: "tip-words" }, el("span", { class: "clip file" }, D.names[i]), `Group ${group.id} · score ${figure(D.score[i])}`);
    $("tip").replaceChildren(el("span", { class: "square" }, picture(i, 112)), words);
    const box = map.canvas.getBoundingClientRect();
    const [x, y] = [box.left + map.places[i][0], box.top + map.places[i][1]];
    const tip = $("tip").getBoundingClientRect();
    const left = x + 14 + tip.width > innerWidth ? x - tip.width - 14 : x + 14;
    $("tip").style.left = `${Math.max(4, left)}px`;
    $("tip").style.top = `${Math.min(innerHeight - tip.height - 4, Math.max(4, y - tip.height / 2))}px`;
  },

  step(by) {
    const order = map.part.groups.flatMap((group) => group.rows);
    const place = order.indexOf(map.at);
    map.point(order[place < 0 ? 0 : (place + by + N) % N]);
  },

  listen() {
    const { canvas } = map;
    canvas.addEventListener("pointermove", (event) => map.point(map.nearest(event)));
    canvas.addEventListener("pointerleave", () => map.point(-1));
    canvas.addEventListener("blur", () => map.point(-1));
    canvas.addEventListener("click", (event) => {
      const i = map.nearest(event);
      if (i >= 0) map.open(i);
    });
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (by) map.step(by);
      else if ((event.key === "Enter" || event.key === " ") && map.at >= 0) map.open(map.at);
      else return;
      event.preventDefault();
    });
    new ResizeObserver(() => map.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => map.draw());
  },
};

const TREE = { width: 360, height: 210, pad: 8, merges: 30 };

// Where the last merges stand: leaves from left to right, forks above the middle of their two.
function treeShape() {
  const shown = Math.min(TREE.merges, N - 1);
  const first = 2 * N - 1 - shown;
  const forks = [];
  let leaves = 0;
  const visit = (node) => {
    if (node < first) return { node, x: leaves++, height: 0, leaf: true };
    const m = node - N;
    const [left, right] = [visit(MERGES[2 * m]), visit(MERGES[2 * m + 1])];
    const fork = { node, m, left, right, x: (left.x + right.x) / 2, height: HEIGHTS[m] };
    forks.push(fork);
    return fork;
  };
  visit(2 * N - 2);
  return { forks, leaves };
}

function someRow(node) {
  while (node >= N) node = MERGES[2 * (node - N)];
  return node;
}

function drawTree(part, setK) {
  if (N < 2) return;
  const { forks, leaves } = treeShape();
  const top = HEIGHTS[N - 2] || 1;
  const { width, height, pad } = TREE;
  const x = (place) => pad + ((place + 0.5) * (width - 2 * pad)) / leaves;
  // The square root opens up the low merges without changing any order.
  const y = (h) => height - pad - Math.sqrt(Math.max(0, h) / top) * (height - 3 * pad);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `The last ${forks.length} merges, cut into ${part.k} groups` });
  for (const fork of forks) {
    const joined = fork.m < N - part.k;
    for (const side of [fork.left, fork.right]) {
      const below = joined || side.node < 2 * N - part.k;
      const stroke = below ? colourOf(part.rank[someRow(side.node)]) : "currentColor";
      const d = `M${x(fork.x)} ${y(fork.height)}H${x(side.x)}V${y(side.height)}`;
      root.append(svg("path", { d, stroke, class: below ? "branch" : "branch trunk" }));
    }
  }
  const above = part.k > 1 ? HEIGHTS[N - part.k] : top * 1.05;
  const under = part.k < N ? HEIGHTS[N - part.k - 1] : 0;
  const cut = (y(above) + y(under)) / 2;
  root.append(svg("path", { d: `M0 ${cut}H${width}`, class: "cut" }));
  root.addEventListener("click", (event) => {
    const box = root.getBoundingClientRect();
    const clicked = ((event.clientY - box.top) * height) / box.height;
    setK(1 + HEIGHTS.filter((h) => y(h) < clicked).length);
  });
  $("tree").replaceChildren(root);
}

// One strip: a title, values over k as dots on stems, the advised k and its range marked.
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

function drawEvidence() {
  if (!D.candidates.length || !D.advised) return;
  const gaps = D.candidates.map((entry) => entry.gap || 0);
  const strips = [evidenceStrip("Stability", "stability", 1), evidenceStrip("Gap", "gap", Math.max(...gaps) || 1)];
  const hint = el("p", { class: "hint" }, "Stability: how well the groups agree with those found again among a part of the images (1 is full agreement). Gap: how much more unlike the next two groups to merge are than the last two that did. A good number is high in both; the advised one is filled, its defensible range shaded.");
  $("evidence-chart").replaceChildren(el("div", { class: "strips" }, ...strips), hint);
}
