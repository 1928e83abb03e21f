// The map page: pan, zoom, and a lasso that catches images.

import { Caught } from "./caught.js";
import { onDisplay } from "./display.js";
import { $, button, el, figure, placeTip } from "./dom.js";
import { FilterBar } from "./filterbar.js";
import { openImage } from "./imageview.js";
import { MapView } from "./map.js";
import { named } from "./marks.js";
import { announce, say } from "./messages.js";
import { model, mostTypical } from "./model.js";
import { square } from "./pictures.js";
import { query } from "./query.js";
import { selection } from "./selection.js";

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const CLICK = 5; // pixels: a shorter drag is a click
const ROOM = { pad: 26, foot: 62 }; // the selection bar covers the bottom
const narrow = matchMedia("(max-width: 820px)");
const LABEL = "Map of all images: those that look alike lie near each other. Arrow keys go from image to image, Space selects, Enter opens, C catches the images around it.";
const CIRCLE = { first: 30, step: 1.5, corners: 32 }; // the radius in pixels, and how it grows

const SCENE = {
  get n() { return model.run.n; },
  get layout() { return model.layout; },
  groups: () => model.groups.map(({ id, title }) => ({ id, title, rows: model.members.get(id) })),
  groupOf: model.groupOf,
  ringed: selection.rows,
};

export class MapPage {
  static place = "map";
  static title = "Map";
  static rail = true;
  static filters = true;
  static keys = [
    ["← ↑ → ↓", "go to the next image in that direction"], ["Space, Enter", "select, open"], ["C", "catch the images around it; again for a larger circle"],
    ["+  −", "zoom"], ["L, P", "lasso, pan"], ["F", "show all"],
  ];

  constructor(shell) {
    this.shell = shell;
    this.canvas = el("canvas", { class: "map", tabindex: 0, role: "img", "aria-label": LABEL });
    this.view = new MapView(this.canvas, SCENE, ROOM);
    this.later = this.view.later;
    this.tools = { lasso: button("Lasso", () => this.use("lasso"), { key: "L" }), pan: button("Pan", () => this.use("pan"), { key: "P" }) };
    this.caught = new Caught({ point: (row) => this.light(row), changed: () => this.draw() });
    this.filters = new FilterBar(query, { rows: () => this.all(), skip: () => (this.view.group === null ? [] : ["group"]) });
    const bar = el("div", { class: "bar" },
      el("div", { class: "segments", role: "group", "aria-label": "What dragging does" }, this.tools.lasso, this.tools.pan),
      button("−", () => this.view.zoomBy(1 / 1.5), { css: "step", "aria-label": "Zoom out" }),
      button("+", () => this.view.zoomBy(1.5), { css: "step", "aria-label": "Zoom in" }),
      button("Show all", () => this.view.fit(), { key: "F" }), this.filters.tools,
      el("p", { class: "hint" }, "The mouse wheel zooms. Click a group in the list to show only that group."));
    this.node = el("section", { class: "page map-page", "aria-label": "Map" }, bar, this.filters.foot, el("div", { class: "map-body" }, this.canvas, this.caught.node));
    onDisplay((key) => { if (key !== "opacity") this.draw(); });
    this.use("lasso");
    this.listen();
  }

  group() { return this.view.group; }
  row() { return this.caught.grid.focused ?? (this.view.at >= 0 && document.activeElement === this.canvas ? this.view.at : null); }
  listed() { return this.view.group ?? "all"; }
  parts() { return this.view.group === null ? [] : [this.view.group]; }
  focus() { this.canvas.focus(); }
  shows(row) { return !this.view.faded(row); }

  open([id]) { this.view.group = model.group(Number(id)) && id !== "" ? Number(id) : null; }

  // Show one group only, or all groups.
  choose(id) { this.shell.go(MapPage.place, id === "all" || id === this.view.group ? [] : [id]); }

  // All images of the group shown, without the filters.
  all() { return this.view.group === null ? model.state.labels.map((_, row) => row) : model.members.get(this.view.group); }

  draw() {
    if (this.node.hidden) return;
    if (this.view.group !== null && !model.group(this.view.group)) this.view.group = null;
    const all = this.all();
    const rows = query.rows(all);
    this.view.matches = query.filters ? new Set(rows) : null;
    this.filters.draw(rows.length, all.length);
    this.caught.draw();
    // On a phone the selection bar covers what was caught, below the map.
    this.view.foot = narrow.matches && this.caught.rows.length ? 0 : ROOM.foot;
    this.view.draw();
  }

