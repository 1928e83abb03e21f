// The actions for the selected images, at the bottom of the page while any are selected.

import { actions } from "./actions.js";
import { button, count, el } from "./dom.js";
import { say } from "./messages.js";
import { selection } from "./selection.js";

export function selectionBar() {
  const words = el("strong");
  const node = el("div", { class: "selection", role: "toolbar", "aria-label": "Selected images", hidden: true },
    words,
    button("Move…", () => actions.pick(), { key: "M", css: "primary" }),
    button("Normal", () => actions.moveTo("normal"), { key: "N" }),
    button("Unsure", () => actions.moveTo("unsure"), { key: "U" }),
    button("New group…", () => actions.split(), { key: "S" }),
    button("Several kinds…", () => actions.several(), { key: "K" }),
    button("Accept", () => actions.accept(), { key: "A" }),
    button("Clear", () => selection.clear(), { key: "Esc", css: "quiet" }));
  selection.watch(() => {
    node.hidden = !selection.size;
    words.textContent = `${count(selection.size, "image")} selected`;
    if (selection.size) say(words.textContent);
  });
  return node;
}
