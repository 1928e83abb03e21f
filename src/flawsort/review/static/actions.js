// The actions on images and groups, shared by keys and buttons.

import { askName, pickGroup, pickKinds } from "./dialogs.js";
import { count } from "./dom.js";
import { edit } from "./editing.js";
import { announce } from "./messages.js";
import { model } from "./model.js";
import { selection } from "./selection.js";
import { splitByTree } from "./splitting.js";

// Set by the page in view. group(): the id of the group shown, or null. row(): the image with the keyboard
// focus, or null: a key must only move an image that the user sees marked. opened: the image that is open
// in the large view; it takes precedence over the focus and the selection. show(id): goes to a group.
export const focus = { group: () => null, row: () => null, opened: null, show: () => {} };

const ROLE_WORDS = { normal: "Normal", unsure: "Unsure" };

// The images that an action applies to: the open one, the selected ones, or the one in focus.
export function targets() {
  if (focus.opened !== null) return [focus.opened];
  if (selection.size) return selection.rows();
  const row = focus.row();
  return row === null || row === undefined ? [] : [row];
}

function wanted(rows) {
  if (rows.length) return rows;
  announce("Select an image first: click it, or press Space on it.");
  return null;
}

function groupWanted() {
  const id = focus.opened !== null ? model.groupOf(focus.opened) : focus.group();
  const group = model.group(id);
  if (!group) announce("Choose a group in the list first.");
  return group;
}

async function done(promise) {
  const state = await promise;
  // Clear the selection only after the edit is saved, so that a failed edit keeps it.
  if (state && focus.opened === null) selection.clear();
  return state;
}

const titleOf = (to, name) => (to === "new" ? name || "a new group" : ROLE_WORDS[to] ?? model.title(to));

export function move(rows, to, name = "") {
  if (!wanted(rows)) return null;
  const payload = { images: rows, to, ...(to === "new" && name ? { name } : {}) };
  return done(edit("move", payload, `move ${count(rows.length, "image")} to ${titleOf(to, name)}`));
}

const roleExtras = () =>
  ["normal", "unsure"].filter((role) => !model.firstOf(role)).map((role) => ({ value: role, id: role === "normal" ? 0 : 1, words: ROLE_WORDS[role], note: "none yet" }));

export const actions = {
  moveTo: (to) => move(targets(), to),

  // The nth kind of flaw, as numbered in the list.
  moveToNth(nth) {
    const group = model.flaws()[nth - 1];
    return group ? move(targets(), group.id) : announce(`There is no group number ${nth}.`);
  },

  async pick() {
    const rows = wanted(targets());
    if (!rows) return;
    const answer = await pickGroup(`Move ${count(rows.length, "image")} to`, { extras: roleExtras(), fresh: true });
    if (answer) await move(rows, answer.to, answer.name);
  },

  async accept() {
    if (focus.opened !== null || selection.size) {
      const rows = targets();
      return done(edit("accept", { images: rows }, `accept ${count(rows.length, "image")}`));
    }
    const group = groupWanted();
    return group && edit("accept", { group: group.id }, `accept all of ${group.title}`);
  },

  // Selected images become a new group. Without a selection, the group is split along the tree.
  async split() {
    const rows = focus.opened !== null || selection.size ? targets() : [];
    if (!rows.length) {
      const group = groupWanted();
      if (!group) return;
      if (group.n < 2) announce(`${group.title} has too few images to be split.`);
      else await splitByTree(group);
      return;
    }
    const name = await askName(`New group of ${count(rows.length, "image")}`, "", "The name is optional.");
    if (name === null) return;
    const from = new Set(rows.map(model.groupOf));
    const [id] = from;
    if (from.size > 1 || rows.length === model.group(id).n) return void (await move(rows, "new", name));
    const payload = { group: id, images: rows, ...(name ? { name } : {}) };
    await done(edit("split", payload, `split ${count(rows.length, "image")} off ${model.title(id)}`));
  },

  async merge() {
    const group = groupWanted();
    if (!group) return;
    const answer = await pickGroup(`Merge ${group.title} into`, { exclude: [group.id] });
    if (!answer) return;
    const words = `merge ${group.title} into ${model.title(answer.to)}`;
    if (await edit("merge", { groups: [group.id], into: answer.to }, words)) focus.show(answer.to);
  },

  async rename() {
    const group = groupWanted();
    if (!group) return;
    const name = await askName(`Name of ${group.title}`, group.name);
    if (name !== null && name !== group.name) await edit("name", { group: group.id, name }, `name ${group.title} “${name}”`);
  },

  role: (group, role) => edit("role", { group: group.id, role }, `make ${group.title} ${role === "flaw" ? "a kind of flaw" : role}`),

  async several() {
    const rows = wanted(targets());
    if (!rows) return;
    const own = new Set(rows.map(model.groupOf));
    const chosen = [...new Set(rows.flatMap((row) => model.kinds(row).slice(1)))];
    const title = rows.length === 1 ? "Several kinds" : `Several kinds for ${count(rows.length, "image")}`;
    const ids = await pickKinds(title, own.size === 1 ? [...own][0] : null, chosen);
    if (ids) await done(edit("several", { images: rows, groups: ids }, `give ${count(rows.length, "image")} ${ids.length ? "several kinds" : "one kind only"}`));
  },
};
