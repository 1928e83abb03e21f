// Pictures with their heat, and frames around their regions.

import { el } from "./dom.js";
import { regionFrame } from "./marks.js";
import { D, HEAT, HEAT_COLOURS, REGIONS_OF } from "./model.js";

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

// Interpolate heat before colouring it: interpolated colours would not be on the scale.
function drawHeat(canvas, i, target) {
  const [rows, columns] = D.grid;
  const factor = Math.max(1, Math.round(target / Math.max(rows, columns)));
  const [height, width] = [rows * factor, columns * factor];
  const across = cachedTaps(columns, width);
  const wide = new Float32Array(rows * width);
  for (let r = 0; r < rows; r++) {
    const start = (i * rows + r) * columns;
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
      for (let c = 0; c < 4; c++) image.data[at + c] = HEAT_COLOURS[colour + c];
    }
  });
  context.putImageData(image, 0, 0);
}

// An image in a square, its heat stretched exactly over it. target: pixels of heat, 0 for none.
export function picture(i, target) {
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

// A frame around each region of an image. like: the rank of the group that each region resembles.
export function frames(i, like, groups) {
  return (REGIONS_OF.get(i) ?? []).map((r) => {
    const id = like[r] < 0 ? -1 : groups[like[r]].id;
    return regionFrame(D.regions.box.slice(4 * r, 4 * r + 4), id, `Group ${id}`);
  });
}
