// Split a group where the tree first divides it, with a preview of the parts.

import { api } from "./api.js";
import { button, count, el } from "./dom.js";
import { edit, reading } from "./editing.js";
import { mark } from "./marks.js";
import { modal } from "./modal.js";
import { model, mostTypical } from "./model.js";
import { square } from "./pictures.js";

const MOST_PARTS = 6;
const SHOWN = 10;

function partOf(rows, index, group) {
  const title = index ? "New group" : group.title;
  const thumbs = mostTypical(rows).slice(0, SHOWN).map((row) => square(row));
  return el("section", { class: "part" },
    el("h3", {}, index ? el("span", { class: "plus", "aria-hidden": "true" }, "+") : mark(group.id), `${title} · ${count(rows.length, "image")}`),
    el("div", { class: "strip" }, thumbs));
}

// Ask for the number of parts. The largest keeps the group's name; every other part becomes a new group.
export async function splitByTree(group) {
  const box = modal(`Split ${group.title}`, "wide");
  const body = el("div", { class: "parts", "aria-live": "polite" });
  const most = Math.min(MOST_PARTS, group.n);
  const words = el("output", { class: "strong" });
  let parts = null;
  const yes = button("Split", () => parts && box.done(parts), { css: "primary" });
  const load = async (wanted) => {
    parts = null;
    yes.disabled = true;
    words.textContent = count(wanted, "part");
    const found = await reading(api.split(group.id, wanted));
    if (!found || words.textContent !== count(wanted, "part")) return;
    parts = [...found.parts].sort((a, b) => b.length - a.length);
    yes.disabled = parts.length < 2;
    body.replaceChildren(...parts.map((rows, index) => partOf(rows, index, group)));
  };
  const slider = el("input", { type: "range", min: 2, max: most, value: 2, "aria-label": "Number of parts", oninput: () => load(Number(slider.value)) });
  slider.addEventListener("keydown", (event) => { if (event.key === "Enter") yes.click(); });
  box.node.append(
    el("p", { class: "hint" }, "The group is split where its tree of merges first divides it. The largest part keeps the name."),
    most > 2 ? el("div", { class: "row" }, words, slider) : words, body,
    el("div", { class: "row end" }, button("Cancel", () => box.done(null)), yes));
  load(2);
  const answer = box.open();
  slider.focus();
  const chosen = await answer;
  if (!chosen) return;
  for (const rows of chosen.slice(1)) {
    // Each part is a separate edit, so each can be undone separately.
    if (!model.group(group.id)) return;
    await edit("split", { group: group.id, images: rows }, `split ${count(rows.length, "image")} off ${group.title}`);
  }
}
