// Display settings: heat, its opacity, heat as an outline, tiles of the flaw, thumbnail size, order of the groups. The
// browser stores them.

import { button, el } from "./dom.js";

const PLACE = "flawsort-display";
const FIRST = { heat: true, opacity: 70, outline: false, flaw: false, size: 136, groups: "named" };

function remembered() {
  try {
    return { ...FIRST, ...JSON.parse(localStorage.getItem(PLACE)) };
  } catch {
    return { ...FIRST };
  }
}

export const display = remembered();
const listeners = new Set();
export const onDisplay = (listener) => listeners.add(listener);

function apply() {
  document.documentElement.style.setProperty("--opacity", display.opacity / 100);
  try {
    localStorage.setItem(PLACE, JSON.stringify(display));
  } catch {
    // The settings still apply if the browser stores nothing.
  }
}

export function setDisplay(key, value) {
  display[key] = value;
  apply();
  // Opacity is CSS only; every other setting redraws the pictures.
  for (const listener of listeners) listener(key);
}

export function heatControl() {
  const box = el("input", { type: "checkbox", onchange: () => setDisplay("heat", box.checked) });
  box.checked = display.heat;
  const slider = el("input", { type: "range", min: 10, max: 100, step: 5, "aria-label": "Opacity of the heat maps" });
  slider.value = display.opacity;
  slider.addEventListener("input", () => setDisplay("opacity", Number(slider.value)));
  const outline = button("Outline", toggleOutline, { title: "Draw a line around hot places, so that what is under the heat can be seen (E)", "aria-pressed": String(display.outline) });
  onDisplay((key) => {
    if (key === "heat") box.checked = display.heat;
    if (key === "opacity") slider.value = display.opacity;
    if (key === "outline") outline.setAttribute("aria-pressed", String(display.outline));
  });
  const ramp = el("span", { class: "ramp", title: "How unusual each spot is, on one scale for all images. Normal spots have no colour." });
  return el("div", { class: "control heat" }, el("label", { class: "switch" }, box, "Heat maps"), slider, ramp, outline);
}

// What tiles show: the whole part, or its most unusual place.
export function tilesControl() {
  const choices = [[false, "Whole"], [true, "Flaw"]].map(([flaw, words]) =>
    button(words, () => setDisplay("flaw", flaw), { title: flaw ? "Tiles show the most unusual place of each image (V)" : "Tiles show whole images (V)" }));
  const press = () => choices.forEach((one, at) => one.setAttribute("aria-pressed", String(display.flaw === Boolean(at))));
  onDisplay((key) => { if (key === "flaw") press(); });
  press();
  return el("div", { class: "segments", role: "group", "aria-label": "What tiles show" }, choices);
}

export function sizeControl() {
  const slider = el("input", { type: "range", min: 72, max: 320, step: 8, oninput: () => setDisplay("size", Number(slider.value)) });
  slider.value = display.size;
  return el("label", { class: "control size" }, "Size", slider);
}

export const toggleHeat = () => setDisplay("heat", !display.heat);
export const toggleTiles = () => setDisplay("flaw", !display.flaw);

// An outline that nobody sees is no outline: it switches the heat on, too.
export function toggleOutline() {
  const on = !(display.heat && display.outline);
  if (on && !display.heat) setDisplay("heat", true);
  setDisplay("outline", on);
}

apply();
