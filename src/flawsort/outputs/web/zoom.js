// Looking closely: a picture in a frame, which zooms with the wheel, two fingers, a double click or buttons, and
// moves with a drag.

import { button, el } from "./dom.js";

// Where one looks: how many times larger than the whole picture, and the point in the middle in fractions of it.
export const ALL = { zoom: 1, x: 0.5, y: 0.5 };
const STEP = 1.5;
const WHEEL = 300; // a wheel's turn by this much zooms by e
const PIXEL = 12; // a pixel of the file is shown at most this large
const LEAST_MOST = 8; // one can always zoom by this
const BLOCKS = 3; // pixels of the file at least this large are shown as blocks
const CLICK = 5; // pixels: a shorter drag is none
const SEEN = 0.01; // zoom beyond that of the whole picture by less does not count

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

export class Zoom {
  // frame: clips the picture, which is its element .picture. changed(): called when it shows another part.
  constructor(frame, { changed = () => {} } = {}) {
    Object.assign(this, { frame, changed, look: { ...ALL }, followed: null, aspect: 1, pixels: 0, fingers: new Map(), moved: 0 });
    frame.classList.add("zooms");
    frame.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    frame.addEventListener("pointerdown", (event) => this.press(event));
    frame.addEventListener("pointermove", (event) => this.drag(event));
    for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, (event) => this.fingers.delete(event.pointerId));
    frame.addEventListener("dblclick", (event) => this.swap(...this.spot(event)));
    new ResizeObserver(() => this.lay()).observe(frame);
    this.words = el("output", { class: "number zoom-words" });
    this.pixel = button("1:1", () => this.full(), { title: "One pixel of the file is one pixel of the screen" });
    this.tools = el("div", { class: "segments zoom-tools", role: "group", "aria-label": "Zoom" },
      button("−", () => this.by(1 / STEP), { css: "step", "aria-label": "Zoom out", title: "Zoom out (−)" }),
      button("+", () => this.by(STEP), { css: "step", "aria-label": "Zoom in", title: "Zoom in (+)" }),
      button("All", () => this.all(), { title: "The whole image" }),
      this.pixel);
  }

  // The picture is there: its aspect, and how many pixels of the file it is wide (0: not known).
  measure(aspect, pixels) {
    Object.assign(this, { aspect, pixels });
    this.pixel.hidden = !pixels;
    this.lay();
  }

  // The width and height of the whole picture in the frame, without zoom.
  get fit() {
    const { clientWidth: wide, clientHeight: high } = this.frame;
    const width = Math.min(wide, high * this.aspect);
    return [width, width / this.aspect];
  }

  // CSS pixels for a pixel of the file, and the zoom at which it is one pixel of the screen.
  get scale() { return this.pixels ? (this.fit[0] * this.look.zoom) / this.pixels : 0; }
  get one() { return this.pixels / devicePixelRatio / Math.max(1, this.fit[0]); }
  get most() { return Math.max(LEAST_MOST, this.one * PIXEL); }
  get whole() { return this.look.zoom < 1 + SEEN; }

  // most: another picture, or a larger frame, keeps the zoom even if one could not zoom so far in it.
  set(look, most = this.most) {
    const zoom = clamp(look.zoom, 1, most);
    // What is beyond the border is not shown, unless the picture is smaller than the frame.
    const inside = (middle, size, room) => (size * zoom <= room ? 0.5 : clamp(middle, room / 2 / (size * zoom), 1 - room / 2 / (size * zoom)));
    const [wide, high] = this.fit;
    this.look = { zoom, x: inside(look.x, wide, this.frame.clientWidth), y: inside(look.y, high, this.frame.clientHeight) };
    this.place();
    this.changed();
  }

  lay() {
    if (!this.frame.clientWidth) return;
    if (this.followed) this.to(this.followed);
    else this.set(this.look, Infinity);
  }

  place() {
    const picture = this.frame.querySelector(".picture");
    const { zoom, x, y } = this.look;
    const [wide, high] = this.fit.map((side) => side * zoom);
    this.frame.classList.toggle("zoomed", !this.whole);
    this.frame.classList.toggle("blocks", this.scale * devicePixelRatio >= BLOCKS);
    this.words.textContent = this.pixels ? `${Math.round(100 * this.scale * devicePixelRatio)}%` : "";
    if (!picture) return;
    Object.assign(picture.style, {
      width: `${wide}px`, height: `${high}px`, left: `${this.frame.clientWidth / 2 - x * wide}px`, top: `${this.frame.clientHeight / 2 - y * high}px`,
    });
  }

  // Zoom by a factor; the point of the frame that is given stays where it is.
  by(factor, left = this.frame.clientWidth / 2, top = this.frame.clientHeight / 2) {
    this.followed = null;
    const zoom = clamp(this.look.zoom * factor, 1, Math.max(this.most, this.look.zoom));
    const stay = (middle, size, at, room) => middle + ((at - room / 2) / size) * (1 / this.look.zoom - 1 / zoom);
    const [wide, high] = this.fit;
    this.set({ zoom, x: stay(this.look.x, wide, left, this.frame.clientWidth), y: stay(this.look.y, high, top, this.frame.clientHeight) }, Math.max(this.most, zoom));
  }

  pan(right, down) {
    this.followed = null;
    const [wide, high] = this.fit;
    this.set({ zoom: this.look.zoom, x: this.look.x - right / (wide * this.look.zoom), y: this.look.y - down / (high * this.look.zoom) }, Infinity);
  }

  all() {
    this.followed = null;
    this.set(ALL);
  }

  // Show a box (left, top, right, bottom in fractions) as large as the frame allows. It is followed until one zooms or
  // moves: also in another picture, if that gives its own box, and in a larger frame.
  to(box) {
    const [left, top, right, bottom] = (this.followed = box);
    const [wide, high] = this.fit;
    const zoom = Math.min(this.frame.clientWidth / ((right - left) * wide), this.frame.clientHeight / ((bottom - top) * high));
    this.set({ zoom, x: (left + right) / 2, y: (top + bottom) / 2 });
  }

  full(left, top) { this.by(this.one / this.look.zoom, left, top); }

  // A double click shows the pixels of the file, or everything again.
  swap(left, top) {
    if (this.whole) this.by(Math.max(2, this.one) / this.look.zoom, left, top);
    else this.all();
  }

  // Applies a key and tells whether it did.
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const far = 0.2 * this.frame.clientWidth;
    const move = event.shiftKey && !this.whole && { ArrowLeft: [far, 0], ArrowRight: [-far, 0], ArrowUp: [0, far], ArrowDown: [0, -far] }[event.key];
    if (move) this.pan(...move);
    else if (event.key === "+" || event.key === "=") this.by(STEP);
    else if (event.key === "-") this.by(1 / STEP);
    else return false;
    return true;
  }

  spot(event) {
    const box = this.frame.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  wheel(event) {
    event.preventDefault();
    const turn = event.deltaMode === 1 ? 24 * event.deltaY : event.deltaY; // some count lines
    // Two fingers on a touchpad turn the wheel little, with Ctrl.
    this.by(Math.exp(-(event.ctrlKey ? 4 : 1) * (turn / WHEEL)), ...this.spot(event));
  }

  press(event) {
    if (event.button || event.target.closest("button")) return;
    if (!this.fingers.size) this.moved = 0;
    this.fingers.set(event.pointerId, this.spot(event));
    this.frame.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const from = this.fingers.get(event.pointerId);
    if (!from) return;
    const before = this.pinched();
    const to = this.spot(event);
    this.fingers.set(event.pointerId, to);
    this.moved += Math.hypot(to[0] - from[0], to[1] - from[1]);
    if (this.moved < CLICK) return;
    const after = this.pinched();
    this.pan(after.x - before.x, after.y - before.y);
    if (before.apart && after.apart) this.by(after.apart / before.apart, after.x, after.y);
  }

  // The middle of the fingers, and how far apart the first two are.
  pinched() {
    const all = [...this.fingers.values()];
    const middle = (side) => all.reduce((sum, at) => sum + at[side], 0) / all.length;
    return { x: middle(0), y: middle(1), apart: all.length > 1 ? Math.hypot(all[0][0] - all[1][0], all[0][1] - all[1][1]) : 0 };
  }
}
