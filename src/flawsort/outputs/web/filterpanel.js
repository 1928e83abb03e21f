// The filter panel: a field for each column, each with the number of images there would be.

import { loaded, offered, sift } from "./conditions.js";
import { button, count, el, soon } from "./dom.js";
import { FIELDS } from "./filterfields.js";
import { modal } from "./modal.js";

// search: a Search. rows(): the images to filter. skip: names of columns that make no sense for them. at: the column to
// begin with. Resolves when the panel is closed.
export function openFilters(search, { rows, skip }, at = "name") {
  const { columns } = search;
  const box = modal("Filters", "filters");
  const names = Object.keys(columns).filter((name) => columns[name].kind && !skip.includes(name) && (offered(columns[name]) || search.conditions.has(name)));
  const sections = new Map(names.map((name) => [name, section(search, name)]));
  const done = button("", () => box.done(null), { css: "primary" });
  const clear = button("Clear all", () => { search.clear(); for (const one of sections.values()) one.again(); }, { css: "quiet" });
  const draw = soon(() => {
    const { kept, only } = sift(rows(), search.waits ? new Map() : search.conditions, columns);
    for (const [name, one] of sections) one.draw(only.has(name) ? [...kept, ...only.get(name)] : kept);
    done.textContent = kept.length || !search.filters ? `Show ${count(kept.length, "image")}` : "No image is left";
    clear.disabled = !search.filters;
  });
  box.node.append(el("div", { class: "filter-fields" }, [...sections.values()].map((one) => one.node)), el("div", { class: "box-foot" }, clear, done));
  const stop = search.watch(draw);
  draw();
  const closed = box.open().then(stop);
  sections.get(sections.has(at) ? at : names[0]).focus();
  return closed;
}

function section(search, name) {
  const column = search.columns[name];
  let field = null;
  const body = el("div", { class: "filter-body" });
  const head = el("summary", {}, column.words);
  const node = el("details", { class: `filter-field of-${column.kind}`, open: !column.closed || search.conditions.has(name) }, head, body);
  const words = el("p", { class: "hint" });
  let rows = null;

  function make() {
    field = FIELDS[column.kind](column, search.conditions.get(name) ?? null, (condition) => search.set(name, condition));
    body.replaceChildren(...(column.hint ? [el("p", { class: "hint" }, column.hint)] : []), field.node);
    if (rows) field.draw(rows);
  }

  async function show() {
    if (!node.open || field) return;
    if (!loaded(column)) {
      body.replaceChildren(words);
      words.textContent = "Reading…";
      try {
        await column.load();
      } catch (error) {
        words.textContent = error.message;
        return;
      }
    }
    make();
  }

  node.addEventListener("toggle", show);
  show();
  return {
    node,
    draw(found) { rows = found; node.classList.toggle("on", search.conditions.has(name)); if (field && node.open) field.draw(found); },
    again() { field = null; show(); },
    focus() { node.open = true; show(); (body.querySelector("input:not([hidden])") ?? head).focus(); },
  };
}
