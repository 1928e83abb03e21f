// The review of a run: loads the run, shows one of its pages, and keeps all pages up to date.

import { focus } from "./actions.js";
import { api } from "./api.js";
import { $, button, count, el } from "./dom.js";
import { lookAgain, redo, undo, whenBack } from "./editing.js";
import { listen, showHelp } from "./keys.js";
import { model } from "./model.js";
import { PAGES } from "./pages.js";
import { Rail } from "./rail.js";
import { selection } from "./selection.js";
import { selectionBar } from "./selectionbar.js";

const LOOK_EVERY = 20_000;
// The start page, which shows groups one by one.
const HOME = PAGES[0].place;

let pages;
let rail;
let at = { place: null, group: null };

const page = () => pages.get(at.place);

// The address holds the page and group, so that a reload or a bookmark returns to them.
function readAddress() {
  const [name, id] = location.hash.slice(1).split("/");
  const group = id === "all" ? "all" : Number.parseInt(id, 10);
  return { place: pages.has(name) ? name : HOME, group: group === "all" || model.byId.has(group) ? group : at.group };
}

function go(place, group = at.group) {
  const hash = place === HOME && group !== null ? `#${HOME}/${group}` : `#${place}`;
  if (location.hash !== hash) history.pushState(null, "", hash);
  show();
}

// A missing group was merged or emptied: use the next one.
function standing(group) {
  if (group === "all" || model.byId.has(group)) return group;
  return (model.groups.find((one) => one.id > group && one.n) ?? model.groups[0]).id;
}

function show() {
  const before = at;
  at = readAddress();
  at.group = standing(at.group ?? -1);
  if (before.place !== at.place) $("tip").hidden = true;
  if (at.group !== before.group && before.group !== null && at.place === HOME) selection.clear();
  for (const [place, one] of pages) one.node.hidden = place !== at.place;
  for (const link of $("tabs").children) {
    if (link.hash === `#${at.place}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const withRail = page().constructor.rail;
  rail.node.hidden = !withRail;
  $("drawer-open").hidden = !withRail;
  document.body.classList.toggle("with-rail", withRail);
  draw();
}

function draw() {
  at.group = standing(at.group);
  page().draw(at.group);
  drawFrame();
}

function drawFrame() {
  const current = page().listed?.() ?? null;
  rail.show(current);
  const chosen = current === null ? "Groups" : current === "all" ? "All images" : model.title(current);
  $("drawer-open").replaceChildren(el("span", { class: "clip" }, chosen), el("span", { "aria-hidden": "true" }, "▾"));
  const set = (id, word, sentence) => {
    const node = $(id);
    node.disabled = !sentence;
    node.querySelector(".sentence").textContent = sentence ?? "";
    node.title = sentence ? `${word}: ${sentence}` : `Nothing to ${word.toLowerCase()}`;
    node.setAttribute("aria-label", node.title);
  };
  set("undo", "Undo", model.state.undo);
  set("redo", "Redo", model.state.redo);
}

function choose(id) {
  drawer(false);
  if (page().choose) {
    page().choose(id);
    drawFrame();
  } else {
    go(HOME, id);
    page().focus();
  }
}

function drawer(open) {
  document.body.classList.toggle("drawer", open);
  $("drawer-open").setAttribute("aria-expanded", String(open));
  if (open) rail.node.querySelector("[tabindex='0']")?.focus();
}

function build() {
  rail = new Rail(choose);
  const shell = { go, changed: drawFrame };
  pages = new Map(PAGES.map((Page) => [Page.place, new Page(shell)]));
  for (const one of pages.values()) one.node.hidden = true;
  $("stage").replaceChildren(...[...pages.values()].map((one) => one.node));
  $("body").prepend(rail.node);
  document.body.append(selectionBar());
  focus.group = () => page().group?.() ?? null;
  focus.row = () => page().row?.() ?? null;
  focus.show = (id) => page().show?.(id);
}

function attend() {
  $("undo").addEventListener("click", undo);
  $("redo").addEventListener("click", redo);
  $("help").addEventListener("click", showHelp);
  $("drawer-open").addEventListener("click", () => drawer(!document.body.classList.contains("drawer")));
  $("drawer-shade").addEventListener("click", () => drawer(false));
  addEventListener("keydown", (event) => { if (event.key === "Escape") drawer(false); });
  addEventListener("hashchange", show);
  model.watch(draw);
  whenBack(draw);
  listen(page, (place) => go(place));
  // Another tab or another person may have changed the groups.
  document.addEventListener("visibilitychange", lookAgain);
  setInterval(lookAgain, LOOK_EVERY);
}

async function start() {
  $("tabs").replaceChildren(...PAGES.map(({ place, title }) => el("a", { href: `#${place}` }, title)));
  try {
    const [run, state] = await Promise.all([api.run(), api.state()]);
    model.load(run);
    model.update(state);
  } catch (error) {
    $("stage").replaceChildren(el("div", { class: "empty" }, el("p", {}, `The run cannot be shown. ${error.message}`), button("Try again", () => location.reload())));
    return;
  }
  document.title = `${model.run.name} – flawsort`;
  $("run-facts").textContent = count(model.run.n, "image");
  build();
  attend();
  show();
  page().focus?.();
  document.documentElement.dataset.ready = "true";
}

start();
