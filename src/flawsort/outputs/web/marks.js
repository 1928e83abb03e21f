// A colour and a shape for each group: eight colours that stay distinct with any colour vision, times seven
// shapes. They depend on the group's id only, so a group looks the same whatever happens to the others.

import { el, svg } from "./dom.js";
import { COLOURS, NO_GROUP, SHAPES } from "./palette.js";

const place = (id, list) => list[((id % list.length) + list.length) % list.length];
export const colourOf = (id) => (id < 0 ? NO_GROUP : place(id, COLOURS));
export const shapeOf = (id) => place(id, SHAPES);

export function mark(id) {
  const path = svg("path", { d: shapeOf(id), fill: colourOf(id) });
  return svg("svg", { class: "mark", viewBox: "-1.4 -1.4 2.8 2.8", "aria-hidden": "true" }, path);
}

export const named = (group) => el("span", { class: "with-mark" }, mark(group.id), el("span", { class: "clip" }, group.title));

// A frame around a region, with the mark and title of the group that it resembles. box: left, top,
// right and bottom in thousandths of the picture. id: of that group, or -1.
export function regionFrame(box, id, title) {
  const [left, top, right, bottom] = box.map((value) => value / 10);
  const like = id >= 0;
  const name = el("span", { class: "region-name" }, like ? mark(id) : null, el("span", { class: "clip" }, like ? title : "like no group"));
  const css = { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%`, "--group": like ? colourOf(id) : "#ffffff" };
  // Near the top there is no room above the frame.
  return el("span", { class: `region${like ? "" : " unlike"}${top < 8 ? " low" : ""}`, css }, name);
}
