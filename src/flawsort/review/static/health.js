// What the health check found: shown above the groups until somebody has read it, and always on the accuracy page.

import { button, count, el } from "./dom.js";
import { model } from "./model.js";
import { selection } from "./selection.js";

const place = () => `flawsort-health-${model.run.fingerprint}`;
let read = null; // of which run it was read on this page, if the browser stores nothing

const ABOUT_GROUPS = ["single-images", "groups-follow", "group-follows", "unsteady-groups"];
const OF_ONE = ["group-follows", "unsteady-groups"];

// Whether the groups are those that were looked at: another cut gives others with the same numbers.
const sameCut = () => model.state.k === model.run.k.saved;

// The findings about single groups that most images of a group are among.
export function findingsOf(id) {
  const found = sameCut() ? (model.run.health?.findings ?? []).filter((one) => OF_ONE.includes(one.code) && one.rows.length) : [];
  if (!found.length) return [];
  const members = model.members.get(id) ?? [];
  return found.filter(({ rows }) => {
    const about = new Set(rows);
    return 2 * members.filter((row) => about.has(row)).length > members.length;
  });
}

// A mark beside the name of a group with such a finding.
export function findingMark(id) {
  const found = findingsOf(id);
  if (!found.length) return null;
  const words = found.map((one) => one.sentence).join(" ");
  return el("span", { class: "finding-mark", role: "img", title: words, "aria-label": words }, "!");
}

function wasRead() {
  try {
    return read === model.run.fingerprint || localStorage.getItem(place()) !== null;
  } catch {
    return false;
  }
}

function setRead() {
  read = model.run.fingerprint;
  try {
    localStorage.setItem(place(), "read");
  } catch {
    // It is shown again after a reload.
  }
}

// The notice; none once it was read. shell: goes to a page. done: called when it was read.
export function healthNotice(shell, done) {
  const findings = model.run.health?.findings ?? [];
  if (!findings.length || wasRead()) return [];
  const close = () => { setRead(); done(); };
  return [el("section", { class: "notice health", "aria-label": "Before you trust the groups" },
    el("div", { class: "row" }, el("strong", {}, "Before you trust the groups"),
      button("Got it", close, { css: "primary" }), el("span", { class: "hint" }, "You find this again under Accuracy.")),
    listOf(findings, shell))];
}

// All findings, and what was not looked at.
export function healthSection(shell) {
  const { health } = model.run;
  const lead = "What can be seen without any answer: where the heat lies, what the groups follow, and whether they hold.";
  if (!health) return el("section", {}, el("h2", {}, "Before you trust the groups"), el("p", { class: "hint" }, "This run is of an older version, which did not look."));
  return el("section", { class: "health" }, el("h2", {}, "Before you trust the groups"), el("p", { class: "hint" }, lead),
    health.findings.length ? listOf(health.findings, shell) : el("p", {}, "Nothing was found that speaks against them."),
    health.not_looked_at.map((words) => el("p", { class: "hint" }, words)));
}

function listOf(findings, shell) {
  return el("ul", {}, findings.map((one) => el("li", {}, ofCut(one), one.sentence, " ", el("span", { class: "soft" }, one.advice), " ", shown(one, shell))));
}

// Which groups a finding is about, if they are no longer those that are shown.
function ofCut({ code }) {
  if (sameCut() || !ABOUT_GROUPS.includes(code)) return "";
  return `Of the first ${count(model.run.k.saved, "group")}, not of those shown now: `;
}

// Takes people to the images that a finding is about.
function shown({ group, rows }, shell) {
  if (group !== null && sameCut() && model.group(group)?.n) return button("Show the group", () => shell.go("groups", [group]), { css: "quiet" });
  if (!rows.length || rows.length === model.run.n) return "";
  // Another page or group begins without a selection.
  const select = () => { shell.go("groups", ["all"]); selection.all(rows); };
  return button(`Select ${count(rows.length, "image")}`, select, { css: "quiet" });
}
