// Pictures with their heat, and frames around their regions.

import { el } from "./dom.js";
import { display } from "./display.js";
import { regionFrame } from "./marks.js";
import { model, regionGroup } from "./model.js";

// The run's fingerprint in the address lets the browser cache the picture for ever.
const address = (kind, row, ending) => `${kind}/${row}.${ending}?v=${encodeURIComponent(model.run.fingerprint)}`;

// Heat must cover the picture exactly; its aspect ratio is known once it has loaded.
function fit(inner, image) {
  const aspect = image.naturalWidth / image.naturalHeight || 1;
  inner.style.setProperty("--aspect", aspect);
  inner.style.setProperty("--wide", `${100 * Math.min(1, aspect)}%`);
  inner.style.setProperty("--high", `${100 * Math.min(1, 1 / aspect)}%`);
  inner.classList.add("here");
}

// source: "thumb" or "image". heat: whether to draw heat over it; follows the display setting by default.
export function picture(row, { source = "thumb", heat = display.heat } = {}) {
  const image = el("img", { alt: "", decoding: "async", draggable: "false" });
  const inner = el("span", { class: "picture" }, image);
  image.addEventListener("load", () => fit(inner, image));
  image.addEventListener("error", () => inner.classList.add("gone"));
  image.src = address(source, row, "jpg");
  if (heat) inner.append(glow(row));
  return inner;
}

export const glow = (row) => el("img", { class: "glow", src: address("heat", row, "png"), alt: "", draggable: "false", decoding: "async" });

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
