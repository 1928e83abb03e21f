// Sends edits to the server, one at a time. None is lost, and none overwrites somebody else's edit.

import { api, Conflict, Lost, Refused } from "./api.js";
import { $, button, count, el } from "./dom.js";
import { announce } from "./messages.js";
import { model } from "./model.js";
import { person } from "./person.js";
import { stands } from "./standing.js";

const MOST_TRIES = 20;
const ANSWERS = ["accept", "reject", "move", "several", "split", "name", "answer"];
const waiting = []; // sent or to be sent, not yet answered
let stuck = []; // edits stopped by a conflict or a lost server, until the user decides
let busy = false;
let lost = false;
let replaced = false; // the run is another one now
const onBack = new Set();

// Calls `listener` when a server that was lost answers again.
export const whenBack = (listener) => onBack.add(listener);

// Resolves to the new state, or to null if the edit was not saved. words: describes the edit in
// messages about a failure. refused(error): handles a refusal; resolves as the edit does, or is null if it does not.
// sentence: what an undo or redo is about.
export function edit(kind, payload, words, { refused, sentence } = {}) {
  if (lost || replaced) {
    announce(`Not saved, because ${replaced ? "the run was replaced" : "the server does not answer"}: ${words}`);
    return Promise.resolve(null);
  }
  if (!person.known) return named(kind, payload, words, { refused, sentence });
  return new Promise((resolve) => {
    waiting.push({ kind, payload, words, refused, sentence, resolve, tries: 0 });
    pump();
  });
}

// The first edit in a browser waits until somebody has said who makes it.
async function named(kind, payload, words, options) {
  if (await person.ask()) return edit(kind, payload, words, options);
  announce(`Not saved, because nobody said who makes it: ${words}`);
  return null;
}

// The last edit of this person that is in force, and the last one that they undid: {seq, words} or null. Edits
// without a name are everybody's.
export function ownSteps() {
  const { own } = model.state;
  const [mine, nobodys] = [own[person.name ?? ""], own[""]];
  const last = [mine?.undo, nobodys?.undo].filter(Boolean).sort((a, b) => b.seq - a.seq)[0];
  return { undo: last ?? null, redo: mine?.redo ?? nobodys?.redo ?? null };
}

export const undo = () => step("undo");
export const redo = () => step("redo");

// What it is about is only known once all edits before it are saved.
function step(kind) {
  if (waiting.length || ownSteps()[kind]) return edit(kind, null, `${kind} your last change`);
  announce(`There is nothing of yours to ${kind}.`);
  return null;
}

function aim(one) {
  const found = ownSteps()[one.kind];
  if (!found) throw new Refused(`there is nothing of yours to ${one.kind}.`);
  Object.assign(one, { payload: { of: found.seq }, sentence: found.words, words: `${one.kind} “${found.words}”` });
}

function send({ kind, payload }) {
  const { version, basis } = model.state;
  const on = { version, basis, author: person.name ?? "" };
  if (kind === "undo" || kind === "redo") return api[kind](on, payload);
  if (kind === "answer") return api.answer(on, payload);
  return api.edit(on, kind, payload);
}

async function pump() {
  if (busy) return;
  busy = true;
  while (waiting.length) {
    const one = waiting[0];
    try {
      const before = model.state;
      if (one.payload === null) aim(one);
      const state = await send(one);
      waiting.shift();
      model.update(state, { mine: true });
      one.resolve(state);
      report(one, before, state);
      holdOn(one, before, state);
    } catch (error) {
      await notDone(one, error);
    }
  }
  busy = false;
}

// An answer can hold edits of others, which nobody saw who made the edits that still wait.
function holdOn(one, before, state) {
  if (state.version === before.version + 1 || waiting.every((each) => stands(each, before, state))) return;
  stop();
  ask("Somebody else changed these groups first. Not saved yet, and nothing was overwritten: ", "Apply it now");
}

function report(one, before, state) {
  if (one.kind === "undo") announce(`Undone: ${one.sentence}`);
  else if (one.kind === "redo") announce(`Redone: ${one.sentence}`);
  else announce(`Saved: ${state.undo}${moved(one, before, state)}`, { undo });
}

// How many other images an answer moved, because of what it taught. A merge or a cut moves images by itself.
function moved({ kind, payload }, before, state) {
  // What others did in between moved images, too.
  if (!ANSWERS.includes(kind) || state.version !== before.version + 1) return "";
  const own = new Set(payload.images ?? []);
  const n = state.labels.filter((id, row) => id !== before.labels[row] && !own.has(row)).length;
  return n ? ` · ${count(n, "image")} moved by this answer` : "";
}

