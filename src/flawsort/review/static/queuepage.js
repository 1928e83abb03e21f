// The queue page: one question at a time, the one whose answer teaches most.

import { inShort } from "./accuracypage.js";
import { acceptRows, actions, move } from "./actions.js";
import { api } from "./api.js";
import { askName, pickGroup } from "./dialogs.js";
import { onDisplay } from "./display.js";
import { button, count, el, number, percent } from "./dom.js";
import { reading } from "./editing.js";
import { fitting, Grid } from "./grid.js";
import { openImage } from "./imageview.js";
import { mark, named } from "./marks.js";
import { model, mostTypical } from "./model.js";
import { keepApart, mergeGroups, nameGroup } from "./naming.js";
import { frames, picture, square } from "./pictures.js";
import { selection } from "./selection.js";

const BESIDE = 6;
const RENEW_EVERY = 30_000; // of the two minutes for which the server keeps a question for somebody
const ASKER = askerHere();
const nameless = ({ role, name }) => role === "flaw" && !name;

export class QueuePage {
  static place = "queue";
  static title = "Queue";
  static rail = true;
  static keys = [
    ["Enter", "yes: accept exactly the images shown; for two groups: they are one"], ["N", "name a group without a name, and accept"], ["G", "they are all of another group"],
    ["X", "it is not this; for two groups: they differ"], ["0", "normal"], ["U", "unsure"], ["J", "ask later"], ["O", "open the image in focus"],
    ["1 – 9, M, S", "move the image in focus or the selected ones"],
  ];

  constructor(shell) {
    Object.assign(this, { shell, answer: null, shown: "", skipped: [], turn: 0, held: false, waits: false });
    this.grid = new Grid({ label: "Images in question", open: openImage, enterOpens: false, size: fitting });
    this.other = new Grid({ label: "Images of the other group", open: openImage, enterOpens: false, size: fitting });
    this.tiles = el("dl", { class: "tiles" });
    this.meter = el("span", { class: "meter big" }, el("i"));
    this.head = el("header", { class: "question-head" });
    this.tools = el("div", { class: "row tools question-tools" });
    this.one = el("div", { class: "one" });
    this.grids = el("div", { class: "grids" }, this.grid.node, this.other.node);
    this.node = el("section", { class: "page queue-page", "aria-label": "Queue" }, el("div", { class: "queue-top" }, this.meter, this.tiles),
      el("div", { class: "question" }, this.head, this.tools), this.grids, this.one);
    onDisplay((key) => { if (key !== "opacity" && !this.node.hidden) this.drawQuestion(); });
    setInterval(() => this.renew(), RENEW_EVERY);
    addEventListener("pagehide", () => this.leave());
  }

  get question() { return this.answer?.question ?? null; }
  group() { return this.question?.group ?? null; }
  listed() { return this.group(); }
  row() { return this.question?.kind === "image" ? this.question.rows[0] : this.grid.focused ?? this.other.focused; }

  shows(row) { return Boolean(this.question) && [...this.question.rows, ...this.question.other_rows].includes(row); }

  // Ask the server again: every edit may change the next question. What others do leaves this one as it is.
  async draw() {
    if (this.node.hidden) return;
    const turn = ++this.turn;
    const rest = this.rest();
    this.waits = true;
    const answer = await reading(api.queue(ASKER, Boolean(rest) || !model.mine, this.skipped));
    if (turn === this.turn) this.waits = false;
    if (!answer || turn !== this.turn || this.node.hidden) return;
    this.held = Boolean(answer.question);
    this.answer = { ...answer, question: this.rest() ?? answer.question };
    this.drawProgress();
    this.drawQuestion();
    this.shell.changed();
  }

  // Nobody else gets this question while it is looked at; the server forgets who asked some minutes ago.
  async renew() {
    if (this.node.hidden || document.hidden || !this.answer) return;
    if (!this.question) return void (this.answer.others && this.draw());
    const { turn } = this;
    const answer = await reading(api.queue(ASKER, true, this.skipped));
    if (answer && turn === this.turn && JSON.stringify(answer.question) !== JSON.stringify(this.question)) await this.draw();
  }

  away() { this.leave(); }

  leave() {
    this.turn++; // a question that is on its way is not for this page any more
    if (this.held || this.waits) api.leave(ASKER);
    this.held = this.waits = false;
  }

