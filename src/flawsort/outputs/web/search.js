// What is looked for: conditions on the columns of images, and who is told of changes.

import { conditionPairs, loaded, readConditions } from "./conditions.js";

function nothing(condition) {
  if (condition === null) return true;
  if (typeof condition === "string") return !condition.trim();
  return Array.isArray(condition) ? condition.every((limit) => limit === null) : !condition.size;
}

export class Search {
  // columns: by name, as conditions.js has them.
  constructor(columns) {
    Object.assign(this, { columns, conditions: new Map(), listeners: new Set() });
  }

  // Calls `listener` after each change. Returns a function that stops it.
  watch(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  get filters() { return this.conditions.size > 0; }

  // The columns in use whose values must be fetched first. Until they are here, nothing is found.
  get missing() { return [...this.conditions.keys()].filter((name) => !loaded(this.columns[name])); }
  get waits() { return this.missing.length > 0; }

  // condition: null or an empty one for none.
  set(name, condition) {
    if (!nothing(condition)) this.conditions.set(name, condition);
    else if (!this.conditions.delete(name)) return;
    this.changed();
  }

  clear() {
    if (!this.filters) return;
    this.conditions.clear();
    this.changed();
  }

  // The conditions as pairs for an address.
  get pairs() { return conditionPairs(this.conditions); }

  // Take over the pairs of an address, without telling anybody. Returns those that mean nothing.
  take(pairs) {
    const { found, wrong } = readConditions(pairs, this.columns);
    this.conditions = found;
    return wrong;
  }

  changed() {
    for (const listener of [...this.listeners]) listener();
  }
}
