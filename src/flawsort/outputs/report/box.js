// The lightbox: one image, which zooms, its most unusual place beside the best matching one, and facts.

import { map } from "./charts.js";
import { differenceOf } from "./difference.js";
import { $, button, count, el, figure, number } from "./dom.js";
import { mark } from "./marks.js";
import { D } from "./model.js";
import { closePicture, closeUp, closeUpBox, frames, match } from "./pictures.js";
import { Zoom } from "./zoom.js";

export class Box {
  // part(): the groups now.
  constructor(part) {
    Object.assign(this, { part, list: [], at: 0 });
    this.stage = el("div", { class: "box-stage", tabindex: -1 });
    this.zoom = new Zoom(this.stage);
    this.flaw = button("Flaw", () => this.toFlaw(), { key: "Z", title: "Zoom to the most unusual place; again for the whole image" });
    this.outlines = el("input", { type: "checkbox", checked: true, onchange: () => this.draw() });
    this.beside = el("div", { class: "compared-places" });
    $("box-pictures").append(
      el("div", { class: "box-left" }, this.stage, el("div", { class: "row" }, this.zoom.tools, this.flaw, this.zoom.words, el("label", { class: "switch" }, this.outlines, "Regions"))), this.beside);
    $("box-close").addEventListener("click", () => $("box").close());
    $("box-prev").addEventListener("click", () => this.step(-1));
    $("box-next").addEventListener("click", () => this.step(1));
    $("box").addEventListener("click", (event) => { if (event.target === $("box")) $("box").close(); });
    $("box").addEventListener("keydown", (event) => this.key(event));
  }

  get image() { return this.list[this.at]; }

  // list: the images to go through.
  open(list, at) {
    Object.assign(this, { list, at });
    map.point(-1);
    $("box").showModal();
    this.zoom.all();
    this.draw();
    this.stage.focus();
  }

  draw() {
    if (!$("box").open) return;
    const i = this.image;
    $("box-name").textContent = $("box-name").title = D.names[i];
    $("box-place").textContent = `${number(this.at + 1)} of ${number(this.list.length)}`;
    $("box-prev").disabled = this.at === 0;
    $("box-next").disabled = this.at === this.list.length - 1;
    const shown = closePicture(i, true);
    const part = this.part();
    if (this.outlines.checked) shown.append(...frames(i, part.like, part.groups));
    this.stage.replaceChildren(shown);
    this.flaw.disabled = !closeUpBox(i);
    // The report has the image in a small size only; its most unusual place is finer.
    this.zoom.measure(D.aspect[i], 0);
    if (this.zoom.followed) this.follow();
    this.drawBeside(i);
    $("box-facts").replaceChildren(...this.facts(i).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  }

  async drawBeside(i) {
    const [here, there] = [closeUpBox(i) && closeUp(i), match(i)];
    const framed = (node, words) => el("figure", {}, el("span", { class: "square" }, node), el("figcaption", {}, words));
    this.beside.replaceChildren(...(here ? [framed(here, "The most unusual place")] : []));
    if (!here || !there) return;
    await Promise.all([here.decode(), there.decode()]);
    if (i !== this.image || !here.isConnected) return;
    this.beside.append(framed(there, `Best matching ${D.closeUps.normals ? "known-good" : "other"} image: ${D.closeUps.names[i]}`), framed(differenceOf(here, there), "Difference"));
  }

  facts(i) {
    const part = this.part();
    const group = part.groups[part.rank[i]];
    const next = part.next[i] >= 0 ? part.groups[part.next[i]].title : "–";
    const place = group.rows.indexOf(i) + 1;
    const facts = [
      ["Group", el("span", { class: "with-mark" }, mark(group.id), group.title)],
      ...(part.kinds[i].length > 1 ? [["Also resembles", alsoLike(part, i)]] : []),
      ["Next nearest group", next + (part.margin[i] < D.borderlineBelow ? " (borderline)" : "")],
      ["Anomaly score", figure(D.score[i])],
      ["Rank in its group", `${number(place)} of ${number(group.rows.length)}, most typical first`],
      ["Regions", count(frames(i, part.like, part.groups).length, "region")],
    ];
    if (D.flags[i]) facts.push(["Flags", D.flags[i].split(";").join(", ")]);
    if (D.truth) facts.push(["Truth", D.truth[i] === null ? "not labelled" : D.truth[i]]);
    return facts;
  }

  toFlaw() {
    if (this.zoom.whole && closeUpBox(this.image)) this.follow();
    else this.zoom.all();
  }

  follow() {
    const box = closeUpBox(this.image);
    if (box) this.zoom.to([box.left, box.top, box.left + box.width, box.top + box.height]);
  }

  step(by) {
    const at = this.at + by;
    if (at < 0 || at >= this.list.length) return;
    this.at = at;
    this.draw();
    if (document.activeElement === document.body || document.activeElement?.disabled) this.stage.focus();
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (this.zoom.key(event)) event.preventDefault();
    else if (by) { event.preventDefault(); this.step(by); }
    else if (event.key.toLowerCase() === "z" && !event.ctrlKey && !event.metaKey) this.toFlaw();
  }
}

// The other groups that regions of an image resemble.
function alsoLike(part, i) {
  return el("span", { class: "several" }, part.kinds[i].slice(1).map((kind) => el("span", { class: "with-mark" }, mark(part.groups[kind].id), part.groups[kind].title)));
}
