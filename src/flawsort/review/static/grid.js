// A grid that only creates cells for the images in view, so that 20,000 images scroll as smoothly as 20.

import { display } from "./display.js";
import { count, el, figure, soon } from "./dom.js";
import { mark } from "./marks.js";
import { model, standing } from "./model.js";
import { picture, release, tileSource } from "./pictures.js";
import { selection } from "./selection.js";

const GAP = 8;
const MOST = 380; // pixels: larger thumbnails look blurred
const LEAVING = 450; // milliseconds that an image takes to fade; as in pages.css
const FAST = 3; // screens per frame: above it, pictures load only when scrolling slows down

let dragged = [];
export const draggedRows = () => dragged;

let made = 0;

export class Grid {
  // open(rows, index): called on Enter and on a double click. enterOpens: false leaves Enter to the page. active(row):
  // called with the image in focus, or null. own: whether cells also show the image's own group.
  constructor({ label, open, size = () => display.size, enterOpens = true, active: told = () => {} }) {
    Object.assign(this, { open, size, enterOpens, told, rows: [], active: 0, own: false, cells: new Map(), name: `grid${made++}`, last: 0 });
    this.sheet = el("div", { class: "sheet" });
    this.node = el("div", {
      class: "grid", tabindex: 0, role: "listbox", "aria-multiselectable": "true", "aria-label": label,
      onkeydown: (event) => this.key(event), onfocus: () => { this.point(); this.tell(); }, onblur: () => this.told(null), onclick: (event) => this.click(event),
      ondblclick: (event) => this.enter(this.at(event)), ondragstart: (event) => this.drag(event),
    }, this.sheet);
    this.later = soon(() => this.render());
    this.node.addEventListener("scroll", this.later, { passive: true });
    new ResizeObserver(() => this.layout()).observe(this.node);
    selection.watch(() => this.paint());
  }

  get row() { return this.rows[this.active]; }

  // The row that keys apply to; null while the focus is elsewhere.
  get focused() { return document.activeElement === this.node ? this.row ?? null : null; }

  // Show these rows. The active image stays active, or its position if the image is gone. calm: images
  // that leave fade, and the others glide into their places.
  show(rows, { top = false, calm = false } = {}) {
    const kept = top ? 0 : rows.indexOf(this.row);
    this.active = kept >= 0 ? kept : Math.min(this.active, Math.max(0, rows.length - 1));
    this.rows = rows;
    if (top) this.node.scrollTop = this.last = 0;
    this.spare = new Map([...this.cells.values()].map((cell) => [cell.row, cell]));
    this.cells.clear();
    this.layout();
    for (const cell of this.spare.values()) if (calm) fade(cell); else discard(cell);
    this.spare = null;
    if (calm) this.glide();
  }

  glide() {
    this.sheet.classList.add("gliding");
    clearTimeout(this.still);
    this.still = setTimeout(() => this.sheet.classList.remove("gliding"), LEAVING);
  }

  layout() {
    const room = this.sheet.clientWidth;
    if (!room) return;
    this.across = Math.max(1, Math.floor((room + GAP) / (Math.min(this.size(this), room) + GAP)));
    this.cell = Math.min(MOST, (room - GAP * (this.across - 1)) / this.across);
    const lines = Math.ceil(this.rows.length / this.across);
    this.sheet.style.height = `${Math.max(0, lines * (this.cell + GAP) - GAP)}px`;
    for (const [index, cell] of this.cells) this.put(cell, index);
    this.render();
  }

  put(cell, index) {
    const [line, column] = [Math.floor(index / this.across), index % this.across];
    const step = this.cell + GAP;
    cell.style.transform = `translate(${column * step}px, ${line * step}px)`;
    cell.style.width = cell.style.height = `${this.cell}px`;
  }

  render() {
    if (!this.across) return;
    const { scrollTop, clientHeight } = this.node;
    if (Math.abs(scrollTop - this.last) > FAST * clientHeight) {
      clearTimeout(this.slow);
      this.slow = setTimeout(this.later, 90);
      this.last = scrollTop;
      return;
    }
    this.last = scrollTop;
    const step = this.cell + GAP;
    // Render one more screen above and below, so that slow scrolling shows no gap.
    const first = Math.max(0, Math.floor((scrollTop - clientHeight) / step)) * this.across;
    const end = Math.min(this.rows.length, Math.ceil((scrollTop + 2 * clientHeight) / step) * this.across);
    for (const [index, cell] of this.cells) {
      if (index >= first && index < end) continue;
      discard(cell);
      this.cells.delete(index);
    }
    for (let index = first; index < end; index++) if (!this.cells.has(index)) this.make(index);
    this.point();
  }

  make(index) {
    const row = this.rows[index];
    const cell = this.reused(row) ?? newCell(row);
    const words = describe(row);
    cell.id = `${this.name}-${index}`;
    cell.title = words;
    cell.setAttribute("aria-label", words);
    cell.setAttribute("aria-setsize", this.rows.length);
    cell.setAttribute("aria-posinset", index + 1);
    cell.setAttribute("aria-selected", String(selection.has(row)));
    cell.classList.toggle("suggested", model.suggested(row));
    cell.lastChild.replaceWith(signs(row, this.own));
    this.put(cell, index);
    this.cells.set(index, cell);
    this.sheet.append(cell);
  }

  // Reuse the existing cell, so that nothing flickers when other images come or go.
  reused(row) {
    const cell = this.spare?.get(row);
    if (!cell || cell.looks !== looks() || cell.querySelector(".gone")) return null;
    this.spare.delete(row);
    return cell;
  }

  paint() {
    for (const [index, cell] of this.cells) cell.setAttribute("aria-selected", String(selection.has(this.rows[index])));
  }

