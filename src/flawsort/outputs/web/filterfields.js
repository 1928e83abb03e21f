// The fields of the filter panel: one kind for texts, one for numbers, one for choices. A field is
// {node, draw(rows)}; rows: the images that there would be without its own condition.

import { tally } from "./conditions.js";
import { el, number, svg } from "./dom.js";
import { mark } from "./marks.js";

const BARS = 40;
const STEPS = 400;
const SEARCHED = 10; // more choices than these are searched
const SHOWN = 200; // choices in the page at once

// set(condition): called with the new condition, or null.
export const FIELDS = { text: textField, number: numberField, choice: choiceField };

function textField(column, condition, set) {
  const input = el("input", { type: "search", "aria-label": column.words, value: condition ?? "", autocomplete: "off", spellcheck: "false", oninput: () => set(input.value) });
  return { node: input, draw() {} };
}

// The least and largest values among rows, and how they are spread.
function spread(column, rows) {
  let [least, most] = [Infinity, -Infinity];
  for (const row of rows) {
    const value = column.of(row);
    if (value === null) continue;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  const counts = new Array(BARS).fill(0);
  const step = (most - least) / BARS || 1;
  for (const row of rows) {
    const value = column.of(row);
    if (value !== null) counts[Math.min(BARS - 1, Math.floor((value - least) / step))]++;
  }
  return { least, most, counts };
}

function bars({ counts }, [from, to]) {
  const top = Math.max(1, ...counts);
  // The square root keeps a few images visible beside thousands.
  const height = (n) => (n ? Math.max(2, 40 * Math.sqrt(n / top)) : 0);
  const shown = counts.map((n, at) => svg("rect", {
    x: at, y: 40 - height(n), width: 0.86, height: height(n), class: (at + 1) / BARS > from && at / BARS < to ? "in" : null,
  }));
  return svg("svg", { class: "spread", viewBox: `0 0 ${BARS} 40`, preserveAspectRatio: "none", "aria-hidden": "true" }, shown);
}

function numberField(column, condition, set) {
  let [limits, span] = [[...(condition ?? [null, null])], null];
  const words = column.words.toLowerCase();
  const slider = (side, name) => el("input", { type: "range", min: 0, max: STEPS, "aria-label": `${column.words}, ${name}`, oninput: () => slid(side) });
  const box = (side, name) => el("input", { type: "number", step: "any", "aria-label": `${name} ${words}`, onchange: () => typed(side) });
  const [sliders, boxes] = [[slider(0, "from"), slider(1, "to")], [box(0, "Least"), box(1, "Largest")]];
  const chart = el("div", { class: "limits-chart" });
  const none = el("p", { class: "hint", hidden: true }, "No image here has a value.");
  const range = el("div", { class: "limits" }, chart, el("div", { class: "sliders" }, sliders), el("div", { class: "row" }, boxes[0], el("span", { class: "soft" }, "to"), boxes[1], el("span", { class: "soft" }, column.unit ?? null)));
  const give = () => { set([...limits]); show(); };
  const valueAt = (step) => span.least + ((span.most - span.least) * step) / STEPS;
  const placeOf = (value, side) => (value === null ? side : Math.max(0, Math.min(1, (value - span.least) / (span.most - span.least || 1))));

  // At its end a slider sets no limit; otherwise one that is rounded outwards never is, so that a link is short.
  function slid(side) {
    const at = Number(sliders[side].value);
    const other = Number(sliders[1 - side].value);
    if (side ? at < other : at > other) sliders[side].value = other;
    const step = Number(sliders[side].value);
    limits[side] = step === side * STEPS ? null : Number(valueAt(step).toPrecision(3));
    give();
  }

  function typed(side) {
    const value = Number(boxes[side].value);
    limits[side] = boxes[side].value === "" || !Number.isFinite(value) ? null : value;
    give();
  }

  function show() {
    none.hidden = span.least <= span.most;
    range.hidden = !none.hidden;
    if (range.hidden) return;
    const places = limits.map(placeOf);
    chart.replaceChildren(bars(span, places));
    for (const side of [0, 1]) {
      if (document.activeElement !== sliders[side]) sliders[side].value = Math.round(places[side] * STEPS);
      if (document.activeElement !== boxes[side]) boxes[side].value = limits[side] ?? "";
      boxes[side].placeholder = Number([span.least, span.most][side].toPrecision(3));
    }
  }

  return { node: el("div", {}, none, range), draw(rows) { span = spread(column, rows); show(); } };
}

function choiceField(column, condition, set) {
  const chosen = new Set(condition ?? []);
  let [counts, wanted] = [new Map(), ""];
  const list = el("div", { class: "choices" });
  const search = el("input", { type: "search", placeholder: "Search", "aria-label": `Search ${column.words.toLowerCase()}`, hidden: true, oninput: () => { wanted = search.value.trim().toLowerCase(); show(); } });
  const take = (key, on) => { if (on) chosen.add(key); else chosen.delete(key); set(new Set(chosen)); };

  function choice(key) {
    const input = el("input", { type: "checkbox", value: key, checked: chosen.has(key), onchange: () => take(key, input.checked) });
    const n = counts.get(key) ?? 0;
    return el("label", { class: `choice${n || chosen.has(key) ? "" : " soft"}` }, input, column.groups ? mark(Number(key)) : null,
      el("span", { class: "clip", title: column.title(key) }, column.title(key)), el("span", { class: "number soft" }, number(n)));
  }

  // Chosen ones stay in sight, and may be missing from the options: a link may name a lot that is not here.
  function show() {
    const all = [...new Set([...column.options(), ...chosen])];
    search.hidden = all.length <= SEARCHED;
    const found = all.filter((key) => column.title(key).toLowerCase().includes(wanted));
    const had = list.contains(document.activeElement) ? document.activeElement.value : null;
    const more = found.length > SHOWN ? el("p", { class: "hint" }, `${number(found.length - SHOWN)} more. Search for them.`) : null;
    const top = list.scrollTop;
    list.replaceChildren(...found.slice(0, SHOWN).map(choice), ...(more ? [more] : []));
    list.scrollTop = top;
    if (had !== null) [...list.querySelectorAll("input")].find((input) => input.value === had)?.focus();
  }

  return { node: el("div", {}, search, list), draw(rows) { counts = tally(column, rows); show(); } };
}
