// Small helpers for elements, group marks, and pictures with their heat.

function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) node.style.setProperty(key, value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// The page's own name for SVG, taken from an element that has it: nothing here is an address.
const SVG_SPACE = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

function svg(tag, props = {}, ...children) {
  const node = document.createElementNS(SVG_SPACE, tag);
  for (const [key, value] of Object.entries(props)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const figure = (value) => (value === null ? "–" : Math.abs(value) < 999.5 ? value.toPrecision(3) : String(Math.round(value)));
const $ = (id) => document.getElementById(id);

// Eight colours told apart by people with any colour vision, times seven shapes.
const PALETTE = ["#0072b2", "#e08214", "#009e73", "#c65c9c", "#56b4e9", "#b2400b", "#9a8c00", "#7b6bb5"];
const SHAPES = [
  "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z",
  "M-.9 -.9H.9V.9H-.9Z",
  "M0 -1.15L1.1 .85H-1.1Z",
  "M0 -1.25L1.1 0L0 1.25L-1.1 0Z",
  "M-.4 -1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
  "M0 1.15L1.1 -.85H-1.1Z",
  "M-.6 -1H.6L1.2 0L.6 1H-.6L-1.2 0Z",
];
const colourOf = (rank) => PALETTE[rank % PALETTE.length];
const shapeOf = (rank) => SHAPES[rank % SHAPES.length];

function mark(rank) {
  const path = svg("path", { d: shapeOf(rank), fill: colourOf(rank) });
  return svg("svg", { class: "mark", viewBox: "-1.4 -1.4 2.8 2.8", "aria-hidden": "true" }, path);
}

// Four neighbours and their weights for each of `size` pixels over `cells` cells (bicubic).
function taps(cells, size) {
  return Array.from({ length: size }, (_, pixel) => {
    const place = ((pixel + 0.5) * cells) / size - 0.5;
    const base = Math.floor(place);
    const t = place - base;
    const weights = [
      ((-0.5 * t + 1) * t - 0.5) * t,
      (1.5 * t - 2.5) * t * t + 1,
      ((-1.5 * t + 2) * t + 0.5) * t,
      (0.5 * t - 0.5) * t * t,
    ];
    const index = [-1, 0, 1, 2].map((step) => Math.min(cells - 1, Math.max(0, base + step)));
    return { index, weights };
  });
}

const tapCache = new Map();
function cachedTaps(cells, size) {
  const key = `${cells}/${size}`;
  if (!tapCache.has(key)) tapCache.set(key, taps(cells, size));
  return tapCache.get(key);
}

// Heat is made smooth before it is coloured; colours blended afterwards would be off the scale.
function drawHeat(canvas, i, target) {
  const [rows, columns] = D.grid;
  const factor = Math.max(1, Math.round(target / Math.max(rows, columns)));
  const [height, width] = [rows * factor, columns * factor];
  const across = cachedTaps(columns, width);
  const wide = new Float32Array(rows * width);
  for (let r = 0; r < rows; r++) {
    const start = i * CELLS + r * columns;
    across.forEach(({ index, weights }, x) => {
      let sum = 0;
      for (let t = 0; t < 4; t++) sum += weights[t] * HEAT[start + index[t]];
      wide[r * width + x] = sum;
    });
  }
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  cachedTaps(rows, height).forEach(({ index, weights }, y) => {
    for (let x = 0; x < width; x++) {
      let sum = 0;
      for (let t = 0; t < 4; t++) sum += weights[t] * wide[index[t] * width + x];
      const colour = 4 * Math.round(Math.min(255, Math.max(0, sum)));
      const at = 4 * (y * width + x);
      for (let c = 0; c < 4; c++) image.data[at + c] = COLOURS[colour + c];
    }
  });
  context.putImageData(image, 0, 0);
}

// An image in a square, its heat stretched exactly over it. target: pixels of heat, 0 for none.
function picture(i, target) {
  const aspect = D.aspect[i];
  const inner = el("span", { class: "picture" });
  inner.style.width = `${100 * Math.min(1, aspect)}%`;
  inner.style.height = `${100 * Math.min(1, 1 / aspect)}%`;
  inner.append(el("img", { src: `data:image/jpeg;base64,${D.thumbs[i]}`, alt: "", decoding: "async" }));
  if (target) {
    const canvas = el("canvas", { class: "glow", "aria-hidden": "true" });
    drawHeat(canvas, i, target);
    inner.append(canvas);
  }
  return inner;
}

// A frame around each region of an image, in the colour of the group that it is like.
function frames(i, like, groups) {
  return (REGIONS_OF.get(i) ?? []).map((r) => {
    const [left, top, right, bottom] = D.regions.box.slice(4 * r, 4 * r + 4).map((value) => value / 10);
    const kind = like[r];
    const words = kind < 0 ? "like no group" : `like group ${groups[kind].id}`;
    const frame = el("span", { class: "region", title: `Region ${words}`, "--group": kind < 0 ? "#fff" : colourOf(kind) });
    Object.assign(frame.style, { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` });
    if (kind < 0) frame.classList.add("unlike");
    else frame.append(el("span", { class: "region-name", "aria-hidden": "true" }, groups[kind].id));
    return frame;
  });
}
