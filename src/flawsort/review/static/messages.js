// Messages about what happened, on the screen and for screen readers.

import { $, button, el } from "./dom.js";

let quiet = null;

// Have a screen reader read a text.
export function say(text) {
  $("live").textContent = "";
  // A live region does not read the same text twice unless it is cleared first.
  setTimeout(() => { $("live").textContent = text; }, 30);
}

// Show a message for five seconds, and have it read.
export function announce(text, { undo } = {}) {
  const toast = $("toast");
  say(text);
  toast.replaceChildren(el("span", {}, text), ...(undo ? [button("Undo", undo, { css: "quiet" })] : []));
  toast.hidden = false;
  clearTimeout(quiet);
  quiet = setTimeout(() => { toast.hidden = true; }, 5000);
}
