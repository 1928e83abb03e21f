// The page itself: controls and groups.

import { Box } from "./box.js";
import { drawEvidence, map, showTree } from "./charts.js";
import { sift } from "./conditions.js";
import { $, count, el, figure } from "./dom.js";
import { ALL, filters, readAddress, search, writeAddress } from "./filters.js";
import { colourOf, mark } from "./marks.js";
import { D, HEAT_COLOURS, N, partition } from "./model.js";
import { frames, shown, tile } from "./pictures.js";

const PAGE = 90;
const state = { k: D.k.saved };
let part = partition(state.k);
const box = new Box(() => part);

// The images that meet the filters; null for all.
const matching = () => (search.filters ? new Set(sift(ALL, search.conditions, search.columns).kept) : null);

// A button with a thumbnail. list: the images that the arrow keys step through once it is open.
function thumb(i, list, hint) {
  const label = `${D.names[i]} · anomaly score ${figure(D.score[i])}`;
  const button = el("button", { type: "button", class: "thumb square", title: label, "aria-label": label }, tile(i, 96));
  if (hint) button.append(hint);
  else if (part.kinds[i].length > 1) button.append(also(i));
  button.addEventListener("click", () => box.open(list, list.indexOf(i)));
  return button;
}

// The thumbnails of `rows`, a page at a time: thousands at once would stall the browser.
function pages(rows) {
  const grid = el("div", { class: "thumbs" });
  const more = el("button", { type: "button", class: "more" });
  let shown = 0;
  const grow = () => {
    const next = rows.slice(shown, shown + PAGE);
    shown += next.length;
    grid.append(...next.map((i) => thumb(i, rows)));
    more.hidden = shown >= rows.length;
    more.textContent = `Show ${Math.min(PAGE, rows.length - shown)} more of ${rows.length - shown}`;
  };
  more.addEventListener("click", grow);
  grow();
  return [grid, more];
}

function strip(title, rows, list, hint) {
  const thumbs = rows.map((i) => thumb(i, list, hint && hint(i)));
  return el("div", { class: "strip" }, el("h3", {}, title), el("div", { class: "thumbs" }, ...thumbs));
}

const brief = ({ id, title }) => (D.reviewed && part.saved ? title : id);
const inSentence = (title) => title.replace(/^Group (?=\d)/, "group ");

// The other groups that regions of an image resemble.
function also(i) {
  const others = part.kinds[i].slice(1).map((kind) => part.groups[kind]);
  const words = `Some regions resemble ${others.map(({ title }) => inSentence(title)).join(" and ")}`;
  return el("span", { class: "toward", title: words }, `+ ${others.map(brief).join(" ")}`);
}

function toward(i) {
  const group = part.groups[part.next[i]];
  return el("span", { class: "toward", title: `Close to ${inSentence(group.title)}` }, `→ ${brief(group)}`);
}

// How many typical and borderline images fill one row (two on a narrow screen).
function room(card) {
  const narrow = matchMedia("(max-width: 640px)").matches;
  const each = narrow ? 82 : Number($("size").value) + 6;
  const wide = card.body.clientWidth + 6;
  const fit = Math.max(3, Math.floor(wide / each));
  const border = Math.min(card.group.borderline.length, narrow ? fit : Math.max(2, Math.floor(fit / 3)));
  if (narrow) return { typical: 2 * fit, border };
  return { typical: border ? Math.max(2, Math.floor((wide - 28 - border * each) / each)) : fit, border };
}

function fill(card) {
  if (card.filled) return;
  card.filled = true;
  const { group, rows, body } = card;
  if (card.all || rows !== group.rows) return void body.replaceChildren(...pages(rows));
  const { typical, border } = room(card);
  const title = rows.length <= typical ? "All, most typical first" : "Most typical";
  const strips = [strip(title, rows.slice(0, typical), rows)];
  if (border) {
    const close = group.borderline;
    strips.push(strip(`Borderline (${close.length})`, close.slice(0, border), close, toward));
  }
  body.replaceChildren(el("div", { class: "strips" }, ...strips));
}

