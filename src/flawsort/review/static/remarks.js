// What people say of groups and images besides what they show: how severe a flaw is, and notes.

import { askText } from "./dialogs.js";
import { el } from "./dom.js";
import { edit } from "./editing.js";
import { model } from "./model.js";

const LONGEST_NOTE = 500;
const SEVERITIES = { "": "Severity: not given", critical: "Critical", major: "Major", minor: "Minor", none: "No severity" };

// A badge with the severity of a group, or null.
export const severityBadge = ({ severity }) => (severity ? el("span", { class: `severity ${severity}` }, severity === "none" ? "no severity" : severity) : null);

// Choose how severe the flaws of a group are. null for a group without a flaw.
export function severityControl(group) {
  if (group.role !== "flaw") return null;
  const choices = Object.entries(SEVERITIES).map(([severity, words]) => el("option", { value: severity }, words));
  const change = () => edit("severity", { group: group.id, severity: select.value }, select.value ? `call ${group.title} ${select.value}` : `take back how severe ${group.title} is`);
  const select = el("select", { "aria-label": "Severity of the group", class: `role severity ${group.severity}`, onchange: change }, choices);
  select.value = group.severity;
  return select;
}

// A note as it is shown, or null.
export const noteOf = (text) => (text ? el("p", { class: "note" }, el("span", { class: "unseen" }, "Note: "), text) : null);

export async function noteOnGroup(id) {
  const group = model.group(id);
  const note = await askNote(`Note on ${group.title}`, group.note);
  if (note !== null && note !== group.note) await edit("note", { group: id, note }, `note on ${group.title}: “${note}”`);
}

export async function noteOnImage(row) {
  const before = model.note(row);
  const name = model.run.names[row];
  const note = await askNote(`Note on ${name}`, before);
  if (note !== null && note !== before) await edit("note", { image: row, note }, `note on ${name}: “${note}”`);
}

const askNote = (title, text) => askText(title, text, { label: "Note", longest: LONGEST_NOTE, hint: "Everybody who reviews this run reads it, and exports have it. Leave it empty to remove the note." });
