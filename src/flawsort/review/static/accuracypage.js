// The accuracy page: how right the groups are, as far as answers show it, and the audit that measures it.

import { api } from "./api.js";
import { Audit } from "./audit.js";
import { button, count, el, number, percent } from "./dom.js";
import { reading } from "./editing.js";
import { healthSection } from "./health.js";

const SUGGESTIONS = {
  title: "Suggestions, before you answered",
  is: "of the suggestions were right",
  words: "What was suggested for an image just before the first answer about it is compared with that answer. Images for which nothing was suggested do not count. The number is about the images that you answered for. It is too high if you accepted without looking; the audit is not.",
};
const AUDIT = {
  title: "Audit with random images",
  is: "of the images outside the audit are in the right group",
  words: "Images are drawn at random, and you answer for them without seeing where they are. So the number holds for all other images, also for those that nobody has looked at.",
};

export class AccuracyPage {
  static place = "accuracy";
  static title = "Accuracy";
  static rail = false;
  static keys = [
    ["B", "begin or stop the audit"], ["1 – 9", "audit: the group with that number"], ["M", "audit: a group picked by name, or a new one"], ["N or 0", "audit: normal"], ["U", "audit: cannot tell"],
  ];

  constructor(shell) {
    Object.assign(this, { shell, auditing: false, turn: 0 });
    this.audit = new Audit(() => this.stop());
    this.cards = el("div", { class: "cards estimates" });
    this.health = el("div");
    this.home = el("div", {}, el("h1", {}, "How right is it?"),
      el("p", { class: "lead" }, "Only answers can tell. Both numbers come with their 90% interval: the true value lies in it nine times out of ten."), this.cards, this.health);
    this.node = el("section", { class: "page scroll-page accuracy-page", "aria-label": "Accuracy" }, this.home, this.audit.node);
  }

  async draw() {
    this.home.hidden = this.auditing;
    this.audit.node.hidden = !this.auditing;
    if (this.node.hidden) return;
    if (this.auditing) return void this.audit.draw();
    this.health.replaceChildren(healthSection(this.shell));
    const turn = ++this.turn;
    const found = await reading(api.accuracy());
    if (!found || turn !== this.turn) return;
    this.cards.replaceChildren(card(SUGGESTIONS, found.suggestions),
      card(AUDIT, found.audit, button(found.audit.n ? "Continue the audit" : "Begin the audit", () => this.begin(), { key: "B", css: "primary" })));
  }

  begin() {
    this.auditing = true;
    this.draw();
  }

  stop() {
    this.auditing = false;
    this.draw();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (event.key.toLowerCase() === "b") {
      if (this.auditing) this.stop();
      else this.begin();
      return true;
    }
    return this.auditing && this.audit.key(event);
  }
}

function card({ title, is, words }, estimate, ...more) {
  return el("article", { class: "card estimate" }, el("h2", {}, title), ...result(estimate, is), el("p", { class: "hint" }, words), ...more);
}

// The share with its interval, or how many answers it still needs.
export function result({ n, together, least, share, low, high }, is) {
  if (share === null) {
    return [el("p", { class: "figure soft" }, `${number(n)} of ${number(least)}`), el("p", {}, `answers so far. Nothing is said before there are ${number(least)}.`)];
  }
  const css = { left: `${100 * low}%`, width: `${100 * (high - low)}%` };
  return [
    el("p", { class: "figure" }, percent(share)), el("p", {}, is),
    el("div", { class: "interval", role: "img", "aria-label": interval(low, high) }, el("i", { css }), el("b", { css: { left: `${100 * share}%` } })),
    el("p", { class: "soft number" }, `90% interval: ${interval(low, high)} · ${howMany(n, together)}`),
  ];
}

// The same in one line.
export function inShort({ n, together, least, share, low, high }) {
  return share === null ? `${number(n)} of ${number(least)} answers so far` : `90% interval: ${interval(low, high)}; ${howMany(n, together)}`;
}

const howMany = (n, together) => `${count(n, "answer")}${together ? `, ${number(together)} of them several at a time` : ""}`;

const interval = (low, high) => `between ${Math.round(100 * low)} and ${Math.round(100 * high)}%`;
