// Draws the map: a mark for every image at its position, at any zoom.

// scene: {n, layout, groups(), groupOf(row), ringed()}: the number of images, their places (two numbers
// up to 65535 each), the groups as {id, title, rows}, the id of an image's group, and the rows with a
// ring around them.

import { soon } from "./dom.js";
import { colourOf, shapeOf } from "./marks.js";

const NEAR = 20; // pixels: the pointer selects an image within this distance
const CLOSEST = 60; // the largest zoom factor
const RINGS = 200; // more images are not ringed, which would cover them: the others fade instead

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

export class MapView {
  // pad: margin around all images, in pixels. foot: pixels at the bottom that something else covers.
  constructor(canvas, scene, { pad, foot = 0 }) {
    this.later = soon(() => this.draw());
    // at: the row under the pointer. group: the id of the only group shown, or null. matches: rows, or null for all.
    Object.assign(this, { canvas, scene, pad, foot, zoom: 1, x: 0, y: 0, at: -1, group: null, matches: null, lasso: null, stamps: new Map(), side: 1, centre: [0, 0] });
    new ResizeObserver(this.later).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.later);
  }

  // Where an image is on the canvas, in pixels.
  place(row) {
    const span = this.side * this.zoom;
    const [u, v] = [this.scene.layout[2 * row] / 65535 - 0.5, this.scene.layout[2 * row + 1] / 65535 - 0.5];
    return [this.centre[0] + (u - this.x) * span, this.centre[1] + (v - this.y) * span];
  }

  // Read the size of the canvas once per drawing: reading it for every image would dominate the time.
  measure() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.side = Math.max(40, Math.min(width, height - this.foot) - 2 * this.pad);
    this.centre = [width / 2, (height - this.foot) / 2];
    return [width, height];
  }

  fit() { Object.assign(this, { zoom: 1, x: 0, y: 0 }); this.later(); }

  pan(dx, dy) {
    const span = this.side * this.zoom;
    this.x = clamp(this.x - dx / span, -0.5, 0.5);
    this.y = clamp(this.y - dy / span, -0.5, 0.5);
    this.later();
  }

  // Zoom in or out around the point (px, py) of the canvas.
  zoomBy(factor, px = this.centre[0], py = this.centre[1]) {
    const before = this.zoom;
    this.zoom = clamp(before * factor, 1, CLOSEST);
    const shift = 1 / (this.side * before) - 1 / (this.side * this.zoom);
    this.x = clamp(this.x + (px - this.centre[0]) * shift, -0.5, 0.5);
    this.y = clamp(this.y + (py - this.centre[1]) * shift, -0.5, 0.5);
    this.later();
  }

  radius() {
    const { n } = this.scene;
    const base = n < 300 ? 6 : n < 1500 ? 4.5 : n < 6000 ? 3.2 : 2.4;
    return Math.min(11, base * this.zoom ** 0.35);
  }

  // One small picture per group, stamped at each of its images: far faster than drawing a path each time.
  stamp(id, radius, ratio, edge) {
    const key = `${id}/${radius.toFixed(1)}/${ratio}/${edge}`;
    if (this.stamps.has(key)) return this.stamps.get(key);
    if (this.stamps.size > 500) this.stamps.clear();
    const half = radius * 1.5 + 1;
    const stamp = document.createElement("canvas");
    stamp.width = stamp.height = Math.ceil(2 * half * ratio);
    const pen = stamp.getContext("2d");
    pen.scale(ratio, ratio);
    pen.translate(half, half);
    pen.scale(radius, radius);
    const path = new Path2D(shapeOf(id));
    pen.fillStyle = colourOf(id);
    pen.fill(path);
    pen.strokeStyle = edge;
    pen.lineWidth = 0.8 / radius;
    pen.stroke(path);
    const made = { stamp, half };
    this.stamps.set(key, made);
    return made;
  }

  // Whether an image is not among those shown.
  faded(row) {
    return (this.matches !== null && !this.matches.has(row)) || (this.group !== null && this.scene.groupOf(row) !== this.group);
  }

  draw() {
    const { canvas } = this;
    const [width, height] = this.measure();
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const radius = this.radius();
    const ringed = this.scene.ringed();
    const many = ringed.length > RINGS;
    this.drawMarks(pen, radius, ratio, width, height, many ? new Set(ringed) : null);
    pen.globalAlpha = 1;
    this.drawRings(pen, radius, many ? [] : ringed);
    this.drawTitles(pen);
    this.drawLasso(pen);
  }

  // Draw faded marks first, so that they never cover the others. lit: the only rows that do not fade, or null.
  drawMarks(pen, radius, ratio, width, height, lit) {
    const edge = cssColour("--surface");
    const stamps = new Map(this.scene.groups().map(({ id }) => [id, this.stamp(id, radius, ratio, edge)]));
    for (const pass of this.group === null && !this.matches && !lit ? [false] : [true, false]) {
      pen.globalAlpha = pass ? 0.14 : 0.92;
      for (let row = 0; row < this.scene.n; row++) {
        if ((this.faded(row) || (lit !== null && !lit.has(row))) !== pass) continue;
        const [px, py] = this.place(row);
        if (px < -20 || py < -20 || px > width + 20 || py > height + 20) continue;
        const { stamp, half } = stamps.get(this.scene.groupOf(row));
        pen.drawImage(stamp, px - half, py - half, 2 * half, 2 * half);
      }
    }
  }

  drawRings(pen, radius, ringed) {
    // A light ring around the dark one: it must be seen on any colour, and in a crowd.
    for (const [colour, width] of [["--surface", 6], ["--ink", 2.5]]) {
      pen.strokeStyle = cssColour(colour);
      pen.lineWidth = width;
      for (const row of ringed) {
        pen.beginPath();
        pen.arc(...this.place(row), radius + 4, 0, 7);
        pen.stroke();
      }
    }
    if (this.at < 0) return;
    pen.strokeStyle = cssColour("--accent");
    pen.lineWidth = 3;
    pen.beginPath();
    pen.arc(...this.place(this.at), radius + 6, 0, 7);
    pen.stroke();
  }

  // Write each group's title at its most central image. Where two would overlap, only the larger group's is drawn.
  drawTitles(pen) {
    const [paper, ink] = [cssColour("--surface"), cssColour("--ink")];
    const taken = [];
    pen.font = "600 13px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineWidth = 4;
    pen.lineJoin = "round";
    const groups = this.scene.groups().sort((a, b) => b.rows.length - a.rows.length);
    for (const group of groups) {
      if (!group.rows.length || (this.group !== null && this.group !== group.id)) continue;
      const [x, y] = this.place(this.middle(group.rows));
      const text = group.title.length > 22 ? `${group.title.slice(0, 21)}…` : group.title;
      const half = pen.measureText(text).width / 2 + 4;
      const top = y - this.radius() - 12;
      if (taken.some(([tx, ty, th]) => Math.abs(tx - x) < half + th && Math.abs(ty - top) < 18)) continue;
      taken.push([x, top, half]);
      const cx = clamp(x, half, this.canvas.clientWidth - half);
      [pen.strokeStyle, pen.fillStyle] = [paper, ink];
      pen.strokeText(text, cx, top);
      pen.fillText(text, cx, top);
    }
  }

  // The image nearest to the mean position of its group, so that the title never lies between two clouds.
  middle(rows) {
    const { layout } = this.scene;
    const mean = (axis) => rows.reduce((sum, row) => sum + layout[2 * row + axis], 0) / rows.length;
    const [cx, cy] = [mean(0), mean(1)];
    const off = (row) => (layout[2 * row] - cx) ** 2 + (layout[2 * row + 1] - cy) ** 2;
    return rows.reduce((best, row) => (off(row) < off(best) ? row : best));
  }

  drawLasso(pen) {
    if (!this.lasso || this.lasso.length < 2) return;
    pen.beginPath();
    this.lasso.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.closePath();
    pen.fillStyle = pen.strokeStyle = cssColour("--accent");
    pen.globalAlpha = 0.12;
    pen.fill();
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.setLineDash([6, 4]);
    pen.stroke();
    pen.setLineDash([]);
  }

  nearest(x, y) {
    let [best, far] = [-1, NEAR ** 2];
    for (let row = 0; row < this.scene.n; row++) {
      const [px, py] = this.place(row);
      const d = (px - x) ** 2 + (py - y) ** 2;
      if (d < far) [best, far] = [row, d];
    }
    return best;
  }

  // The nearest image from `row` in a direction (dx, dy); sideways distance counts double.
  beyond(row, dx, dy) {
    const [x, y] = this.place(row);
    let [best, least] = [row, Infinity];
    for (let other = 0; other < this.scene.n; other++) {
      const [px, py] = this.place(other);
      const along = (px - x) * dx + (py - y) * dy;
      const across = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
      if (other === row || along <= 0 || across > 2 * along) continue;
      const cost = along + 2 * across;
      if (cost < least) [best, least] = [other, cost];
    }
    return best;
  }

  // The rows whose positions are inside a polygon.
  inside(polygon) {
    const rows = [];
    for (let row = 0; row < this.scene.n; row++) {
      const [x, y] = this.place(row);
      let within = false;
      for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
        const [[xi, yi], [xj, yj]] = [polygon[i], polygon[j]];
        if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) within = !within;
      }
      if (within) rows.push(row);
    }
    return rows;
  }
}
