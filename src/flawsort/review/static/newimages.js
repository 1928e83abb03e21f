// New images in words and signs: titles of their groups, and how these are known.

import { el, number } from "./dom.js";
import { mark } from "./marks.js";
import { model } from "./model.js";

export const NEW_KIND = -1;
export const NORMAL = -2; // of a run without a normal group

const WORDS = { [NEW_KIND]: "new kind", [NORMAL]: "normal" };
const SIGNS = { [NEW_KIND]: "?", [NORMAL]: "✓" };

export const newTitle = (id) => WORDS[id] ?? model.title(id);
export const newMark = (id) => (id in SIGNS ? el("span", { class: "plus", "aria-hidden": "true" }, SIGNS[id]) : mark(id));
export const newNamed = (id) => el("span", { class: "with-mark" }, newMark(id), el("span", { class: "clip" }, newTitle(id)));

// How sure the model is, in whole percent rounded down, or null.
export function newSureness({ decided, table }, row) {
  const sure = table.probability[row];
  return decided[row] || sure === null ? null : Math.floor(100 * sure + 1e-9);
}

// Whether an image has a suggested group although it is near none of the run's images. The model has
// learnt from those alone, so it can be sure and wrong.
export const strange = ({ decided, groups, table }, row) => !decided[row] && groups[row] >= 0 && table.cluster[row] === NEW_KIND;

export function newStanding(batch, row) {
  if (batch.decided[row]) return "decided ✓";
  const sure = newSureness(batch, row);
  if (sure !== null) return `suggested, ${sure}% sure${strange(batch, row) ? ", but unlike the images of the run" : ""}`;
  return batch.groups[row] === NEW_KIND ? "unlike all groups" : "by its nearest cluster";
}

// The numbers of verdicts in words; "" if there are none.
export function verdictCounts({ verdicts }) {
  const n = (verdict) => verdicts.filter((one) => one === verdict).length;
  if (n("") === verdicts.length) return "";
  return [`${number(n("OK"))} OK`, `${number(n("not OK"))} not OK`, n("") ? `${number(n(""))} without a verdict` : null].filter(Boolean).join(" · ");
}
