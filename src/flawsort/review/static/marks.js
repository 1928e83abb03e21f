// A colour and a shape for each group: eight colours told apart with any colour vision, times seven
// shapes. They follow the group's id, so that a group looks the same whatever becomes of the others.

import { el, svg } from "./dom.js";

const PALETTE = ["#0072b2", "#e08214", "#009e73", "#c65c9c", "#56b4e9", "#b2400b", "#9a8c00", "#7b6bb5"];
const SHAPES = [
  "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z",
  "M-.9 -.9H.9V.9H-.9Z",
  "M0 -1.15L1.1 .85H-1.1Z",
  "M0 -1.25L1.1 0L0 1.25L-1.1 0Z",
  "M-.4 -1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
  "M0 1.15L1.1 -.85H-1.1Z",
  "M-.6 -1H.6L1.2 0L.6 1H-.6L-1.2 0Z",
];

const place = (id, list) => list[((id % list.length) + list.length) % list.length];
export const colourOf = (id) => place(id, PALETTE);
export const shapeOf = (id) => place(id, SHAPES);

export function mark(id) {
  const path = svg("path", { d: shapeOf(id), fill: colourOf(id) });
  return svg("svg", { class: "mark", viewBox: "-1.4 -1.4 2.8 2.8", "aria-hidden": "true" }, path);
}

export const named = (group) => el("span", { class: "with-mark" }, mark(group.id), el("span", { class: "clip" }, group.title));
