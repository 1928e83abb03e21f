// OK or not OK: a threshold chosen on the curve of missed flaws against false alarms, from one's own answers.

import { api } from "./api.js";
import { button, count, el, number, svg } from "./dom.js";
import { edit, reading } from "./editing.js";
import { model } from "./model.js";
import { verdictCounts } from "./newimages.js";

const SIZE = { width: 320, height: 220, pad: 34 };

export class VerdictPanel {
  constructor() {
    Object.assign(this, { curve: null, at: 0, version: null, turn: 0 });
    this.slider = el("input", { type: "range", min: 0, "aria-label": "Threshold", oninput: () => { this.at = Number(this.slider.value); this.drawChoice(); } });
    this.yes = button("Use this", () => this.choose(this.cost.threshold), { css: "primary" });
    this.none = button("No verdict", () => this.choose(null), { css: "quiet" });
    this.chart = el("div", { class: "curve" });
    this.words = el("div", { class: "curve-words", role: "status" });
    this.counts = el("p", { class: "strong" });
    this.body = el("div", { class: "verdict-body" });
    this.node = el("section", { class: "panel verdict" }, el("h2", {}, "OK or not OK"), this.counts, this.body);
  }

  get cost() { return this.curve.costs[this.at]; }

  // batch: the new images that the verdicts are counted of.
  async draw(batch) {
    this.drawCounts(batch);
    if (this.version === model.state.version) return;
    const turn = ++this.turn;
    const found = await reading(api.verdict());
    if (!found || turn !== this.turn) return;
    this.version = model.state.version;
    this.curve = found;
    if (!found.costs.length) return void this.drawWaiting();
    this.at = place(found);
    this.slider.max = found.costs.length - 1;
    this.slider.value = this.at;
    this.body.replaceChildren(this.chart, el("div", { class: "curve-side" },
      el("label", { class: "control" }, "Lenient", this.slider, "Strict"), this.words, el("div", { class: "row" }, this.yes, this.none)));
    this.drawChoice();
  }

  drawCounts(batch) {
    this.counts.textContent = verdictCounts(batch);
    this.counts.hidden = !this.counts.textContent;
  }

  drawWaiting() {
    const { n_flaws: flaws, n_normal: normal, least } = this.curve;
    this.body.replaceChildren(el("p", { class: "hint" },
      `When an image is OK is your choice between missed flaws and false alarms. What each choice costs is measured on your own answers, so it needs ${least} of flaws and ${least} of normal images. There are ${number(flaws)} and ${number(normal)} so far.`));
  }

  drawChoice() {
    const { curve, cost } = this;
    const share = (n, total, [low, high]) => `${number(n)} of ${number(total)}, so between ${percents(low)} and ${percents(high)}% of all`;
    this.words.replaceChildren(
      el("p", {}, el("strong", {}, "Missed flaws: "), share(cost.missed, curve.n_flaws, cost.missed_interval)),
      el("p", {}, el("strong", {}, "False alarms: "), share(cost.false_alarms, curve.n_normal, cost.false_alarms_interval)),
      el("p", { class: "hint" }, `OK if the model is at least ${percents(cost.threshold)}% sure that an image is normal. Measured on ${count(curve.n_flaws + curve.n_normal, "answer")}, each judged by a model that was not taught with it; 90% intervals.`));
    const used = curve.threshold === cost.threshold;
    this.yes.disabled = used;
    this.yes.textContent = used ? "In use" : "Use this";
    this.none.hidden = curve.threshold === null;
    this.chart.replaceChildren(plot(curve, cost));
  }

  choose(threshold) {
    return edit("verdict", { threshold }, threshold === null ? "give no verdict" : "choose when an image is OK");
  }
}

const percents = (share) => (100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0);

// The threshold in use, or the one with the fewest errors of both sorts in all.
function place({ threshold, costs, n_flaws: flaws, n_normal: normal }) {
  const price = (cost) => (threshold === null ? cost.missed / flaws + cost.false_alarms / normal : Math.abs(cost.threshold - threshold));
  return costs.reduce((best, cost, at) => (price(cost) < price(costs[best]) ? at : best), 0);
}

function plot({ costs, n_flaws: flaws, n_normal: normal }, chosen) {
  const { width, height, pad } = SIZE;
  const x = (cost) => pad + (width - pad - 8) * (cost.false_alarms / normal);
  const y = (cost) => 8 + (height - pad - 8) * (1 - cost.missed / flaws);
  const line = costs.map((cost) => `${x(cost).toFixed(1)},${y(cost).toFixed(1)}`).join(" ");
  const text = (words, props) => svg("text", { class: "curve-text", ...props }, words);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Missed flaws against false alarms" },
    svg("path", { class: "axes", d: `M${pad} 8V${height - pad}H${width - 8}` }),
    svg("polyline", { class: "curve-line", points: line }),
    svg("circle", { class: "curve-point", cx: x(chosen), cy: y(chosen), r: 6 }),
    text("False alarms", { x: (width + pad) / 2, y: height - 8, "text-anchor": "middle" }),
    text("Missed flaws", { transform: `translate(12 ${(height - pad) / 2}) rotate(-90)`, "text-anchor": "middle" }),
    text("0", { x: pad - 6, y: height - pad + 14, "text-anchor": "end" }), text("all", { x: width - 8, y: height - pad + 14, "text-anchor": "end" }), text("all", { x: pad - 5, y: 14, "text-anchor": "end" }));
}
