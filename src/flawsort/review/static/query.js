// What is looked for, and in which order: shared by all pages that show images.

import { COLUMNS, ordered, ORDERS } from "./columns.js";
import { loaded, offered, sift } from "./conditions.js";
import { el } from "./dom.js";
import { announce } from "./messages.js";
import { model } from "./model.js";
import { Search } from "./search.js";

const FIRST = "-typical";
const SORT = "sort";

const columnOf = (sort) => sort.replace("-", "");

class Query extends Search {
  constructor() {
    super(COLUMNS);
    Object.assign(this, { sort: FIRST, sieve: null });
  }

  get missing() {
    const sorted = columnOf(this.sort);
    return loaded(COLUMNS[sorted]) ? super.missing : [...new Set([...super.missing, sorted])];
  }

  order(text) {
    this.sort = text;
    this.changed();
  }

  changed() {
    this.sieve = null;
    if (this.waits) this.fetch();
    super.changed();
  }

  async fetch() {
    for (const name of this.missing) {
      try {
        await COLUMNS[name].load();
      } catch (error) {
        announce(`Not filtered or sorted by ${COLUMNS[name].words.toLowerCase()}: ${error.message}`);
        this.conditions.delete(name);
        if (columnOf(this.sort) === name) this.sort = FIRST;
      }
      this.changed();
    }
  }

  // Which images meet the conditions, for the current groups: 1 or 0 for each.
  hits() {
    if (this.sieve?.state === model.state) return this.sieve.hits;
    const hits = new Uint8Array(model.run.n);
    if (!this.waits) for (const row of sift(hits.keys(), this.conditions, COLUMNS).kept) hits[row] = 1;
    this.sieve = { state: model.state, hits };
    return hits;
  }

  has(row) { return !this.filters || this.hits()[row] === 1; }

  // These rows, less those that miss a condition, in order.
  rows(rows) {
    if (this.waits) return [];
    const hits = this.filters ? this.hits() : null;
    return ordered(hits ? rows.filter((row) => hits[row]) : rows, this.sort);
  }

  // Take over what an address says. Returns what of it means nothing.
  read(params) {
    const before = this.text;
    const sort = params.get(SORT) ?? FIRST;
    const known = ORDERS.some((order) => order.text === sort);
    const wrong = this.take([...params].filter(([name]) => name !== SORT));
    this.sort = known ? sort : FIRST;
    if (this.text !== before) this.changed();
    return known ? wrong : [...wrong, `${SORT}=${sort}`];
  }

  // What an address says of it; "" if nothing is filtered and the order is the usual one.
  get text() {
    return String(new URLSearchParams([...this.pairs, ...(this.sort === FIRST ? [] : [[SORT, this.sort]])]));
  }
}

export const query = new Query();

// A field to choose the order.
export function orderControl() {
  const select = el("select", { "aria-label": "Order of the images", onchange: () => query.order(select.value) });
  const show = () => {
    const orders = ORDERS.filter(({ text }) => offered(COLUMNS[columnOf(text)]) || text === query.sort);
    if (select.length !== orders.length) select.replaceChildren(...orders.map(({ text, words }) => el("option", { value: text }, words)));
    select.value = query.sort;
  };
  query.watch(show);
  model.watch(show);
  show();
  return select;
}
