// Pictures with their heat, and frames around their regions.

import { el } from "./dom.js";
import { display } from "./display.js";
import { regionFrame } from "./marks.js";
import { model, regionGroup } from "./model.js";
import { outlineOf } from "./outline.js";

const REDUCED = 1600; // as in review/pictures.py

// The run's fingerprint in the address lets the browser cache the picture for ever.
export const address = (kind, row, ending) => `${kind}/${row}.${ending}?v=${encodeURIComponent(model.run.fingerprint)}`;

// Heat must cover the picture exactly; its aspect ratio is known once it has loaded.
function fit(inner, image) {
  const aspect = image.naturalWidth / image.naturalHeight || 1;
  inner.style.setProperty("--aspect", aspect);
  inner.style.setProperty("--wide", `${100 * Math.min(1, aspect)}%`);
  inner.style.setProperty("--high", `${100 * Math.min(1, 1 / aspect)}%`);
  inner.classList.add("here");
}

// What tiles show: the most unusual place where there is one, and where that is wanted.
export const tileSource = () => (display.flaw && model.run.places ? "flaw" : "thumb");

// source: "thumb" or "image" for the whole, "flaw" for its most unusual place. heat: whether to draw heat over it.
// Both follow the display settings by default.
export function picture(row, { source = tileSource(), heat = display.heat } = {}) {
  const image = el("img", { alt: "", decoding: "async", draggable: "false" });
  const inner = el("span", { class: "picture" }, image);
  image.addEventListener("load", () => fit(inner, image));
  image.addEventListener("error", () => {
    if (!image.hasAttribute("src")) return;
    // The file is gone, or shows nothing unusual: the whole image may still be there.
    if (source === "flaw") inner.replaceWith(picture(row, { source: "thumb", heat }));
    else inner.classList.add("gone");
  });
  image.src = address(source, row, "jpg");
  if (heat) inner.append(glow(row, source));
  return inner;
}

// The heat over a picture, as colours or as an outline.
export function glow(row, source = "thumb") {
  const image = el("img", { class: "glow", alt: "", draggable: "false", decoding: "async" });
  if (display.outline) image.addEventListener("load", () => image.isConnected && image.replaceWith(outlineOf(image)), { once: true });
  image.src = address(source === "flaw" ? "flaw-heat" : "heat", row, "png");
  return image;
}

// Lays the pixels of the file over a reduced image, once; done(width, height) is called with its size. A reduced image
// is 1,600 pixels long: a smaller one has all pixels already.
export function sharpen(shown, row, done) {
  const reduced = shown.querySelector("img");
  if (shown.dataset.sharp || Math.max(reduced.naturalWidth, reduced.naturalHeight) < REDUCED) return;
  shown.dataset.sharp = "asked";
  const image = el("img", { alt: "", draggable: "false" });
  image.addEventListener("load", () => {
    if (!shown.isConnected) return;
    reduced.after(image);
    shown.dataset.sharp = "there";
    done(image.naturalWidth, image.naturalHeight);
  });
  image.src = address("full", row, "jpg");
}

// Stop loading pictures that are out of view, so that those in view load first.
export function release(node) {
  for (const image of node.querySelectorAll("img")) image.removeAttribute("src");
}

export const square = (row, options) => el("span", { class: "square" }, picture(row, options));

// A frame around each region of an image.
export function frames(row) {
  return (model.regionsOf.get(row) ?? []).map((region) => {
    const id = regionGroup(region);
    return regionFrame(model.run.regions.box.slice(4 * region, 4 * region + 4), id, model.title(id));
  });
}