  use(tool) {
    this.tool = tool;
    for (const [name, node] of Object.entries(this.tools)) node.setAttribute("aria-pressed", String(name === tool));
    this.canvas.classList.toggle("pan", tool === "pan");
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => (this.from ? this.pull(event) : this.hover(event)));
    canvas.addEventListener("pointerup", (event) => this.let(event));
    canvas.addEventListener("pointercancel", () => { this.from = this.view.lasso = null; this.later(); });
    canvas.addEventListener("pointerleave", () => this.point(-1));
    canvas.addEventListener("blur", () => this.point(-1));
    canvas.addEventListener("dblclick", (event) => this.look(this.view.nearest(...this.spot(event))));
    canvas.addEventListener("keydown", (event) => this.onCanvas(event));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.point(-1);
      this.view.zoomBy(Math.exp(-event.deltaY / 400), ...this.spot(event));
    }, { passive: false });
    selection.watch(this.later);
  }

  spot(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  press(event) {
    if (event.button > 1) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.point(-1);
    this.from = this.spot(event);
    this.panning = this.tool === "pan" || event.button === 1;
    this.moved = 0;
    if (!this.panning) this.view.lasso = [this.from];
  }

  pull(event) {
    const to = this.spot(event);
    const [dx, dy] = [to[0] - this.from[0], to[1] - this.from[1]];
    this.moved += Math.hypot(dx, dy);
    this.from = to;
    if (this.panning) return this.view.pan(dx, dy);
    this.view.lasso.push(to);
    return this.later();
  }

  let(event) {
    if (!this.from) return;
    const drawn = this.view.lasso;
    this.from = this.view.lasso = null;
    this.later();
    const more = event.shiftKey || event.ctrlKey || event.metaKey;
    if (this.moved < CLICK) return this.click(this.view.nearest(...this.spot(event)), more, event.pointerType === "touch");
    if (!drawn) return;
    this.catch(drawn, more);
  }

  // Catch and select what lies inside a polygon, as far as it is shown. more: besides what was caught before.
  catch(polygon, more = false) {
    const rows = this.view.inside(polygon).filter((row) => !this.view.faded(row));
    this.caught.show(more ? [...new Set([...this.caught.rows, ...rows])] : rows);
    if (more) selection.add(rows);
    else selection.all(rows);
  }

  // A lasso without a mouse: a circle around the image in focus, larger each time.
  circle() {
    const { at } = this.view;
    if (at < 0 || document.activeElement !== this.canvas) return announce("Go to an image on the map first, with the arrow keys.");
    this.radius = this.centre === at ? this.radius * CIRCLE.step : CIRCLE.first;
    this.centre = at;
    const [x, y] = this.view.place(at);
    const polygon = Array.from({ length: CIRCLE.corners }, (_, i) => {
      const angle = (2 * Math.PI * i) / CIRCLE.corners;
      return [x + this.radius * Math.cos(angle), y + this.radius * Math.sin(angle)];
    });
    this.catch(polygon);
    this.view.lasso = polygon; // until the next move
    return this.later();
  }

  // Mark the image that is in focus in the grid beside the map.
  light(row) {
    this.view.at = row;
    this.later();
  }

  click(row, more, touch) {
    if (row < 0) return more ? undefined : selection.clear();
    this.view.at = row;
    if (more) return selection.toggle(row);
    return touch ? this.look(row) : selection.only(row);
  }

  hover(event) {
    if (event.pointerType !== "touch") this.point(this.view.nearest(...this.spot(event)));
  }

  look(row) {
    if (row < 0) return;
    this.point(-1);
    const rows = mostTypical(model.members.get(model.groupOf(row)));
    openImage(rows, rows.indexOf(row));
  }

  // Mark an image and show its tooltip; -1 for none.
  point(row) {
    if (row === this.view.at) return;
    this.view.at = row;
    if (!this.from) this.view.lasso = this.centre = null;
    this.later();
    const tip = $("tip");
    tip.hidden = row < 0;
    if (row < 0) return;
    tip.replaceChildren(square(row), el("span", { class: "tip-words" }, el("span", { class: "clip strong" }, model.run.names[row]),
      named(model.group(model.groupOf(row))), `anomaly score ${figure(model.run.scores[row])}`));
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = this.view.place(row).map((value, axis) => value + (axis ? box.top : box.left));
    placeTip(tip, x, y);
  }

  onCanvas(event) {
    const arrow = ARROWS[event.key];
    const { at } = this.view;
    if (arrow) this.stepTo(at < 0 ? this.view.middle(model.members.get(model.groups.find((group) => group.n).id)) : this.view.beyond(at, ...arrow));
    else if (event.key === " " && at >= 0) selection.toggle(at);
    else if (event.key === "Enter" && at >= 0) this.look(at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  stepTo(row) {
    this.point(row);
    say(`${model.run.names[row]}, ${model.title(model.groupOf(row))}`);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const act = {
      "+": () => this.view.zoomBy(1.5), "=": () => this.view.zoomBy(1.5), "-": () => this.view.zoomBy(1 / 1.5),
      c: () => this.circle(), f: () => this.view.fit(), l: () => this.use("lasso"), p: () => this.use("pan"),
    }[event.key.toLowerCase()];
    if (!act) return this.filters.key(event);
    act();
    return true;
  }
}
