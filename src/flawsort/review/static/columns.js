// What images can be filtered and sorted by. To add something, write its column here: filters, chips, orders,
// counts and addresses read this list.

import { api } from "./api.js";
import { number } from "./dom.js";
import { imageColumns, percentWords } from "./imagecolumns.js";
import { model } from "./model.js";

// Facts about all images that are fetched when they are first needed.
const known = new Map();
const asked = new Map();

// Resolves when a fact is there; rejects with the reason.
async function fetchOnce(name, get) {
  if (!asked.has(name)) asked.set(name, get().then((found) => known.set(name, found)));
  try {
    await asked.get(name);
  } catch (error) {
    asked.delete(name);
    throw error;
  }
}

const STATES = { decided: "Decided", suggested: "Suggested", clustered: "As clustered" };
const ONE_STATE = Object.fromEntries(Object.keys(STATES).map((state) => [state, [state]]));
const stateOf = (row) => (model.decided[row] ? "decided" : model.suggested(row) ? "suggested" : "clustered");
const typical = (row) => model.run.typicality[row] ?? -1;

// Images by lot. by: as the server names it.
function lotColumn(by, words, more = {}) {
  const lots = () => known.get(by);
  return {
    words, kind: "choice", closed: true, title: (key) => key, options: () => lots().lots, of: (row) => lots().keys[row], loaded: () => known.has(by),
    load: () => fetchOnce(by, async () => {
      const found = await api.lots(by);
      const keys = found.lots.map((lot) => [lot]);
      return { ...found, keys: found.of.map((lot) => keys[lot]) };
    }),
    value: (row) => lots().of[row], up: `${words} by ${words.toLowerCase()}`, ...more,
  };
}

const groupColumn = (words, of, more) => ({
  words, kind: "choice", of, title: (key) => model.title(Number(key)), options: () => model.groups.map((group) => String(group.id)), groups: true, ...more,
});

const base = imageColumns(() => model.run);

// The place of each folder in the list of all.
let places = null;
const placeOf = (row) => {
  places ??= new Map(base.folder.options().map((folder, place) => [folder, place]));
  return places.get(base.folder.of(row).at(-1));
};

// Columns as conditions.js describes them; one without a kind only sorts. Besides:
//   value(row)    a number to sort by; up, down: the order by ascending and by descending values, in words
//   rank(row)     comes before the value, in both directions; by default images without a value are last
export const COLUMNS = {
  typical: { words: "Typicality", value: typical, down: "Most typical first", up: "Least typical first" },
  name: { ...base.name, value: (row) => row, up: "File name, A to Z", down: "File name, Z to A" },
  state: {
    words: "Decided or not", kind: "choice", of: (row) => ONE_STATE[stateOf(row)], title: (key) => STATES[key] ?? key, options: () => Object.keys(STATES),
    value: (row) => model.decided[row], up: "Not decided first", down: "Decided first",
  },
  sure: {
    words: "How sure the suggestion is", kind: "number", of: (row) => model.sureness(row), show: percentWords, unit: "%", shown: () => model.groups.some((group) => group.suggested),
    value: (row) => model.percent[row], rank: (row) => (model.decided[row] ? 2 : model.suggested(row) ? 0 : 1), up: "Suggested, least sure first", down: "Suggested, most sure first",
  },
  group: groupColumn("Group", (row) => [String(model.groupOf(row))], { value: (row) => model.groups.findIndex((group) => group.id === model.groupOf(row)), up: "Group by group" }),
  near: groupColumn("Next nearest group", (row) => (model.nextTo(row) === null ? [] : [String(model.nextTo(row))]), { closed: true, hint: "By the clusters as they were computed." }),
  flags: { ...base.flags, value: typical, rank: (row) => 1 - model.borderline[row], up: "Borderline first" },
  score: { ...base.score, value: base.score.of, down: "Most unusual first", up: "Least unusual first" },
  area: { ...base.area, value: base.area.of, down: "Largest flaw first", up: "Smallest flaw first" },
  folder: { ...base.folder, value: placeOf, up: "Folder by folder" },
  lot: lotColumn("lots", "Lot", { shown: () => model.run.lots !== "" }),
  day: lotColumn("day", "Day", { hint: "Of the last change of the file.", down: "Latest day first" }),
  week: lotColumn("week", "Week"),
  month: lotColumn("month", "Month"),
  side: {
    words: "Size of the image", kind: "number", closed: true, unit: "pixels", hint: "Its longer side.", show: (value) => `${number(value)} pixels`, of: (row) => known.get("sizes")[row],
    load: () => fetchOnce("sizes", async () => {
      const { width, height } = await api.sizes();
      return width.map((wide, row) => (wide === null ? null : Math.max(wide, height[row])));
    }), loaded: () => known.has("sizes"),
    value: (row) => known.get("sizes")[row], down: "Largest image first", up: "Smallest image first",
  },
};

export const areaOf = COLUMNS.area.of;

// All orders: {text, words}, text as addresses have it: a column, with a minus for descending values.
export const ORDERS = Object.entries(COLUMNS).flatMap(([name, { up, down }]) =>
  [down && { text: `-${name}`, words: down }, up && { text: name, words: up }].filter(Boolean));

// The rows in an order; equal ones the most typical first, then by file.
export function ordered(rows, text) {
  const { value, rank = (row) => (value(row) === null ? 1 : 0) } = COLUMNS[text.replace("-", "")];
  const sign = text.startsWith("-") ? -1 : 1;
  const [ranks, values] = [new Uint8Array(model.run.n), new Float64Array(model.run.n)];
  for (const row of rows) [ranks[row], values[row]] = [rank(row), value(row) ?? 0];
  return [...rows].sort((a, b) => ranks[a] - ranks[b] || sign * (values[a] - values[b]) || typical(b) - typical(a) || a - b);
}
