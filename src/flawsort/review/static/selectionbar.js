// The actions for the selected images, at the bottom of the page while any are selected.

import { actions, focus } from "./actions.js";
import { button, count, el, number } from "./dom.js";
import { say } from "./messages.js";
import { selection } from "./selection.js";

// {node, draw()}: draw it after what the page shows has changed.
export function selectionBar() {
  const words = el("strong");
  const node = el("div", { class: "selection", role: "toolbar", "aria-label": "Selected images", hidden: true },
    words, el("div", { class: "row" },
      button("Accept", () => actions.accept(), { key: "A", css: "primary" }),
      button("Not this", () => actions.reject(), { key: "X" }),
      button("Move…", () => actions.pick(), { key: "M" }),
      button("Normal", () => actions.moveTo("normal"), { key: "N" }),
      button("Unsure", () => actions.moveTo("unsure"), { key: "U" }),
      button("New group…", () => actions.split(), { key: "S" }),
      button("Several kinds…", () => actions.several(), { key: "K" }),
      button("Clear", () => selection.clear(), { key: "Esc", css: "quiet" })));
  const draw = () => {
    node.hidden = !selection.size;
    const hidden = selection.rows().filter((row) => !focus.shown(row)).length;
    words.textContent = `${count(selection.size, "image")} selected${hidden ? `, ${hidden === selection.size ? "" : `${number(hidden)} of them `}not shown here` : ""}`;
  };
  selection.watch(() => {
    draw();
    if (selection.size) say(words.textContent);
  });
  return { node, draw };
}
