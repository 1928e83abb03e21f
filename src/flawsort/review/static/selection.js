// The selected images as rows of the run, shared by all pages.

const listeners = new Set();
let rows = new Set();
let anchor = null;

function changed(next) {
  rows = next;
  for (const listener of listeners) listener();
}

export const selection = {
  watch(listener) { listeners.add(listener); },
  get size() { return rows.size; },
  has: (row) => rows.has(row),
  rows: () => [...rows].sort((a, b) => a - b),

  only(row) { anchor = row; changed(new Set([row])); },
  all(chosen) { changed(new Set(chosen)); },
  add(more) { changed(new Set([...rows, ...more])); },
  // Keep those for which `keep(row)` holds.
  within(keep) {
    const kept = [...rows].filter(keep);
    if (kept.length < rows.size) changed(new Set(kept));
  },
  clear() { anchor = null; if (rows.size) changed(new Set()); },

  toggle(row) {
    anchor = row;
    const next = new Set(rows);
    if (!next.delete(row)) next.add(row);
    changed(next);
  },

  // Select from the anchor to `row`, in the order of `list`.
  reach(row, list) {
    const [from, to] = [list.indexOf(anchor), list.indexOf(row)];
    if (from < 0 || to < 0) return selection.only(row);
    changed(new Set(list.slice(Math.min(from, to), Math.max(from, to) + 1)));
  },
};
