// A modal dialog with a title.

import { button, el } from "./dom.js";

// {node, heading, done, open}. `open()` resolves to the answer that `done(answer)` closes it with; to null on Escape or
// a click outside.
export function modal(title, css = "") {
  let answer = null;
  let settle;
  const promise = new Promise((resolve) => { settle = resolve; });
  const heading = el("h2", {}, title);
  const node = el("dialog", { class: css || null, "aria-label": title });
  const done = (value) => { answer = value; node.close(); };
  node.append(el("div", { class: "box-head" }, heading, button("×", () => done(null), { css: "close", "aria-label": "Close" })));
  // A drag that starts inside (to select text, say) and ends outside must not close the dialog.
  let pressed = null;
  node.addEventListener("pointerdown", (event) => { pressed = event.target; });
  node.addEventListener("click", (event) => { if (event.target === node && pressed === node) done(null); });
  node.addEventListener("close", () => { node.remove(); settle(answer); });
  document.body.append(node);
  return { node, heading, done, open() { node.showModal(); return promise; } };
}
