// The keyboard shortcuts, and the help dialog that lists them.

import { actions } from "./actions.js";
import { toggleHeat, toggleOutline, toggleTiles } from "./display.js";
import { el } from "./dom.js";
import { redo, undo } from "./editing.js";
import { modal } from "./modal.js";
import { PAGES } from "./pages.js";
import { selection } from "./selection.js";

const ON_IMAGES = {
  m: () => actions.pick(),
  n: () => actions.moveTo("normal"),
  0: () => actions.moveTo("normal"),
  u: () => actions.moveTo("unsure"),
  s: () => actions.split(),
  g: () => actions.merge(),
  r: () => actions.rename(),
  k: () => actions.several(),
  t: () => actions.note(),
  a: () => actions.accept(),
  x: () => actions.reject(),
  h: toggleHeat,
  e: toggleOutline,
  v: toggleTiles,
};

const HELP = [
  ["Images", [
    ["← ↑ → ↓", "go to another image"], ["Space", "select or deselect it"], ["Shift + arrows", "extend the selection"],
    ["Ctrl + A", "select all"], ["Esc", "clear the selection"], ["Enter", "open it"],
    ["Shift + Space", "select its line"], ["A", "accept: it belongs here"], ["X", "reject: it is not this"],
    ["1 – 9", "move to the group with that number beside it"], ["M", "move to a group picked by name"],
    ["N or 0", "move to normal"], ["U", "move to unsure"], ["K", "give it several kinds"], ["T", "write a note on it"],
  ]],
  ["One image", [
    ["+  −", "zoom; the mouse wheel and two fingers do, too"], ["Z", "zoom to the flaw, or show all"], ["Shift + arrows", "move what is zoomed"], ["← →", "previous, next: the zoom stays"],
  ]],
  ["Groups", [
    ["Shift + A", "accept the images shown that are sure enough, as the button says"], ["S", "make the selected images a new group, or split the group along the tree"],
    ["G", "merge the group into another"], ["C", "compare the group with another"], ["R", "rename the group"], ["[  ]", "previous group, next group"],
  ]],
  ...PAGES.filter((page) => page.keys).map((page) => [page.title, page.keys]),
  ["Everywhere", [
    ["/", "filters"], ["Ctrl + Z", "undo"], ["Ctrl + Shift + Z", "redo"], ["V", "tiles of the flaw or of the whole part"], ["H", "heat maps on or off"], ["E", "heat as an outline"], [`Alt + 1 – ${PAGES.length}`, "go to a page"], ["?", "show this list"],
  ]],
];

export function showHelp() {
  const box = modal("Keys", "wide");
  const sections = HELP.map(([title, keys]) => el("section", {}, el("h3", {}, title),
    el("dl", { class: "keys" }, keys.map(([key, words]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)]).flat())));
  box.node.append(el("div", { class: "help" }, sections));
  box.open();
}

const typing = (node) => node.closest?.("input:not([type=checkbox]):not([type=range]), textarea, select") !== null;

function undoing(event) {
  if (!(event.ctrlKey || event.metaKey) || event.altKey) return false;
  const key = event.key.toLowerCase();
  if (key === "z" && !event.shiftKey) undo();
  else if ((key === "z" && event.shiftKey) || key === "y") redo();
  else return false;
  return true;
}

// Apply a key to the images or groups in focus. Returns whether the key is in use.
export function act(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const key = event.key.toLowerCase();
  if (/^[1-9]$/.test(key)) actions.moveToNumber(Number(key));
  else if (Object.hasOwn(ON_IMAGES, key)) ON_IMAGES[key]();
  else return false;
  return true;
}

// The page that Alt and a digit go to, if there is one.
const pageOf = (event) => (event.altKey ? PAGES[Number(/^Digit([1-9])$/.exec(event.code)?.[1]) - 1] : undefined);

// page: () => the page in view; its own keys take precedence. go: (place) => void, opens another page.
export function listen(page, go) {
  addEventListener("keydown", (event) => {
    // The dialog opened last is on top.
    const dialog = [...document.querySelectorAll("dialog[open]")].at(-1);
    if (event.defaultPrevented || event.repeat || typing(event.target)) return;
    let used = true;
    if (dialog && !dialog.classList.contains("image-view")) used = false;
    else if (undoing(event)) used = true;
    else if (event.key === "?") showHelp();
    else if (dialog) used = act(event);
    else if (pageOf(event)) go(pageOf(event).place);
    else if (event.key === "Escape" && selection.size) selection.clear();
    else used = page().key?.(event) || act(event);
    if (used) event.preventDefault();
  });
}