// Fill the cards in view at once, so that moving a slider does not flicker; the others on scrolling.
function fillInView(cards) {
  for (const card of cards) {
    const { top, bottom } = card.getBoundingClientRect();
    if (bottom > 0 && top < innerHeight) fill(card);
    else seen.observe(card);
  }
}

function refill() {
  const cards = [...document.querySelectorAll(".group")].filter((card) => card.filled && !card.all);
  for (const card of cards) card.filled = false;
  fillInView(cards);
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { fill(entry.target); seen.unobserve(entry.target); }
}, { rootMargin: "500px" });

function groupHead(card, matched) {
  const { group } = card;
  const size = group.rows.length;
  const words = [
    matched ? `${matched.toLocaleString("en")} of ${count(size, "image")} match` : count(size, "image"),
    `${Math.round((100 * size) / N)}%`,
    `mean anomaly score ${figure(group.score)}`,
  ];
  const several = group.rows.filter((i) => part.kinds[i].length > 1).length;
  if (several) words.push(`${several.toLocaleString("en")} with several kinds`);
  const head = el("header", {}, mark(group.id), el("h2", { class: "file" }, group.title), el("p", {}, words.join(" · ")));
  const said = D.reviewed && part.saved;
  const why = said ? "A group without a flaw" : `Nearly all of its images are no more unusual than known-good ones. ${D.normalPrecision}`;
  if (group.normal) head.append(el("span", { class: "badge", title: why }, said ? "no flaw" : "looks normal"));
  if (!matched && size > 3) {
    const toggle = el("button", { type: "button", class: "quiet", "aria-expanded": "false" }, `Show all ${size.toLocaleString("en")}`);
    toggle.addEventListener("click", () => {
      [card.all, card.filled] = [!card.all, false];
      toggle.setAttribute("aria-expanded", card.all);
      toggle.textContent = card.all ? "Show fewer" : `Show all ${size.toLocaleString("en")}`;
      fill(card);
    });
    head.append(toggle);
  }
  return head;
}

function groupCard(group, matches) {
  const rows = matches ? group.rows.filter((i) => matches.has(i)) : group.rows;
  if (!rows.length) return null;
  const card = el("article", { class: "group", id: `g${group.id}`, "data-size": group.rows.length, css: { "--group": colourOf(group.id) } });
  const body = el("div", { class: "group-body" });
  Object.assign(card, { group, rows, body, all: false, filled: false });
  card.append(groupHead(card, matches ? rows.length : 0), body);
  card.addEventListener("pointerenter", () => map.highlight(group.id));
  card.addEventListener("pointerleave", () => map.highlight(null));
  return card;
}

function drawShares() {
  const links = part.groups.map((group) => {
    const label = `${group.title}: ${count(group.rows.length, "image")}`;
    const link = el("a", { href: `#g${group.id}`, title: label, "aria-label": label, css: { "--group": colourOf(group.id) } });
    link.style.flexGrow = group.rows.length;
    if (group.rows.length / N > 0.03) link.textContent = group.id;
    return link;
  });
  $("shares").replaceChildren(...links);
}

function drawControls() {
  $("k").value = part.k;
  $("k-text").textContent = count(part.k, "group");
  $("k-less").disabled = part.k <= D.k.min;
  $("k-more").disabled = part.k >= D.k.max;
  $("k").disabled = D.k.min === D.k.max;
  $("k-saved").disabled = part.saved;
  $("k-saved").textContent = part.saved ? (D.reviewed ? "As people left it" : "As saved") : `Back to ${D.k.saved}`;
  $("map-note").textContent = `${count(N, "image")}, ${count(part.k, "group")}`;
}

function draw() {
  const matches = matching();
  part = partition(state.k);
  seen.disconnect();
  const cards = part.groups.map((group) => groupCard(group, matches)).filter(Boolean);
  const none = el("p", { class: "empty" }, "No image meets these filters.");
  $("groups").replaceChildren(...(cards.length ? cards : [none]));
  fillInView(cards);
  drawShares();
  drawControls();
  filters.draw(matches ? matches.size : N, N);
  map.show(part, matches);
  showTree(setK);
}

