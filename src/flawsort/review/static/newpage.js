// The page of new images sorted into the groups later: counts, increases and new kinds.

import { api } from "./api.js";
import { button, count, el, number, percent } from "./dom.js";
import { reading } from "./editing.js";
import { colourOf, mark } from "./marks.js";
import { model } from "./model.js";

const UNSEEN = -1;
const FEW_PERIODS = 12;
const SHOWN = 24;

const titleOf = (id) => (id === UNSEEN ? "New kinds" : model.title(id));
const signOf = (id) => (id === UNSEEN ? el("span", { class: "plus", "aria-hidden": "true" }, "?") : mark(id));
const when = (at) => { const date = new Date(at); return at && !Number.isNaN(date.getTime()) ? date.toLocaleString() : at; };

export class NewPage {
  static place = "new";
  static title = "New images";
  static rail = false;

  constructor() {
    Object.assign(this, { name: null, batch: null, chosen: null, turn: 0 });
    this.list = el("select", { "aria-label": "Batch of new images", onchange: () => { this.name = this.list.value; this.draw(); } });
    this.head = el("header", { class: "bar" }, el("h1", {}, "New images"), this.list);
    this.body = el("div", { class: "new-body" });
    this.node = el("section", { class: "page scroll-page new-page", "aria-label": "New images" }, this.head, this.body);
  }

  async draw() {
    if (this.node.hidden) return;
    const turn = ++this.turn;
    const batches = await reading(api.batches());
    if (!batches || turn !== this.turn) return;
    this.list.hidden = !batches.length;
    if (!batches.length) return void this.drawNone();
    if (!batches.some((one) => one.name === this.name)) this.name = batches.at(-1).name;
    this.list.replaceChildren(...batches.map((one) => el("option", { value: one.name }, `${one.name} (${one.reason ? "damaged" : count(one.n, "image")})`)));
    this.list.value = this.name;
    const { reason } = batches.find((one) => one.name === this.name);
    const batch = reason ? null : await reading(api.batch(this.name));
    if (turn !== this.turn) return;
    if (!batch) return void this.body.replaceChildren(el("p", { class: "warnings" }, reason || "This batch cannot be shown."));
    this.batch = batch;
    this.drawBatch();
  }

  drawNone() {
    this.body.replaceChildren(el("div", { class: "empty" }, el("p", {}, "No new images have been sorted into this run yet."),
      el("p", {}, el("code", {}, "flawsort assign new/ --run run/ --keep monday")),
      el("p", { class: "hint" }, "sorts a folder of images into these groups. The result appears here: counts for each group by day or lot, increases, and images that match no group.")));
  }

  drawBatch() {
    const { batch } = this;
    const fresh = batch.groups.filter((id) => id === UNSEEN).length;
    const by = batch.by ? `by ${batch.by}` : "";
    this.body.replaceChildren(
      el("p", { class: "lead" }, [count(batch.n, "image"), when(batch.at), by, fresh ? `${number(fresh)} (${percent(fresh / batch.n)}) of new kinds` : "none of a new kind"].filter(Boolean).join(" · ")),
      ...this.rises(), this.charts(), ...this.proposals(), this.pictures());
  }

  rises() {
    if (!this.batch.rises.length) return [];
    const items = this.batch.rises.map(({ group, period, count: seen, expected }) =>
      el("li", { class: "with-mark" }, signOf(group), el("span", {}, `${titleOf(group)} in ${period}: ${number(seen)}, about ${expected.toFixed(expected < 10 ? 1 : 0)} expected`)));
    return [el("div", { class: "warnings", role: "note" }, el("strong", {}, count(items.length, "increase")), el("ul", { class: "plain" }, items))];
  }