  // The grid keeps the focus and names the active cell (aria-activedescendant), since cells come and go.
  point() {
    this.node.querySelector(".cell.active")?.classList.remove("active");
    const cell = this.cells.get(this.active);
    cell?.classList.add("active");
    if (cell) this.node.setAttribute("aria-activedescendant", cell.id);
    else this.node.removeAttribute("aria-activedescendant");
  }

  tell() { this.told(this.focused); }

  go(index) {
    if (!this.rows.length) return;
    this.active = Math.max(0, Math.min(this.rows.length - 1, index));
    const step = this.cell + GAP;
    const top = Math.floor(this.active / this.across) * step;
    const { scrollTop, clientHeight } = this.node;
    if (top < scrollTop) this.node.scrollTop = top;
    else if (top + this.cell + 12 > scrollTop + clientHeight) this.node.scrollTop = top + this.cell + 12 - clientHeight;
    this.last = this.node.scrollTop;
    this.render();
    // Where the page scrolls and not the grid.
    if (this.node.scrollHeight <= clientHeight) this.cells.get(this.active)?.scrollIntoView({ block: "nearest" });
    this.tell();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / (this.cell + GAP))) * this.across;
    const by = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across, PageUp: -page, PageDown: page,
      Home: -this.rows.length, End: this.rows.length,
    }[event.key];
    if (by !== undefined && !event.altKey) {
      if (event.shiftKey && !selection.size) selection.only(this.row);
      this.go(this.active + by);
      if (event.shiftKey) selection.reach(this.row, this.rows);
    } else if (event.key === " " && this.rows.length) {
      if (event.shiftKey) selection.add(this.line());
      else selection.toggle(this.row);
    } else if (event.key === "Enter" && this.enterOpens) this.enter(this.active);
    else if (event.key.toLowerCase() === "a" && (event.ctrlKey || event.metaKey)) {
      selection.all(this.rows);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // The images beside the active one.
  line() {
    const first = this.active - (this.active % this.across);
    return this.rows.slice(first, first + this.across);
  }

  at(event) {
    const cell = event.target.closest?.(".cell");
    return cell ? this.rows.indexOf(Number(cell.dataset.row)) : -1;
  }

  click(event) {
    const index = this.at(event);
    if (index < 0) return void (event.target === this.node && selection.clear());
    this.active = index;
    this.point();
    this.tell();
    const onTick = event.target.classList.contains("tick");
    const touch = event.pointerType === "touch";
    if (event.shiftKey) selection.reach(this.row, this.rows);
    else if (onTick || event.ctrlKey || event.metaKey || (touch && selection.size)) selection.toggle(this.row);
    else if (touch) this.enter(index);
    else selection.only(this.row);
  }

  enter(index) {
    if (index >= 0 && this.rows.length) this.open?.(this.rows, index);
  }

  drag(event) {
    const index = this.at(event);
    if (index < 0) return;
    if (!selection.has(this.rows[index])) selection.only(this.rows[index]);
    dragged = selection.rows();
    const pill = el("div", { class: "pill" }, count(dragged.length, "image"));
    document.body.append(pill);
    event.dataTransfer.setData("text/plain", `${dragged.length} images`);
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setDragImage(pill, -12, 12);
    setTimeout(() => pill.remove());
  }
}

// The settings by which a picture was drawn.
const looks = () => `${display.heat}/${display.outline}/${tileSource()}`;

function newCell(row) {
  const cell = el("div", { class: "cell", role: "option", draggable: "true", "data-row": row },
    el("span", { class: "square" }, picture(row)), el("span", { class: "tick" }), el("span"));
  return Object.assign(cell, { row, looks: looks() });
}

function discard(cell) {
  release(cell);
  cell.remove();
}

// The cell is no image of the grid any more, and disappears slowly enough to be seen.
function fade(cell) {
  cell.removeAttribute("role");
  cell.removeAttribute("id");
  cell.setAttribute("aria-hidden", "true");
  cell.classList.add("leaving");
  setTimeout(() => discard(cell), LEAVING);
}

// The largest size at which all images of a grid are in view at once, or `least`.
export function fitting(grid, least = 120) {
  const style = getComputedStyle(grid.node);
  const tall = grid.node.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
  for (let across = 1; across <= grid.rows.length; across++) {
    const size = Math.min(MOST, (grid.sheet.clientWidth - GAP * (across - 1)) / across);
    if (size < least) break;
    // Half a pixel less, so that rounding cannot wrap the last image of a line.
    if (Math.ceil(grid.rows.length / across) * (size + GAP) <= tall + GAP) return size - 0.5;
  }
  return least;
}

function describe(row) {
  const parts = [model.run.names[row], model.kinds(row).map(model.title).join(" and "), `anomaly score ${figure(model.run.scores[row])}`];
  parts.splice(2, 0, standing(row));
  if (model.borderline[row]) parts.push("borderline");
  if (model.note(row)) parts.push(`note: ${model.note(row)}`);
  return parts.join(" · ");
}

// Small signs on a picture: its other kinds (or all of them, where several groups are shown), a tick if
// it is decided, a pen if it has a note, and how sure the model is if it is suggested.
function signs(row, own) {
  const kinds = model.kinds(row).slice(own ? 0 : 1);
  const marks = kinds.length ? el("span", { class: "sign kinds" }, own ? null : "+", kinds.map(mark)) : null;
  const sureness = model.sureness(row);
  const sure = model.decided[row] ? el("span", { class: "sign sure" }, "✓") : sureness === null ? null : el("span", { class: "sign maybe" }, `${sureness}%`);
  const noted = model.note(row) ? el("span", { class: "sign noted" }, "✎") : null;
  return el("span", { class: "signs", "aria-hidden": "true" }, marks, noted, sure);
}