const clampK = (k) => Math.min(D.k.max, Math.max(D.k.min, k));

function setK(k) {
  const wanted = clampK(k);
  if (wanted === state.k) return;
  state.k = wanted;
  changed();
}

function changed() {
  writeAddress(state.k === D.k.saved ? null : state.k);
  later(draw);
}

// Run an action once, soon, however often a slider fires.
const waiting = new Set();
function later(action) {
  if (waiting.has(action)) return;
  waiting.add(action);
  setTimeout(() => { waiting.delete(action); action(); });
}

// Draw the thumbnails again that are drawn already.
function redraw() {
  for (const card of document.querySelectorAll(".group")) {
    if (!card.filled) continue;
    card.filled = false;
    fill(card);
  }
}

function setTiles(flaw) {
  shown.flaw = flaw;
  for (const [id, on] of [["tile-whole", !flaw], ["tile-flaw", flaw]]) $(id).setAttribute("aria-pressed", on);
  later(redraw);
}

function setOutline(on) {
  shown.outline = on;
  $("outline").setAttribute("aria-pressed", on);
  if (on && !$("heat").checked) $("heat").click();
  later(redraw);
  box.draw();
}

function setHeat() {
  $("heat").click();
}

const KEYS = { v: () => D.closeUps && setTiles(!shown.flaw), h: setHeat, e: () => setOutline(!shown.outline) };

// Keys work on the page and in the lightbox.
function key(event) {
  if (event.target.closest?.("input:not([type=checkbox]):not([type=range])") || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = KEYS[event.key.toLowerCase()];
  const open = document.querySelector("dialog[open]");
  if (act && (!open || open === $("box"))) act();
  else if (open || !filters.key(event)) return;
  event.preventDefault();
}

function listen() {
  const root = document.documentElement;
  const opacity = () => root.style.setProperty("--opacity", $("heat").checked ? $("opacity").value / 100 : 0);
  const size = () => root.style.setProperty("--thumb", `${$("size").value}px`);
  $("bar").addEventListener("submit", (event) => event.preventDefault());
  $("k").addEventListener("input", () => setK(Number($("k").value)));
  $("k-less").addEventListener("click", () => setK(state.k - 1));
  $("k-more").addEventListener("click", () => setK(state.k + 1));
  $("k-saved").addEventListener("click", () => setK(D.k.saved));
  $("heat").addEventListener("change", opacity);
  $("opacity").addEventListener("input", opacity);
  $("size").addEventListener("input", () => { size(); later(refill); });
  addEventListener("resize", () => later(refill));
  $("finding").append(...filters.tools);
  $("chips").append(filters.foot);
  search.watch(changed);
  addEventListener("hashchange", open);
  addEventListener("keydown", key);
  $("tile-whole").addEventListener("click", () => setTiles(false));
  $("tile-flaw").addEventListener("click", () => setTiles(true));
  $("tiles").hidden = !D.closeUps;
  $("outline").addEventListener("click", () => setOutline(!shown.outline));
  addEventListener("scroll", () => map.point(-1), { passive: true });
  addEventListener("beforeprint", () => document.querySelectorAll(".group").forEach(fill));
  map.listen((i) => { const { rows } = part.groups[part.rank[i]]; box.open(rows, rows.indexOf(i)); });
  opacity();
  size();
}

function drawRamp() {
  const stops = Array.from({ length: 9 }, (_, step) => {
    const [red, green, blue, alpha] = HEAT_COLOURS.slice(4 * Math.round((step * 255) / 8));
    return `rgb(${red} ${green} ${blue} / ${alpha / 255})`;
  });
  document.documentElement.style.setProperty("--ramp", `linear-gradient(to right, ${stops.join(", ")})`);
}

// Show what the address says.
function open() {
  state.k = clampK(readAddress() ?? D.k.saved);
  draw();
}

document.documentElement.classList.add("live");
listen();
drawRamp();
open();
drawEvidence();
