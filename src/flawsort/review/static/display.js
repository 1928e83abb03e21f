// Display settings: heat, its opacity, thumbnail size and order. The browser stores them.

import { el } from "./dom.js";
import { ORDERS } from "./model.js";

const PLACE = "flawsort-display";
const FIRST = { heat: true, opacity: 70, size: 136, order: "typical" };

function remembered() {
  try {
    const kept = { ...FIRST, ...JSON.parse(localStorage.getItem(PLACE)) };
    return kept.order in ORDERS ? kept : FIRST;
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

function set(key, value) {
  display[key] = value;
  apply();
  // Opacity is CSS only; every other setting redraws the pictures.
  for (const listener of listeners) listener(key);
}

export function heatControl() {
  const box = el("input", { type: "checkbox", onchange: () => set("heat", box.checked) });
  box.checked = display.heat;
  const slider = el("input", { type: "range", min: 10, max: 100, step: 5, "aria-label": "Opacity of the heat maps" });
  slider.value = display.opacity;
  slider.addEventListener("input", () => set("opacity", Number(slider.value)));
  onDisplay((key) => { if (key === "heat") box.checked = display.heat; if (key === "opacity") slider.value = display.opacity; });
  const ramp = el("span", { class: "ramp", title: "How unusual each spot is, on one scale for all images. Normal spots have no colour." });
  return el("div", { class: "control heat" }, el("label", { class: "switch" }, box, "Heat maps"), slider, ramp);
}

export function sizeControl() {
  const slider = el("input", { type: "range", min: 72, max: 320, step: 8, oninput: () => set("size", Number(slider.value)) });
  slider.value = display.size;
  return el("label", { class: "control size" }, "Size", slider);
}

export function orderControl() {
  const choices = Object.entries(ORDERS).map(([key, { words }]) => el("option", { value: key }, words));
  const select = el("select", { "aria-label": "Order of the images", onchange: () => set("order", select.value) }, choices);
  select.value = display.order;
  return select;
}

export const toggleHeat = () => set("heat", !display.heat);

apply();
