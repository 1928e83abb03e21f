// Dialogs that ask for a name, a group or several groups. Each returns a promise; null means cancelled.

import { button, count, el } from "./dom.js";
import { mark } from "./marks.js";
import { modal } from "./modal.js";
import { model } from "./model.js";

export const LONGEST_NAME = 200;

export const askName = (title, value = "", hint = "Leave it empty to remove the name.") => askText(title, value, { label: "Name", hint, longest: LONGEST_NAME });

// Ask for a line of text. label: of the field. longest: in characters.
export function askText(title, value, { label, hint, longest }) {
  const box = modal(title, "narrow");
  const input = el("input", { type: "text", maxlength: longest, "aria-label": label, autocomplete: "off", spellcheck: "false" });
  input.value = value;
  const form = el("form", { method: "dialog" }, input, el("p", { class: "hint" }, hint),
    el("div", { class: "row end" }, button("Cancel", () => box.done(null)), el("button", { class: "primary" }, "Save")));
  form.addEventListener("submit", (event) => { event.preventDefault(); box.done(input.value.trim()); });
  box.node.append(form);
  const promise = box.open();
  input.select();
  return promise;
}

// Ask to choose one of several answers: {value, words, css}. Enter takes the first.
export function choose(title, text, answers) {
  const box = modal(title, "narrow");
  const buttons = answers.map(({ value, words, css }) => button(words, () => box.done(value), { css }));
  box.node.append(el("p", {}, text), el("div", { class: "row end" }, button("Cancel", () => box.done(null), { css: "quiet" }), buttons.reverse()));
  const promise = box.open();
  buttons.at(-1).focus();
  return promise;
}

function option(choice, index) {
  const css = `option${choice.css ? ` ${choice.css}` : ""}`;
  return el("li", { class: css, role: "option", id: `choice-${index}`, "aria-selected": "false" },
    choice.id === null ? el("span", { class: "plus", "aria-hidden": "true" }, "+") : mark(choice.id),
    el("span", { class: "clip" }, choice.words), el("span", { class: "soft" }, choice.note));
}

// The choices that match the typed text. extras: additional choices, such as normal and unsure.
function choicesFor(typed, { exclude, extras, fresh }) {
  const wanted = typed.trim().toLowerCase();
  const groups = model.groups
    .filter((group) => !exclude.includes(group.id))
    .map((group) => ({ value: group.id, id: group.id, words: group.title, note: count(group.n, "image") }));
  const all = [...groups, ...extras].filter((choice) => choice.words.toLowerCase().includes(wanted));
  // Titles that start with the typed text come first.
  all.sort((a, b) => b.words.toLowerCase().startsWith(wanted) - a.words.toLowerCase().startsWith(wanted));
  if (fresh && !all.some((choice) => wanted && choice.words.toLowerCase() === wanted)) all.push({ value: "new", id: null, css: "fresh", words: wanted ? `New group “${typed.trim()}”` : "New group", note: "" });
  return all;
}

// Pick a group by typing part of its title. Resolves to {to, name}. to: the id of a group, the value of an
// extra, or "new". name: the typed text, for a new group.
export function pickGroup(title, { exclude = [], extras = [], fresh = false } = {}) {
  const box = modal(title, "narrow");
  const list = el("ul", { class: "options", role: "listbox", id: "choices", "aria-label": "Groups" });
  const input = el("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "choices", "aria-label": "Group name",
    placeholder: "Type part of a group name", autocomplete: "off", spellcheck: "false", maxlength: LONGEST_NAME,
  });
  let [choices, at] = [[], 0];
  const point = (index) => {
    at = Math.max(0, Math.min(choices.length - 1, index));
    [...list.children].forEach((node, i) => node.setAttribute("aria-selected", String(i === at)));
    list.children[at]?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", `choice-${at}`);
  };
  const take = (index) => choices[index] && box.done({ to: choices[index].value, name: input.value.trim() });
  const draw = () => {
    choices = choicesFor(input.value, { exclude, extras, fresh });
    list.replaceChildren(...(choices.length ? choices.map(option) : [el("li", { class: "empty" }, "No group has that name.")]));
    [...list.querySelectorAll(".option")].forEach((node, i) => node.addEventListener("click", () => take(i)));
    point(0);
  };
  input.addEventListener("input", draw);
  input.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (by) point(at + by);
    else if (event.key === "Enter") take(at);
    else return;
    event.preventDefault();
  });
  box.node.append(input, list);
  draw();
  const promise = box.open();
  input.focus();
  return promise;
}

// Tick the other kinds of some images. own: their group, which always counts.
export function pickKinds(title, own, chosen) {
  const box = modal(title, "narrow");
  const boxes = model.groups.filter((group) => group.role === "flaw" && group.id !== own).map((group) => {
    const input = el("input", { type: "checkbox", value: group.id });
    input.checked = chosen.includes(group.id);
    return { input, node: el("label", { class: "option" }, input, mark(group.id), el("span", { class: "clip" }, group.title), el("span", { class: "soft" }, count(group.n, "image"))) };
  });
  const form = el("form", { method: "dialog" },
    el("p", { class: "hint" }, "Besides its own group, the image also shows:"),
    el("div", { class: "options" }, boxes.length ? boxes.map(({ node }) => node) : "There is no other kind of flaw."),
    el("div", { class: "row end" }, button("Cancel", () => box.done(null)), el("button", { class: "primary" }, "Save")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    box.done(boxes.filter(({ input }) => input.checked).map(({ input }) => Number(input.value)));
  });
  box.node.append(form);
  const promise = box.open();
  (boxes[0]?.input ?? box.node.querySelector("button")).focus();
  return promise;
}
