// Sends edits to the server, one at a time. None is lost, and none overwrites somebody else's edit.

import { api, Conflict, Lost } from "./api.js";
import { $, button, count, el } from "./dom.js";
import { announce } from "./messages.js";
import { model } from "./model.js";

const waiting = []; // sent or to be sent, not yet answered
let stuck = []; // edits stopped by a conflict or a lost server, until the user decides
let busy = false;
let lost = false;
const onBack = new Set();

// Calls `listener` when a server that was lost answers again.
export const whenBack = (listener) => onBack.add(listener);

// Resolves to the new state, or to null if the edit was not saved. words: describes the edit in
// messages about a failure.
export function edit(kind, payload, words) {
  if (lost) {
    announce(`Not saved, because the server does not answer: ${words}`);
    return Promise.resolve(null);
  }
  return new Promise((resolve) => {
    waiting.push({ kind, payload, words, resolve });
    pump();
  });
}

export function undo() {
  if (model.state.undo) return edit("undo", null, `undo “${model.state.undo}”`);
  announce("There is nothing to undo.");
  return null;
}

export function redo() {
  if (model.state.redo) return edit("redo", null, `redo “${model.state.redo}”`);
  announce("There is nothing to redo.");
  return null;
}

function send({ kind, payload }) {
  const { version } = model.state;
  if (kind === "undo" || kind === "redo") return api[kind](version);
  return api.edit(version, kind, payload);
}

async function pump() {
  if (busy) return;
  busy = true;
  while (waiting.length) {
    const one = waiting[0];
    try {
      const before = model.state;
      const state = await send(one);
      waiting.shift();
      model.update(state);
      one.resolve(state);
      report(one, before, state);
    } catch (error) {
      await notDone(one, error);
    }
  }
  busy = false;
}

function report({ kind }, before, state) {
  if (kind === "undo") announce(`Undone: ${before.undo}`);
  else if (kind === "redo") announce(`Redone: ${before.redo}`);
  else announce(`Saved: ${state.undo}`, { undo });
}

async function notDone(one, error) {
  if (error instanceof Lost) return lose();
  if (!(error instanceof Conflict)) {
    waiting.shift();
    one.resolve(null);
    return void announce(`Not saved: ${error.message}`);
  }
  stop();
  try {
    model.update(await api.state());
  } catch {
    return lose();
  }
  const last = model.state.undo ? ` The last change is “${model.state.undo}”.` : "";
  if (forgetHistory()) announce(`Nothing was undone or redone: somebody else changed these groups first.${last}`);
  return ask(`Somebody else changed these groups first.${last} Your change was not saved, and nothing was overwritten: `, "Apply it now");
}

// Drops waiting undos and redos: one meant for one change must never hit another. Returns whether any was dropped.
function forgetHistory() {
  const meant = stuck.filter(({ kind }) => kind === "undo" || kind === "redo");
  stuck = stuck.filter((one) => !meant.includes(one));
  for (const one of meant) one.resolve(null);
  return meant.length > 0;
}

function stop() {
  stuck.push(...waiting.splice(0));
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
  model.update(state);
  for (const listener of onBack) listener();
  announce("The server is back.");
  if (state.version === version) return ask(`The server is back. ${count(stuck.length, "change")} did not reach it: `, "Send again");
  forgetHistory();
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
  if (lost || busy || document.hidden) return;
  const { version } = model.state;
  const state = await reading(api.state());
  if (!state || busy || state.version === version || model.state.version !== version) return;
  model.update(state);
  announce(`Changed by somebody else: ${state.undo ?? "everything was undone"}`);
}

addEventListener("beforeunload", (event) => {
  if (waiting.length || stuck.length) event.preventDefault();
});
