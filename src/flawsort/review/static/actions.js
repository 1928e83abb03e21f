// The actions on images and groups, shared by keys and buttons.

import { askName, pickGroup, pickKinds } from "./dialogs.js";
import { count } from "./dom.js";
import { edit } from "./editing.js";
import { announce } from "./messages.js";
import { model } from "./model.js";
import { insteadOfNew, mergeGroups, nameGroup, setRole } from "./naming.js";
import { numbers } from "./numbers.js";
import { noteOnImage } from "./remarks.js";
import { selection } from "./selection.js";
import { splitByTree } from "./splitting.js";

// Set by the page in view. group(): the id of the group shown, or null. row(): the image with the keyboard
// focus, or null: a key must only move an image that the user sees marked. opened: the image that is open
// in the large view; it takes precedence over the focus and the selection. decided(): called when it was answered for.
// shown(row): whether the page shows an
// image. show(id): goes to a group.
export const focus = { group: () => null, row: () => null, opened: null, decided: null, shown: () => false, show: () => {} };

const ROLE_WORDS = { normal: "Normal", unsure: "Unsure" };
const NO_NAME = "The name is optional.";

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

// next: whether the open image has its answer now, so that the next one comes.
async function done(promise, next = true) {
  const state = await promise;
  // Clear the selection only after the edit is saved, so that a failed edit keeps it.
  if (state && focus.opened === null) selection.clear();
  else if (state && next) focus.decided?.();
  return state;
}

const titleOf = (to, name) => (to === "new" ? name || "a new group" : ROLE_WORDS[to] ?? model.title(to));

export function move(rows, to, name = "") {
  if (!wanted(rows)) return null;
  const payload = { images: rows, to, ...(to === "new" && name ? { name } : {}) };
  const refused = to === "new" ? orJoin(rows, name, (other) => move(rows, "new", other)) : null;
  return done(edit("move", payload, `move ${count(rows.length, "image")} to ${titleOf(to, name)}`, { refused }));
}

// For images that become a group: if its name is taken, they may join the group that has it. make(name): tries another.
function orJoin(rows, name, make) {
  const what = count(rows.length, "image");
  const again = async () => {
    const other = await askName(`New group of ${what}`, name, NO_NAME);
    return other === null ? null : make(other);
  };
  return insteadOfNew(name, what, { join: (to) => move(rows, to), again });
}

// Decides that images are what they are shown as, and exactly these.
export function acceptRows(rows) {
  if (!wanted(rows)) return null;
  return done(edit("accept", { images: rows }, `accept ${count(rows.length, "image")}`));
}

function byGroup(rows) {
  const found = new Map();
  for (const row of rows) {
    const id = model.groupOf(row);
    if (!found.has(id)) found.set(id, []);
    found.get(id).push(row);
  }
  return found;
}

function splitOff(rows, name) {
  const from = new Set(rows.map(model.groupOf));
  const [id] = from;
  if (from.size > 1 || rows.length === model.group(id).n) return move(rows, "new", name);
  const payload = { group: id, images: rows, ...(name ? { name } : {}) };
  const refused = orJoin(rows, name, (other) => splitOff(rows, other));
  return done(edit("split", payload, `split ${count(rows.length, "image")} off ${model.title(id)}`, { refused }));
}

const roleExtras = () =>
  ["normal", "unsure"].filter((role) => !model.firstOf(role)).map((role) => ({ value: role, id: role === "normal" ? 0 : 1, words: ROLE_WORDS[role], note: "none yet" }));

export const actions = {
  moveTo: (to) => move(targets(), to),

  // The kind of flaw with that number beside it in the list.
  moveToNumber(number) {
    const group = numbers.group(number);
    return group ? move(targets(), group.id) : announce(numbers.none(number));
  },

  async pick() {
    const rows = wanted(targets());
    if (!rows) return;
    const answer = await pickGroup(`Move ${count(rows.length, "image")} to`, { extras: roleExtras(), fresh: true });
    if (answer) await move(rows, answer.to, answer.name);
  },

  accept: () => acceptRows(targets()),

  // These images are not of the group that they are shown in: the model learns from that, too.
  async reject() {
    const rows = wanted(targets());
    if (!rows) return null;
    let state = null;
    for (const [group, images] of byGroup(rows)) {
      state = await edit("reject", { images, group }, `say that ${count(images.length, "image")} is not ${model.title(group)}`);
      if (!state) return null;
    }
    return done(state);
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
    const name = await askName(`New group of ${count(rows.length, "image")}`, "", NO_NAME);
    if (name !== null) await splitOff(rows, name);
  },

  async merge() {
    const group = groupWanted();
    if (!group) return;
    const answer = await pickGroup(`Merge ${group.title} into`, { exclude: [group.id] });
    if (!answer) return;
    if (await mergeGroups(group.id, answer.to)) focus.show(answer.to);
  },

  async rename() {
    const group = groupWanted();
    if (!group) return;
    const name = await askName(`Name of ${group.title}`, group.name);
    if (name !== null && name !== group.name) await nameGroup(group, name);
  },

  role: setRole,

  // A note on one image.
  note() {
    const rows = wanted(targets());
    if (!rows) return null;
    return rows.length > 1 ? announce("A note is on one image. Select one, or none.") : noteOnImage(rows[0]);
  },

  async several() {
    const rows = wanted(targets());
    if (!rows) return;
    const own = new Set(rows.map(model.groupOf));
    const chosen = [...new Set(rows.flatMap((row) => model.kinds(row).slice(1)))];
    const title = rows.length === 1 ? "Several kinds" : `Several kinds for ${count(rows.length, "image")}`;
    const ids = await pickKinds(title, own.size === 1 ? [...own][0] : null, chosen);
    if (ids) await done(edit("several", { images: rows, groups: ids }, `give ${count(rows.length, "image")} ${ids.length ? "several kinds" : "one kind only"}`), false);
  },
};
