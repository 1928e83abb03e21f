// Pictures with their heat, and frames around their regions.

import { el } from "./dom.js";
import { regionFrame } from "./marks.js";
import { D, HEAT, HEAT_COLOURS, REGIONS_OF } from "./model.js";
import { outlineOf } from "./outline.js";

// What pictures show besides the image: heat as colours or as an outline; and what tiles show.
export const shown = { outline: false, flaw: false };

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

const source = (jpeg) => `data:image/jpeg;base64,${jpeg}`;

// left, top, width and height of an image's close-up, in fractions of its picture; null if it has none.
export function closeUpBox(i) {
  if (!D.closeUps?.pictures[i]) return null;
  const [left, top, right, bottom] = D.closeUps.box.slice(4 * i, 4 * i + 4).map((side) => side / 10000);
  return { left, top, width: right - left, height: bottom - top };
}

function heatOf(i, target) {
  const canvas = el("canvas", { class: "glow", "aria-hidden": "true" });
  drawHeat(canvas, i, target);
  return shown.outline ? outlineOf(canvas) : canvas;
}

function sized(aspect, ...children) {
  const inner = el("span", { class: "picture" }, children);
  inner.style.width = `${100 * Math.min(1, aspect)}%`;
  inner.style.height = `${100 * Math.min(1, 1 / aspect)}%`;
  return inner;
}

// An image in a square, its heat stretched exactly over it. target: pixels of heat, 0 for none.
export function picture(i, target) {
  return sized(D.aspect[i], el("img", { src: source(D.thumbs[i]), alt: "", decoding: "async" }), target ? heatOf(i, target) : null);
}

// What a tile shows: the image, or its most unusual place if that is wanted and there is one.
export function tile(i, target) {
  const box = shown.flaw ? closeUpBox(i) : null;
  if (!box) return picture(i, target);
  const inner = sized((D.aspect[i] * box.width) / box.height, closeUp(i));
  if (target) {
    const heat = heatOf(i, target);
    // The heat of the whole image, of which only the box is seen.
    Object.assign(heat.style, { inset: "auto", left: `${(-100 * box.left) / box.width}%`, top: `${(-100 * box.top) / box.height}%`, width: `${100 / box.width}%`, height: `${100 / box.height}%` });
    inner.append(heat);
  }
  return inner;
}

export const closeUp = (i) => el("img", { src: source(D.closeUps.pictures[i]), alt: "", decoding: "async" });
export const match = (i) => (D.closeUps?.matches[i] ? el("img", { src: source(D.closeUps.matches[i]), alt: "" }) : null);

// The whole image with its most unusual place over it as finely as the report has it, to look at closely.
export function closePicture(i, heat) {
  const inner = picture(i, heat ? 320 : 0);
  const box = closeUpBox(i);
  if (!box) return inner;
  const fine = closeUp(i);
  Object.assign(fine.style, { inset: "auto", left: `${100 * box.left}%`, top: `${100 * box.top}%`, width: `${100 * box.width}%`, height: `${100 * box.height}%` });
  inner.firstChild.after(fine);
  return inner;
}

// A frame around each region of an image. like: the rank of the group that each region resembles.
export function frames(i, like, groups) {
  return (REGIONS_OF.get(i) ?? []).map((r) => {
    const { id, title } = groups[like[r]] ?? { id: -1, title: "" };
    return regionFrame(D.regions.box.slice(4 * r, 4 * r + 4), id, title);
  });
}
