// The filters of the report, and the part of the address that holds them.

import { FilterBar } from "./filterbar.js";
import { imageColumns } from "./imagecolumns.js";
import { D, N } from "./model.js";
import { Search } from "./search.js";

// Browsers refuse more than a hundred changes of the address in half a minute.
const ADDRESS_AFTER = 250;
const UNLABELLED = "";

const DATA = { n: N, names: D.names, scores: D.score, flags: D.flags, regions: D.regions };
const truth = D.truth && D.truth.map((label) => [label ?? UNLABELLED]);
const TRUTH = {
  words: "Truth", kind: "choice", of: (i) => truth[i], title: (key) => (key === UNLABELLED ? "not labelled" : key), options: () => [...new Set(truth.flat())].sort(),
};

export const ALL = Array.from({ length: N }, (_, i) => i);
export const search = new Search({ ...imageColumns(() => DATA), ...(truth ? { truth: TRUTH } : {}) });
export const filters = new FilterBar(search, { rows: () => ALL });

// The number of groups in the address, or null. The filters follow the address.
export function readAddress() {
  const pairs = [...new URLSearchParams(location.hash.slice(1))];
  const [, k] = pairs.find(([name]) => name === "k") ?? [];
  search.take(pairs.filter(([name]) => name !== "k"));
  return /^\d+$/.test(k) ? Number(k) : null;
}

let unwritten = null;

// A reload or a bookmark returns to what is shown. k: null for the saved number of groups.
export function writeAddress(k) {
  clearTimeout(unwritten);
  unwritten = setTimeout(() => {
    const text = String(new URLSearchParams([...(k === null ? [] : [["k", k]]), ...search.pairs]));
    if (location.hash.slice(1) !== text) history.replaceState(null, "", `#${text}`);
  }, ADDRESS_AFTER);
}