  // One row per group, all on the same scale, so that groups can be compared.
  charts() {
    const { counts, rises } = this.batch;
    const most = Math.max(1, ...counts.table.flat());
    const place = new Map([...model.groups.map((group) => group.id), UNSEEN].map((id, rank) => [id, rank]));
    const columns = counts.groups.map((id, column) => [id, column]).sort((a, b) => place.get(a[0]) - place.get(b[0]));
    const rows = columns.map(([id, column]) => {
      const values = counts.table.map((row) => row[column]);
      const risen = new Set(rises.filter((rise) => rise.group === id).map((rise) => rise.period));
      const on = this.chosen === id;
      const choose = button([signOf(id), el("span", { class: "clip" }, titleOf(id))], () => { this.chosen = on ? null : id; this.drawBatch(); },
        { css: "link", "aria-pressed": String(on), title: on ? "Show all images below" : "Show its images below" });
      return el("tr", { class: on ? "on" : null }, el("th", { scope: "row" }, choose),
        el("td", { class: "chart" }, bars(values, counts.periods, most, id, risen)),
        el("td", { class: "number" }, number(values.reduce((sum, value) => sum + value, 0))));
    });
    const head = el("tr", {}, el("th", { scope: "col" }, "Group"), el("th", { scope: "col" }, axis(counts.periods)), el("th", { scope: "col", class: "number" }, "Images"));
    return el("div", { class: "panel" }, el("table", { class: "counts" }, el("thead", {}, head), el("tbody", {}, rows)));
  }

  proposals() {
    return this.batch.proposals.filter((rows) => rows.length).map((rows, index) => el("section", { class: "panel" },
      el("h2", {}, `Proposed new kind ${index + 1}`, el("span", {}, count(rows.length, "image"))),
      el("p", { class: "hint" }, "These images match no group of this run and look alike. Cluster again with them to make them a group. All names given here are kept: ",
        el("code", {}, "flawsort cluster parts/ new/ --labels-from run/ -o run2/")),
      this.strip(rows)));
  }

  pictures() {
    const { batch, chosen: group } = this;
    const rows = batch.groups.flatMap((id, row) => (group === null || id === group ? [row] : []));
    // The least certain first: those need a look most.
    rows.sort((a, b) => (batch.table.confidence[a] ?? 0) - (batch.table.confidence[b] ?? 0) || a - b);
    return el("section", { class: "panel" }, el("h2", {}, group === null ? "Images" : titleOf(group), el("span", {}, `${count(rows.length, "image")}, the least certain first`)), this.strip(rows));
  }

  strip(rows, shown = SHOWN) {
    const thumbs = rows.slice(0, shown).map((row) => this.thumb(row));
    const more = rows.length > shown ? button(`Show ${number(Math.min(60, rows.length - shown))} more of ${number(rows.length - shown)}`, (event) => event.target.closest(".alike").replaceWith(this.strip(rows, shown + 60)), { css: "quiet" }) : null;
    return el("div", { class: "alike" }, thumbs, more);
  }

  thumb(row) {
    const { table, groups, thumbnails, name } = this.batch;
    const words = `${table.name[row]} · ${titleOf(groups[row])} · confidence ${percent(table.confidence[row] ?? 0)}`;
    const image = thumbnails[row] ? el("img", { src: `assigned/${encodeURIComponent(name)}/thumb/${row}.jpg`, alt: "", loading: "lazy" }) : el("span", { class: "soft small" }, "no picture");
    return el("figure", { class: "thumb", title: words }, el("span", { class: "square" }, image),
      el("figcaption", { class: "with-mark" }, signOf(groups[row]), el("span", { class: "clip" }, titleOf(groups[row]))));
  }
}

function bars(values, periods, most, id, risen) {
  const words = `${titleOf(id)}: ${values.map((value, i) => `${periods[i]} ${value}`).join(", ")}`;
  const few = values.length <= FEW_PERIODS;
  return el("div", { class: "bars", role: "img", "aria-label": words, css: { "--group": colourOf(id) } },
    values.map((value, i) => el("span", { title: `${periods[i]}: ${value}` },
      few || risen.has(periods[i]) ? el("b", {}, risen.has(periods[i]) ? `▲ ${number(value)}` : number(value)) : null,
      el("i", { css: { height: `calc((100% - 1.2rem) * ${value / most})` } }))));
}

// The periods above their bars; only the first and the last where there are too many.
function axis(periods) {
  if (periods.length <= FEW_PERIODS) return el("div", { class: "bars axis" }, periods.map((period) => el("span", { class: "clip", title: period }, period)));
  return `${periods[0]} → ${periods.at(-1)}`;
}
