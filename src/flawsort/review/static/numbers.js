// The number keys: which kind of flaw each of 1 to 9 stands for. A group keeps its number while it exists, however
// the list is named, sorted or filtered, so a number never means another group all at once. Free numbers go to
// groups with a name first; a tenth named group takes the number of one without a name.

import { count } from "./dom.js";
import { model } from "./model.js";

const MOST = 9;
const place = () => `flawsort-numbers-${model.run.fingerprint}`;

let seen = null; // the state that the numbers were given for
let holders = []; // the id of the group of each number, or null; number 1 first
const wishes = new Map(); // the number that a group had, for when an undo brings it back

// The browser keeps the numbers, so that they outlast a reload.
function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(place()));
    if (Array.isArray(kept)) return kept.slice(0, MOST);
  } catch {
    // Nothing is kept, or the browser stores nothing.
  }
  return [];
}

function remember() {
  try {
    localStorage.setItem(place(), JSON.stringify(holders));
  } catch {
    // The numbers still hold until the page is left.
  }
}

function give(group) {
  const wish = wishes.get(group.id);
  const free = wish !== undefined && holders[wish] === null ? wish : holders.indexOf(null);
  if (free >= 0) holders[free] = group.id;
  else if (group.name) {
    const nameless = holders.findLastIndex((id) => !model.group(id).name);
    if (nameless >= 0) holders[nameless] = group.id;
  }
}

function update() {
  if (seen === model.state) return;
  const flaws = model.flaws();
  const there = new Set(flaws.map((group) => group.id));
  const before = seen === null ? remembered() : holders;
  seen = model.state;
  holders = Array.from({ length: MOST }, (_, at) => before[at] ?? null);
  holders.forEach((id, at) => {
    if (id === null) return;
    wishes.set(id, at);
    if (!there.has(id)) holders[at] = null;
  });
  for (const group of flaws) if (!holders.includes(group.id)) give(group);
  remember();
}

export const numbers = {
  // The number of a group as text; "" if it has none.
  of(id) {
    update();
    const at = holders.indexOf(id);
    return at < 0 ? "" : String(at + 1);
  },

  // The group with a number, or undefined.
  group(number) {
    update();
    return model.group(holders[number - 1]);
  },

  // The groups with a number, by number.
  groups() {
    update();
    return holders.filter((id) => id !== null).map(model.group);
  },

  none(number) {
    const n = model.flaws().length;
    return `No group has the number ${number}: ${n > MOST ? `nine of ${n} groups have one` : n ? `there ${n === 1 ? "is" : "are"} ${count(n, "group")}` : "there are no kinds of flaws yet"}. M picks a group by name.`;
  },
};
