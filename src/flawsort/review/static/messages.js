// What happened, for those who see it and those who hear it.

import { $, button, el } from "./dom.js";

let quiet = null;

// Read out, for those who do not see what happened.
export function say(text) {
  $("said").textContent = "";
  // A live region that is told the same words twice says them once.
  setTimeout(() => { $("said").textContent = text; }, 30);
}

// What happened, shown for a moment and read out.
export function announce(text, { undo } = {}) {
  const toast = $("toast");
  say(text);
  toast.replaceChildren(el("span", {}, text), ...(undo ? [button("Undo", undo, { css: "quiet" })] : []));
  toast.hidden = false;
  clearTimeout(quiet);
  quiet = setTimeout(() => { toast.hidden = true; }, 5000);
}