  // While only some images of a question are answered, the question is about the others.
  rest() {
    const { question } = this;
    if (question?.kind !== "group" || !model.group(question.group)) return null;
    const normal = model.group(question.group).role === "normal"; // all normal groups are one question
    const here = (id) => id === question.group || (normal && model.group(id).role === "normal");
    const rows = model.undecided(question.rows).filter((row) => here(model.groupOf(row)));
    return rows.length && rows.length < question.rows.length ? { ...question, rows } : null;
  }

  drawProgress() {
    const { done, total, spent, suggestions } = this.answer;
    this.meter.firstChild.style.width = `${(100 * done) / Math.max(1, total)}%`;
    const tile = (name, value, words) => el("div", {}, el("dt", {}, name), el("dd", {}, value), el("dd", { class: "words" }, words));
    this.tiles.replaceChildren(
      tile("Done", `${number(done)} of ${number(total)}`, "images decided"),
      tile("Answers given", number(spent), done > spent && spent ? `${(done / spent).toFixed(1)} images decided per answer` : "so far"),
      tile("Suggestions right", suggestions.share === null ? "–" : percent(suggestions.share), inShort(suggestions)));
  }

  drawQuestion() {
    if (!this.answer) return;
    const { question } = this;
    const shown = JSON.stringify(question && [question.kind, question.group, question.rows, question.other_rows]);
    const fresh = shown !== this.shown;
    this.shown = shown;
    const kind = question?.kind ?? "none";
    this.grids.hidden = kind !== "group" && kind !== "pair";
    this.other.node.hidden = kind !== "pair";
    this.one.hidden = kind !== "image";
    this.tools.hidden = !question;
    if (!question) return this.drawNothing();
    ({ group: () => this.drawGroup(question, fresh), pair: () => this.drawPair(question, fresh), image: () => this.drawImage(question) })[kind]();
    // Focus the question, so that the next key answers it.
    if (fresh && !document.querySelector("dialog[open]")) (kind === "image" ? this.one : this.grid.node).focus();
    return undefined;
  }

  drawNothing() {
    const again = this.skipped.length ? button("Ask the postponed questions", () => { this.skipped = []; this.draw(); }) : null;
    const { others } = this.answer;
    if (others) {
      return void this.head.replaceChildren(el("h1", {}, "Nothing else to ask now"),
        el("p", { class: "lead" }, `${count(others, "other person").replace("persons", "people")} ${others === 1 ? "has" : "have"} a question that is still open. The next one for you appears here.`), again);
    }
    this.head.replaceChildren(el("h1", {}, this.skipped.length ? "Nothing else to ask" : "Nothing left to ask"),
      el("p", { class: "lead" }, this.skipped.length ? `${count(this.skipped.length, "question")} postponed.` : "Every group has an answer. Look through the groups, or export them."), again);
  }

  drawHead(words, ids, why) {
    const titles = ids.map((id) => el("span", { class: "with-mark" }, mark(id), el("span", { class: "clip" }, model.title(id))));
    this.head.replaceChildren(el("p", { class: "soft" }, words), el("h1", { class: "row" }, titles[0], titles.length > 1 ? el("span", { class: "soft" }, "and") : null, titles[1]), el("p", { class: "lead" }, why));
  }

  drawGroup({ group: id, rows, why }, fresh) {
    const group = model.group(id);
    if (!group) return;
    const open = nameless(group);
    this.drawHead(open ? "Is this one kind?" : "Do all of these belong here?", [id], why);
    const these = rows.length === 1 ? "this one" : `these ${number(rows.length)}`;
    this.tools.replaceChildren(
      button(`Yes, accept ${these}`, () => this.yes(), { key: "Enter", css: "primary" }),
      open ? button("Name and accept…", () => this.name(), { key: "N" }) : "",
      button("They are…", () => this.pick(), { key: "G" }),
      button("Normal", () => this.move("normal"), { key: "0" }),
      button("Unsure", () => this.move("unsure"), { key: "U" }),
      button("Later", () => this.later(), { key: "J", css: "quiet" }),
      el("p", { class: "hint" }, "Your answer is about exactly these images. Select those that do not belong (Space), and say so (X) or move them (M); then answer for the rest."));
    this.grid.show(rows, { top: fresh });
  }

  drawPair({ group, other, rows, other_rows: others, why }, fresh) {
    this.drawHead("Are these two kinds, or one?", [group, other], why);
    this.tools.replaceChildren(
      button("One kind: merge them", () => this.yes(), { key: "Enter", css: "primary" }),
      button("Two kinds", () => this.differ(), { key: "X" }),
      button("Later", () => this.later(), { key: "J", css: "quiet" }));
    this.grid.show(rows, { top: fresh });
    this.other.show(others, { top: fresh });
  }

