// The order of the groups in the list: by role, and then as the user chose.

import { display, onDisplay, setDisplay } from "./display.js";
import { el } from "./dom.js";
import { model } from "./model.js";

const open = (group) => group.n - group.decided;
const BY = {
  named: { words: "Named first", by: () => 0 },
  name: { words: "By name", by: (a, b) => a.title.localeCompare(b.title, "en", { numeric: true, sensitivity: "base" }) },
  size: { words: "Largest first", by: (a, b) => b.n - a.n },
  open: { words: "Most to decide first", by: (a, b) => open(b) - open(a) },
  score: { words: "Most unusual first", by: (a, b) => meanScore(b) - meanScore(a) },
};
const ROLES = ["flaw", "normal", "unsure"];

let means = { state: null, of: new Map() };

function meanScore({ id }) {
  if (means.state !== model.state) means = { state: model.state, of: new Map([...model.members].map(([one, rows]) => [one, mean(rows)])) };
  return means.of.get(id);
}

const mean = (rows) => (rows.length ? rows.reduce((sum, row) => sum + (model.run.scores[row] ?? 0), 0) / rows.length : -Infinity);

export function orderedGroups() {
  const { by } = BY[display.groups] ?? BY.named;
  return [...model.groups].sort((a, b) => ROLES.indexOf(a.role) - ROLES.indexOf(b.role) || by(a, b));
}

export function groupOrderControl() {
  const select = el("select", { "aria-label": "Order of the groups", onchange: () => setDisplay("groups", select.value) },
    Object.entries(BY).map(([key, { words }]) => el("option", { value: key }, words)));
  select.value = display.groups in BY ? display.groups : "named";
  onDisplay((key) => { if (key === "groups") select.value = display.groups; });
  return select;
}
