// Beside an image: its most unusual place, the place that matches it best, and the difference.

import { api } from "./api.js";
import { differenceOf } from "./difference.js";
import { el } from "./dom.js";
import { reading } from "./editing.js";
import { model } from "./model.js";
import { address } from "./pictures.js";

export class Beside {
  constructor() {
    this.pictures = el("div", { class: "compared-places" });
    this.words = el("p", { class: "hint clip" });
    this.node = el("section", { class: "beside-place", "aria-label": "The most unusual place" }, el("h3", {}, "The most unusual place"), this.pictures, this.words);
  }

  async show(row) {
    this.row = row;
    this.node.hidden = !model.run.places;
    if (this.node.hidden) return;
    this.pictures.replaceChildren();
    this.words.textContent = "";
    const [place, here] = await Promise.all([reading(api.place(row)), loaded("close", row)]);
    const there = place?.match && here ? await loaded("match", row) : null;
    if (row !== this.row) return;
    const good = model.run.mode === "with normals" ? "known-good image" : "other image";
    const shown = (node, words) => el("figure", {}, el("span", { class: "square" }, node), el("figcaption", {}, words));
    this.pictures.replaceChildren(...(here ? [shown(here, "Here")] : []), ...(there ? [shown(there, `Best matching ${good}`), shown(differenceOf(here, there), "Difference")] : []));
    this.words.textContent = there ? `From: ${place.match}` : here ? `There is no picture of the best matching ${good}.` : "The file cannot be read.";
    this.words.title = this.words.textContent;
  }
}

// A loaded picture of an image, or null if there is none.
function loaded(kind, row) {
  return new Promise((done) => {
    const image = el("img", { alt: "", draggable: "false" });
    image.addEventListener("load", () => done(image));
    image.addEventListener("error", () => done(null));
    image.src = address(kind, row, "jpg");
  });
}