  drawImage({ group: id, rows: [row], why }) {
    const group = model.group(id);
    if (!group) return;
    this.drawHead("Does this image belong here?", [id], why);
    const sure = model.sureness(row);
    this.tools.replaceChildren(
      button(`Yes, it is ${group.title}`, () => this.yes(), { key: "Enter", css: "primary" }),
      button("Not this", () => actions.reject(), { key: "X" }),
      button("It is…", () => actions.pick(), { key: "M" }),
      button("Normal", () => this.move("normal"), { key: "0" }),
      button("Unsure", () => this.move("unsure"), { key: "U" }),
      button("Several kinds…", () => actions.several(), { key: "K" }),
      button("Later", () => this.later(), { key: "J", css: "quiet" }),
      ...(sure === null ? [] : [el("p", { class: "hint" }, `The suggestion is ${sure}% sure.`)]));
    const shown = picture(row, { source: "image" });
    shown.append(...frames(row));
    const beside = el("div", { class: "beside" }, this.strip(`Typical of ${group.title}`, mostTypical(model.members.get(id)).filter((one) => one !== row).slice(0, BESIDE)));
    this.one.tabIndex = -1;
    this.one.replaceChildren(el("button", { type: "button", class: "stage", "aria-label": `Open ${model.run.names[row]}`, onclick: () => openImage([row], 0) }, shown), beside);
    this.drawAlike(row, beside);
  }

  strip(title, rows) {
    const thumbs = rows.map((one, index) => el("button", { type: "button", class: "thumb", "aria-label": `Open ${model.run.names[one]}`, onclick: () => openImage(rows, index) },
      square(one), named(model.group(model.groupOf(one)))));
    return el("section", {}, el("h3", {}, title), el("div", { class: "alike" }, thumbs));
  }

  async drawAlike(row, beside) {
    const found = await reading(api.similar(row, BESIDE));
    if (found && beside.isConnected) beside.prepend(this.strip("Most similar", found.map((one) => one.row)));
  }

  // Selected images are answered for by themselves; otherwise the answer is about all images shown.
  get rows() { return selection.size ? selection.rows() : this.question.rows; }

  yes() {
    const { kind, group, other } = this.question;
    if (kind === "pair") return mergeGroups(other, group);
    return acceptRows(this.rows);
  }

  differ() {
    const { group, other } = this.question;
    return keepApart(group, other);
  }

  async name() {
    const { group: id, rows } = this.question;
    const group = model.group(id);
    const name = await askName(`Name of ${group.title}`, group.name, "The images shown are accepted under this name.");
    if (!name) return;
    if (name !== group.name && !(await nameGroup(group, name))) return;
    await acceptRows(rows);
  }

  move(to) { return this.question.kind === "pair" ? null : move(this.rows, to); }

  async pick() {
    const { rows } = this;
    const answer = await pickGroup(`${count(rows.length, "image")}: what are they?`, { fresh: true });
    if (answer) await move(rows, answer.to, answer.name);
  }

  later() {
    const { kind, group, other, rows } = this.question;
    this.skipped.push(kind === "image" ? ["later", rows[0]] : ["skip", kind === "pair" ? other : group]);
    selection.clear();
    this.answer.question = null;
    this.draw();
  }

  key(event) {
    if (!this.question || event.ctrlKey || event.metaKey || event.altKey) return false;
    const { kind, rows } = this.question;
    const whole = kind === "group";
    const act = {
      enter: () => this.yes(), 0: () => this.move("normal"), u: () => this.move("unsure"), j: () => this.later(),
      o: () => (kind === "image" ? openImage(rows, 0) : openImage(this.grid.rows, this.grid.active)),
      n: () => (whole && nameless(model.group(this.question.group)) ? this.name() : this.move("normal")),
      ...(whole ? { g: () => this.pick() } : {}),
      ...(kind === "pair" ? { x: () => this.differ() } : {}),
    }[event.key.toLowerCase()];
    // Enter on a button presses the button.
    if (!act || (event.key === "Enter" && event.target.closest("button, a, select, input"))) return false;
    act();
    return true;
  }
}

// Who asks, for the server: the same after a reload, another one in another tab.
function askerHere() {
  const made = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  try {
    const known = sessionStorage.getItem("flawsort.asker") ?? made;
    sessionStorage.setItem("flawsort.asker", known);
    return known;
  } catch {
    return made; // a browser that keeps nothing
  }
}