async function notDone(one, error) {
  if (error instanceof Lost) return lose();
  if (!(error instanceof Conflict)) {
    waiting.shift();
    const instead = one.refused?.(error);
    if (instead) return void instead.then(one.resolve);
    one.resolve(null);
    return void announce(`Not saved: ${error.message}`);
  }
  const before = model.state;
  stop();
  try {
    if (!shown(await api.state())) return;
  } catch {
    return lose();
  }
  // Several people answer at once: what nobody else touched is as the person saw it, and is sent again.
  if (stuck.every((each) => each.tries < MOST_TRIES && stands(each, before, model.state))) {
    for (const each of stuck) each.tries++;
    return void waiting.push(...stuck.splice(0));
  }
  const last = model.state.undo ? ` The last change is “${model.state.undo}”.` : "";
  return ask(`Somebody else changed these groups first.${last} Your change was not saved, and nothing was overwritten: `, "Apply it now");
}

// Drops waiting undos and redos: they may have reached the server before it was lost.
function forgetSteps() {
  const meant = stuck.filter(({ kind }) => kind === "undo" || kind === "redo");
  stuck = stuck.filter((one) => !meant.includes(one));
  for (const one of meant) one.resolve(null);
}

function stop() {
  stuck.push(...waiting.splice(0));
}

// Shows a newer state. If it is that of another run, shows that the run was replaced, and returns false.
function shown(state) {
  if (state.basis === model.run.basis) {
    model.update(state);
    return true;
  }
  replaced = true;
  const kept = stuck.length ? ` Not saved, because it is about the run as it was: ${sentences()}.` : "";
  banner(
    `This run was replaced: it has other images or groups now.${kept}`,
    button("Show the new run", () => { letGo(); location.reload(); }, { css: "primary" }),
  );
  return false;
}

const sentences = () => stuck.map((one) => one.words).join("; ");

function banner(text, ...actions) {
  $("banner").replaceChildren(el("p", {}, text), el("div", { class: "row" }, actions));
  $("banner").hidden = false;
}

// Offer to apply the stuck edits to the current groups, or to discard them.
function ask(text, yes) {
  if (!stuck.length) return void ($("banner").hidden = true);
  banner(
    text + sentences() + ".",
    button(yes, () => { $("banner").hidden = true; waiting.push(...stuck.splice(0)); pump(); }, { css: "primary" }),
    button("Discard it", letGo),
  );
}

function letGo() {
  $("banner").hidden = true;
  for (const one of stuck.splice(0)) one.resolve(null);
}

// The server does not answer: show that, keep the unsent edits, and retry until it does.
export function lose() {
  stop();
  const kept = stuck.length ? ` Not saved yet, but kept in this page: ${sentences()}.` : "";
  banner(`The server does not answer. Trying again. You cannot change anything until it answers.${kept}`);
  if (lost) return;
  lost = true;
  document.documentElement.classList.add("lost");
  retry(model.state.version, 500);
}

async function retry(version, pause) {
  await new Promise((done) => setTimeout(done, pause));
  let state;
  try {
    state = await api.state();
  } catch {
    return retry(version, Math.min(5000, pause * 1.5));
  }
  lost = false;
  document.documentElement.classList.remove("lost");
  if (!shown(state)) return;
  for (const listener of onBack) listener();
  announce("The server is back.");
  if (state.version === version) return ask(`The server is back. ${count(stuck.length, "change")} did not reach it: `, "Send again");
  forgetSteps();
  // The answer may have been lost after the edit was saved. Only the user can tell.
  return ask(`The server is back, and the groups have changed. The last change is “${state.undo ?? "undone"}”. If that is not yours, this did not reach the server: `, "Send again");
}

// For requests that only read: resolves to null on failure and shows the reason.
export async function reading(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof Lost) lose();
    else announce(error.message);
    return null;
  }
}

// Fetch changes by others: at intervals, and when the user returns to the page.
export async function lookAgain() {
  if (lost || busy || replaced || document.hidden) return;
  const { version } = model.state;
  const state = await reading(api.state());
  if (!state || busy || model.state.version !== version) return;
  if (state.version === version && state.basis === model.state.basis) return;
  if (shown(state)) announce(`Changed by somebody else: ${state.undo ?? "everything was undone"}`);
}

addEventListener("beforeunload", (event) => {
  if (waiting.length || stuck.length) event.preventDefault();
});
