// The outline of heat: a line where the heat passes a level, for those who want to see what is under it.

import { svg } from "./dom.js";

const LEVEL = 0.3; // of the heat, which is 1 at its hottest
const SIDE = 128; // the heat is traced on at most so many cells along its longer side

// The opacity of heat as in embeddings/heat.py.
const OPAQUE = 255 * LEVEL ** 0.75;

// source: an image or a canvas with heat, the hotter the less transparent. The SVG covers what the source covers.
export function outlineOf(source) {
  const [wide, high] = [source.naturalWidth ?? source.width, source.naturalHeight ?? source.height];
  const scale = Math.min(1, SIDE / Math.max(wide, high));
  const [columns, rows] = [wide, high].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: columns, height: rows });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(source, 0, 0, columns, rows);
  const { data } = context.getImageData(0, 0, columns, rows);
  const at = (x, y) => (x < 0 || y < 0 || x >= columns || y >= rows ? 0 : data[4 * (y * columns + x) + 3]);
  const path = traced(at, columns, rows);
  return svg("svg", { class: "glow outline", viewBox: `0 0 ${columns} ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "under", d: path }), svg("path", { d: path }));
}

// Marching squares: a short line through each square of four neighbours that the level divides.
function traced(at, columns, rows) {
  const parts = [];
  for (let y = -1; y < rows; y++) {
    for (let x = -1; x < columns; x++) {
      const corners = [at(x, y), at(x + 1, y), at(x + 1, y + 1), at(x, y + 1)];
      const hot = corners.map((value) => value >= OPAQUE);
      if (hot.every(Boolean) || !hot.some(Boolean)) continue;
      const crossed = [0, 1, 2, 3].filter((side) => hot[side] !== hot[(side + 1) % 4]).map((side) => crossing(corners, side, x, y));
      for (let i = 0; i + 1 < crossed.length; i += 2) parts.push(`M${crossed[i]}L${crossed[i + 1]}`);
    }
  }
  return parts.join("");
}

const CORNERS = [[0, 0], [1, 0], [1, 1], [0, 1]];

// Where the level crosses a side of a square; the middle of a pixel is its value.
function crossing(corners, side, x, y) {
  const [from, to] = [corners[side], corners[(side + 1) % 4]];
  const [[x0, y0], [x1, y1]] = [CORNERS[side], CORNERS[(side + 1) % 4]];
  const t = (OPAQUE - from) / (to - from);
  return `${(x + 0.5 + x0 + t * (x1 - x0)).toFixed(2)} ${(y + 0.5 + y0 + t * (y1 - y0)).toFixed(2)}`;
}
