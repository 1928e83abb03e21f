// Conditions on images: which ones a filter keeps, as text for an address and in words.
//
// A condition belongs to a column:
//   words       what the column is called
//   kind        "text", "number" or "choice"
//   of(row)     its value: a text; a number, or null where there is none; for a choice a list of keys (texts)
//   title(key)  a key of a choice in words
//   options()   the keys of a choice, in order; groups: whether they are ids of groups
//   show(value) a number in words; unit: what it counts, optional
//   hint        a sentence about it, optional
//   shown()     whether it is offered; without it, always
//   load(), loaded()   for values that are fetched when they are first needed
//   closed      whether its field is closed until a click
// A condition on a text is a part of it, on a number [from, to] (null: no limit), on a choice a Set of keys.

export const offered = (column) => column.shown?.() ?? true;
export const loaded = (column) => column.loaded?.() ?? true;

const LIMITS = /^(-?\d+(?:\.\d+)?)?\.\.(-?\d+(?:\.\d+)?)?$/;

// The conditions in the pairs of an address, by the name of their column, and the pairs that are none.
export function readConditions(pairs, columns) {
  const [found, wrong] = [new Map(), []];
  for (const [name, text] of pairs) {
    const kind = Object.hasOwn(columns, name) ? columns[name].kind : undefined;
    const limits = kind === "number" ? LIMITS.exec(text) : null;
    if (kind === "text" && text.trim()) found.set(name, text);
    else if (kind === "choice") found.set(name, new Set([...(found.get(name) ?? []), text]));
    else if (limits && (limits[1] ?? limits[2]) !== undefined) found.set(name, [numberOf(limits[1]), numberOf(limits[2])]);
    else wrong.push(`${name}=${text}`);
  }
  return { found, wrong };
}

const numberOf = (text) => (text === undefined ? null : Number(text));

// The conditions as pairs for an address; readConditions reads them back.
export function conditionPairs(conditions) {
  return [...conditions].flatMap(([name, condition]) => {
    if (typeof condition === "string") return [[name, condition]];
    if (Array.isArray(condition)) return [[name, condition.map((limit) => limit ?? "").join("..")]];
    return [...condition].map((key) => [name, key]);
  });
}

// A condition in words, without the name of its column.
export function conditionWords(column, condition) {
  if (typeof condition === "string") return `“${condition.trim()}”`;
  if (!Array.isArray(condition)) return [...condition].map(column.title).join(" or ");
  const [from, to] = condition.map((limit) => (limit === null ? null : column.show(limit)));
  return from === null ? `at most ${to}` : to === null ? `at least ${from}` : `${from} to ${to}`;
}

// A function that tells whether an image meets one condition.
export function meets(column, condition) {
  if (typeof condition === "string") {
    const part = condition.trim().toLowerCase();
    return (row) => column.of(row).toLowerCase().includes(part);
  }
  if (!Array.isArray(condition)) return (row) => column.of(row).some((key) => condition.has(key));
  const [from, to] = [condition[0] ?? -Infinity, condition[1] ?? Infinity];
  return (row) => { const value = column.of(row); return value !== null && value >= from && value <= to; };
}

// The rows that meet all conditions; and by column the rows that miss its condition only: with these, one can
// tell how many there would be for another choice.
export function sift(rows, conditions, columns) {
  const tests = [...conditions].map(([name, condition]) => [name, meets(columns[name], condition)]);
  const [kept, only] = [[], new Map(tests.map(([name]) => [name, []]))];
  for (const row of rows) {
    let missed = null;
    let several = false;
    for (const [name, test] of tests) {
      if (test(row)) continue;
      if (missed !== null) { several = true; break; }
      missed = name;
    }
    if (missed === null) kept.push(row);
    else if (!several) only.get(missed).push(row);
  }
  return { kept, only };
}

// The number of images with each key of a choice.
export function tally(column, rows) {
  const counts = new Map();
  for (const row of rows) for (const key of column.of(row)) counts.set(key, (counts.get(key) ?? 0) + 1);
  return counts;
}
