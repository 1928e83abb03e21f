// One image in a large view: zoom, heat, regions, the best matching place, facts, similar images and actions.

import { actions, focus } from "./actions.js";
import { api } from "./api.js";
import { Beside } from "./beside.js";
import { display, heatControl, onDisplay } from "./display.js";
import { button, el, figure, number } from "./dom.js";
import { reading } from "./editing.js";
import { named } from "./marks.js";
import { modal } from "./modal.js";
import { model, mostTypical, standing } from "./model.js";
import { frames, glow, picture, sharpen, square } from "./pictures.js";
import { noteOf } from "./remarks.js";
import { Zoom } from "./zoom.js";

const SIMILAR = 12;
let view = null;

export function openImage(list, index) {
  if (view) return view.show(list, index);
  view = new ImageView();
  view.show(list, index);
  const closed = view.box.open().then(() => { view = null; focus.opened = focus.decided = null; });
  // Focus the image, not the close button.
  view?.stage.focus();
  return closed;
}

class ImageView {
  constructor() {
    this.box = modal("", "image-view");
    this.stage = el("div", { class: "stage", tabindex: -1 });
    this.facts = el("dl", { class: "facts" });
    this.alike = el("div", { class: "alike" });
    this.beside = new Beside();
    this.zoom = new Zoom(this.stage, { changed: () => this.sharpen() });
    this.flaw = button("Flaw", () => this.toFlaw(), { key: "Z", title: "Zoom to the most unusual place; again for the whole image" });
    this.place = el("span", { class: "soft number" });
    this.prev = button("← Previous", () => this.step(-1));
    this.next = button("Next →", () => this.step(1));
    this.outlines = el("input", { type: "checkbox", checked: true, onchange: () => this.drawPicture() });
    this.box.node.append(el("div", { class: "view-body" },
      el("div", { class: "view-left" }, this.stage,
        el("div", { class: "bar" }, this.zoom.tools, this.flaw, this.zoom.words, heatControl(), el("label", { class: "switch" }, this.outlines, "Regions"))),
      el("div", { class: "view-right" }, this.facts, tools(), this.beside.node, el("h3", {}, "Most similar"), this.alike)),
    el("div", { class: "box-foot" }, this.prev, this.place, this.next));
    this.box.node.addEventListener("keydown", (event) => this.key(event));
    onDisplay((key) => { if (view === this && key !== "opacity") this.drawAgain(key); });
  }

  get row() { return this.list[this.at]; }

  show(list, at) {
    Object.assign(this, { list, at });
    focus.opened = this.row;
    focus.decided = () => this.step(1);
    const name = model.run.names[this.row];
    this.box.heading.textContent = this.box.heading.title = name;
    this.box.node.setAttribute("aria-label", name);
    this.place.textContent = `${number(at + 1)} of ${number(list.length)}`;
    this.prev.disabled = at === 0;
    this.next.disabled = at === list.length - 1;
    this.drawPicture();
    this.draw();
    this.drawAlike();
    this.flaw.disabled = !model.run.places;
    this.beside.show(this.row);
    if (this.zoom.followed) this.follow();
  }

  // Redraw what an edit may have changed.
  draw() {
    this.facts.replaceChildren(...factsOf(this.row).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
    this.drawFrames();
  }

  // A setting has changed: of tiles, or of everything.
  drawAgain(key) {
    if (key !== "flaw") this.drawPicture();
    this.drawAlike();
  }

  drawPicture() {
    const shown = picture(this.row, { source: "image", heat: false });
    const image = shown.querySelector("img");
    image.addEventListener("load", () => { if (shown.isConnected) this.zoom.measure(image.naturalWidth / image.naturalHeight, image.naturalWidth); });
    if (display.heat) shown.append(glow(this.row));
    this.stage.replaceChildren(shown);
    this.zoom.place();
    this.drawFrames();
  }

  // The pixels of the file, as soon as the reduced image has too few.
  sharpen() {
    const shown = this.stage.querySelector(".picture.here");
    if (shown && this.zoom.scale * devicePixelRatio > 1) sharpen(shown, this.row, (wide, high) => this.zoom.measure(wide / high, wide));
  }

  // What is beside it is cut around the flaw; so is the zoom.
  async toFlaw() {
    if (!this.zoom.whole) return this.zoom.all();
    const { row } = this;
    const found = await reading(api.place(row));
    if (found && row === this.row) this.zoom.to(found.box);
    return undefined;
  }

  // The flaw was in view: show that of this image, unless one has moved in the meantime.
  async follow() {
    const { row } = this;
    const found = await reading(api.place(row));
    if (found && row === this.row && this.zoom.followed) this.zoom.to(found.box);
  }

  drawFrames() {
    this.stage.querySelectorAll(".region").forEach((node) => node.remove());
    if (this.outlines.checked) this.stage.querySelector(".picture").append(...frames(this.row));
  }

  async drawAlike() {
    const { row } = this;
    this.alike.replaceChildren();
    const found = await reading(api.similar(row, SIMILAR));
    if (!found || row !== this.row) return;
    const rows = found.map((one) => one.row);
    this.alike.replaceChildren(...rows.map((one, index) => {
      const words = `${model.run.names[one]} · ${model.title(model.groupOf(one))}`;
      return el("button", { type: "button", class: "thumb", title: words, "aria-label": words, onclick: () => this.show(rows, index) },
        square(one), named(model.group(model.groupOf(one))));
    }));
  }

  step(by) {
    const at = this.at + by;
    if (at < 0 || at >= this.list.length) return;
    this.show(this.list, at);
    // A button that has just been disabled loses the focus.
    if (document.activeElement === document.body || document.activeElement?.disabled) this.stage.focus();
  }

  key(event) {
    if (event.target.matches("input[type=range]")) return;
    const zooms = !event.ctrlKey && !event.metaKey && !event.altKey && event.key.toLowerCase() === "z" ? this.toFlaw() : this.zoom.key(event);
    if (zooms) return void event.preventDefault();
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    this.step(by);
  }
}

function tools() {
  return el("div", { class: "row tools" },
    button("Accept", () => actions.accept(), { key: "A", css: "primary", title: "Accept it where it is; the next image comes" }),
    button("Not this", () => actions.reject(), { key: "X" }),
    button("Move…", () => actions.pick(), { key: "M" }),
    button("Normal", () => actions.moveTo("normal"), { key: "N" }),
    button("Unsure", () => actions.moveTo("unsure"), { key: "U" }),
    button("Several kinds…", () => actions.several(), { key: "K" }),
    button("Note…", () => actions.note(), { key: "T" }));
}

function factsOf(row) {
  const { run } = model;
  const others = model.kinds(row).slice(1);
  const next = model.nextTo(row);
  const facts = [["Group", named(model.group(model.groupOf(row)))]];
  if (others.length) facts.push(["Also shows", el("span", { class: "several" }, others.map((id) => named(model.group(id))))]);
  facts.push(["How it is known", model.decided[row] ? "decided ✓" : standing(row)]);
  if (next !== null) facts.push(["Next nearest group", named(model.group(next))]);
  const alike = mostTypical(model.members.get(model.groupOf(row)));
  facts.push(["Anomaly score", figure(run.scores[row])], ["Rank in its group", `${number(alike.indexOf(row) + 1)} of ${number(alike.length)}, most typical first`]);
  if (model.note(row)) facts.push(["Note", noteOf(model.note(row))]);
  if (run.flags[row]) facts.push(["Flags", run.flags[row].split(";").join(", ")]);
  return facts;
}

model.watch(() => view?.draw());
