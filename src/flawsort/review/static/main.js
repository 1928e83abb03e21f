// The page of a run: loads it, shows one of its pages, and keeps them all up to date.

import { focus } from "./actions.js";
import { api } from "./api.js";
import { $, button, count, el } from "./dom.js";
import { lookAgain, redo, undo, whenBack } from "./editing.js";
import { ExportPage } from "./exportpage.js";
import { GroupsPage } from "./groupspage.js";
import { listen, showHelp } from "./keys.js";
import { MapPage } from "./mappage.js";
import { model } from "./model.js";
import { NewPage } from "./newpage.js";
import { QueuePage } from "./queuepage.js";
import { Rail } from "./rail.js";
import { selection } from "./selection.js";
import { selectionBar } from "./selectionbar.js";
import { TreePage } from "./treepage.js";

const LOOK_EVERY = 20_000;
const NAMES = ["groups", "map", "tree", "queue", "new", "export"];
const WITH_RAIL = ["groups", "map", "queue"];

let pages;
let rail;
let at = { page: null, group: null };

const page = () => pages[at.page];

// The address says where one is, so that a reload or a bookmark comes back to it.
function readAddress() {
  const [name, id] = location.hash.slice(1).split("/");
  const group = id === "all" ? "all" : Number.parseInt(id, 10);
  return { page: NAMES.includes(name) ? name : "groups", group: group === "all" || model.byId.has(group) ? group : at.group };
}

function go(name, group = at.group) {
  const hash = name === "groups" && group !== null ? `#groups/${group}` : `#${name}`;
  if (location.hash !== hash) history.pushState(null, "", hash);
  show();
}

// A group that is gone was merged or emptied: go to the one in its place.
function standing(group) {
  if (group === "all" || model.byId.has(group)) return group;
  return (model.groups.find((one) => one.id > group && one.n) ?? model.groups[0]).id;
}

function show() {
  const before = at;
  at = readAddress();
  at.group = standing(at.group ?? -1);
  if (before.page !== at.page) $("tip").hidden = true;
  if (at.group !== before.group && before.group !== null && at.page === "groups") selection.clear();
  for (const [name, one] of Object.entries(pages)) one.node.hidden = name !== at.page;
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.hash === `#${at.page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const withRail = WITH_RAIL.includes(at.page);
  rail.node.hidden = !withRail;
  $("drawer-open").hidden = !withRail;
  document.body.classList.toggle("with-rail", withRail);
  draw();
}

function draw() {
  at.group = standing(at.group);
  if (at.page === "groups") page().show(at.group);
  else page().draw();
  drawFrame();
}

function drawFrame() {
  const current = at.page === "groups" ? at.group : page().group?.() ?? (at.page === "map" ? "all" : null);
  rail.show(current);
  const chosen = at.page === "queue" ? "Groups" : current === "all" ? "All images" : model.title(current);
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
  if (at.page === "map") {
    page().only(id);
    drawFrame();
  } else go("groups", id);
  if (at.page === "groups") page().grid.node.focus();
}

function drawer(open) {
  document.body.classList.toggle("drawer", open);
  $("drawer-open").setAttribute("aria-expanded", String(open));
  if (open) rail.node.querySelector("[tabindex='0']")?.focus();
}

function build() {
  rail = new Rail(choose);
  pages = {
    groups: new GroupsPage((id) => go("groups", id)), map: new MapPage(), tree: new TreePage(), queue: new QueuePage(drawFrame), new: new NewPage(), export: new ExportPage(),
  };
  for (const one of Object.values(pages)) one.node.hidden = true;
  $("stage").replaceChildren(...Object.values(pages).map((one) => one.node));
  $("body").prepend(rail.node);
  document.body.append(selectionBar());
  focus.group = () => page().group?.() ?? null;
  focus.row = () => page().row?.() ?? null;
  focus.show = (id) => { if (at.page === "groups") go("groups", id); };
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
  listen(page, (index) => go(NAMES[index]));
  // Another tab or another person may have changed the groups.
  document.addEventListener("visibilitychange", lookAgain);
  setInterval(lookAgain, LOOK_EVERY);
}

async function start() {
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
  if (at.page === "groups") page().grid.node.focus();
  document.documentElement.dataset.ready = "true";
}

start();
