// Messages about what happened, on the screen and for screen readers.

import { $, button, el } from "./dom.js";

const SHOWN = 6000; // milliseconds
let quiet = null;

const hideLater = () => {
  clearTimeout(quiet);
  quiet = setTimeout(() => { $("toast").hidden = true; }, SHOWN);
};

// A message stays as long as somebody is at it, to press its button.
for (const [begin, end] of [["pointerenter", "pointerleave"], ["focusin", "focusout"]]) {
  $("toast").addEventListener(begin, () => clearTimeout(quiet));
  $("toast").addEventListener(end, hideLater);
}

// Have a screen reader read a text.
export function say(text) {
  $("live").textContent = "";
  // A live region does not read the same text twice unless it is cleared first.
  setTimeout(() => { $("live").textContent = text; }, 30);
}

// Show a message for a few seconds, and have it read.
export function announce(text, { undo } = {}) {
  const toast = $("toast");
  say(text);
  toast.replaceChildren(el("span", {}, text), ...(undo ? [button("Undo", undo, { css: "quiet" })] : []));
  toast.hidden = false;
  hideLater();
}
