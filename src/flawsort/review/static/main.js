// The review of a run: loads the run, shows one of its pages, and keeps all pages up to date.

import { focus } from "./actions.js";
import { addressOf, readAddress } from "./address.js";
import { api } from "./api.js";
import { $, button, count, el } from "./dom.js";
import { lookAgain, ownSteps, redo, undo, whenBack } from "./editing.js";
import { listen, showHelp } from "./keys.js";
import { announce } from "./messages.js";
import { model } from "./model.js";
import { PAGES } from "./pages.js";
import { person } from "./person.js";
import { query } from "./query.js";
import { Rail } from "./rail.js";
import { selection } from "./selection.js";
import { selectionBar } from "./selectionbar.js";

const LOOK_EVERY = 20_000;
// Browsers refuse more than a hundred changes of the address in half a minute.
const ADDRESS_AFTER = 250;
// The start page.
const HOME = PAGES[0].place;

let pages;
let rail;
let selected;
let at = null; // the place of the page in view
let unwritten = null;

const page = () => pages.get(at);
const addressAt = (place) => addressOf(place, pages.get(place).parts?.() ?? [], pages.get(place).constructor.filters ? query.text : "");

// The address follows what is shown, a moment later: a slider changes it many times a second.
function writeLater() {
  clearTimeout(unwritten);
  unwritten = setTimeout(writeAddress, ADDRESS_AFTER);
}

function writeAddress() {
  clearTimeout(unwritten);
  unwritten = null;
  if (location.hash !== addressAt(at)) history.replaceState(null, "", addressAt(at));
}

// Opens a page. parts: what it is to show; without them, what it showed last.
function go(place, parts) {
  if (unwritten !== null) writeAddress();
  if (parts) pages.get(place).open?.(parts.map(String));
  turnTo(place);
  if (location.hash !== addressAt(place)) history.pushState(null, "", addressAt(place));
}

// Shows what the address says.
function follow() {
  const { place, parts, params } = readAddress();
  const known = pages.has(place) ? place : HOME;
  pages.get(known).open?.(parts);
  const wrong = pages.get(known).constructor.filters ? query.read(params) : [];
  if (wrong.length) announce(`Left out of the filters, because this page knows no such thing: ${wrong.join(", ")}.`);
  turnTo(known);
  writeAddress();
}

function turnTo(place) {
  if (at !== place) {
    $("tip").hidden = true;
    pages.get(at)?.away?.();
  }
  at = place;
  for (const [name, one] of pages) one.node.hidden = name !== at;
  const withRail = page().constructor.rail;
  rail.node.hidden = !withRail;
  $("drawer-open").hidden = !withRail;
  document.body.classList.toggle("with-rail", withRail);
  draw();
}

function draw() {
  page().draw();
  drawFrame();
}

function drawTabs() {
  for (const link of $("tabs").children) {
    const { place } = link.dataset;
    link.href = addressAt(place);
    if (place !== at) link.removeAttribute("aria-current");
    else if (!link.hasAttribute("aria-current")) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" }); // not all tabs fit a phone
    }
  }
}

function drawFrame() {
  const current = page().listed?.() ?? null;
  rail.show(current, page().constructor.filters === true);
  const chosen = current === null ? "Groups" : current === "all" ? "All images" : model.title(current);
  $("drawer-open").replaceChildren(el("span", { class: "clip" }, chosen), el("span", { "aria-hidden": "true" }, "▾"));
  const set = (id, word, sentence) => {
    const node = $(id);
    node.disabled = !sentence;
    node.querySelector(".sentence").textContent = sentence ?? "";
    node.title = sentence ? `${word}: ${sentence}` : `Nothing to ${word.toLowerCase()}`;
    node.setAttribute("aria-label", node.title);
  };
  selected.draw();
  const own = ownSteps();
  set("undo", "Undo", own.undo?.words);
  set("redo", "Redo", own.redo?.words);
  drawTabs();
  writeLater();
}

function choose(id) {
  drawer(false);
  if (page().choose) {
    page().choose(id);
    drawFrame();
  } else {
    go(HOME, [id]);
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
  selected = selectionBar();
  document.body.append(selected.node);
  focus.group = () => page().group?.() ?? null;
  focus.row = () => page().row?.() ?? null;
  focus.shown = (row) => page().shows?.(row) ?? false;
  focus.show = (id) => page().show?.(id);
}

function attend() {
  $("undo").addEventListener("click", undo);
  $("redo").addEventListener("click", redo);
  $("help").addEventListener("click", showHelp);
  $("drawer-open").addEventListener("click", () => drawer(!document.body.classList.contains("drawer")));
  $("drawer-shade").addEventListener("click", () => drawer(false));
  addEventListener("keydown", (event) => { if (event.key === "Escape") drawer(false); });
  addEventListener("hashchange", follow);
  addEventListener("pagehide", () => { if (unwritten !== null) writeAddress(); });
  model.watch(draw);
  person.watch(drawFrame);
  query.watch(() => {
    selection.within((row) => query.has(row)); // nothing is done to images that a filter hides
    draw();
  });
  whenBack(draw);
  listen(page, (place) => go(place));
  // Another tab or another person may have changed the groups.
  document.addEventListener("visibilitychange", lookAgain);
  setInterval(lookAgain, LOOK_EVERY);
}

async function start() {
  $("tabs").replaceChildren(...PAGES.map(({ place, title }) => el("a", { href: `#${place}`, "data-place": place }, title)));
  try {
    const [run, state] = await Promise.all([api.run(), api.state()]);
    if (run.basis !== state.basis) return location.reload(); // it was replaced just now
    model.load(run);
    model.update(state);
  } catch (error) {
    $("stage").replaceChildren(el("div", { class: "empty" }, el("p", {}, `The run cannot be shown. ${error.message}`), button("Try again", () => location.reload())));
    return;
  }
  document.title = `${model.run.name} – flawsort`;
  $("run-facts").textContent = count(model.run.n, "image");
  build();
  follow();
  attend();
  page().focus?.();
  document.documentElement.dataset.ready = "true";
}

start();
