// The page of new images sorted into the groups later: counts, increases and new kinds.

import { api } from "./api.js";
import { button, count, el, number, percent } from "./dom.js";
import { reading } from "./editing.js";
import { colourOf } from "./marks.js";
import { model } from "./model.js";
import { NEW_KIND, newMark, newSureness, newStanding, newTitle, NORMAL, strange, verdictCounts } from "./newimages.js";
import { answer, openNew, redrawNew } from "./newview.js";
import { SureBar } from "./surebar.js";
import { VerdictPanel } from "./verdict.js";

const FEW_PERIODS = 12;
const SHOWN = 24;
const MORE = 60;
// flawsort watch adds images all the time.
const LOOK_EVERY = 10_000;
// Why an image cannot teach.
const REASONS = {
  older: "This batch was made by an older version, which kept no embeddings. Sort the images again (flawsort assign) to teach with them.",
  many: "Only the first images of a large batch are kept with what teaching needs.",
  run: "This is an image of the run itself. Decide it among the groups.",
};

const when = (at) => { const date = new Date(at); return at && !Number.isNaN(date.getTime()) ? date.toLocaleString() : at; };

export class NewPage {
  static place = "new";
  static title = "New images";
  static rail = false;

  static keys = [["Enter", "open the image in focus"], ["Shift + A", "accept all images that are sure enough"], ["A", "accept it"], ["1 – 9, M, N", "say what it is: a group, by name, normal"], ["S", "make it the first of a new group"], ["←  →", "the image before, the next one"]];

  constructor() {
    // newest: the newest batch is shown, also when there is a newer one. seen: the list as it was drawn.
    Object.assign(this, { name: null, batch: null, chosen: null, shown: new Map(), turn: 0, newest: true, seen: "" });
    this.verdict = new VerdictPanel();
    this.sure = new SureBar((rows) => this.acceptAll(rows), {
      undecided: (rows) => rows.filter((row) => !this.batch.teaches[row] && !this.batch.decided[row] && this.batch.groups[row] !== NEW_KIND && !strange(this.batch, row)),
      sureness: (row) => newSureness(this.batch, row),
    }, (n) => `Accept all ${n}`); // the surest of many are drawn only if asked for
    this.list = el("select", { "aria-label": "Batch of new images", onchange: () => { this.name = this.list.value; this.newest = this.list.selectedIndex === this.list.length - 1; this.draw(); } });
    this.head = el("header", { class: "bar" }, el("h1", {}, "New images"), this.list);
    this.body = el("div", { class: "new-body" });
    this.node = el("section", { class: "page scroll-page new-page", "aria-label": "New images" }, this.head, this.body);
    setInterval(() => this.lookAgain(), LOOK_EVERY);
  }

  // Draws again if images have been added since. What is lost now is asked for again a moment later.
  async lookAgain() {
    if (this.node.hidden || document.hidden || !this.node.isConnected) return;
    const batches = await api.batches().catch(() => null);
    if (batches && JSON.stringify(batches) !== this.seen) this.draw();
  }

  async draw() {
    if (this.node.hidden) return;
    const turn = ++this.turn;
    const batches = await reading(api.batches());
    if (!batches || turn !== this.turn) return;
    this.seen = JSON.stringify(batches);
    this.list.hidden = !batches.length;
    if (!batches.length) return void this.drawNone();
    if (this.newest || !batches.some((one) => one.name === this.name)) this.name = batches.at(-1).name;
    this.list.replaceChildren(...batches.map((one) => el("option", { value: one.name }, `${one.name} (${one.reason ? "damaged" : count(one.n, "image")})`)));
    this.list.value = this.name;
    const { reason } = batches.find((one) => one.name === this.name);
    const batch = reason ? null : await reading(api.batch(this.name));
    if (turn !== this.turn) return;
    if (!batch) return void this.body.replaceChildren(el("p", { class: "warnings" }, reason || "This batch cannot be shown."));
    if (batch.name !== this.batch?.name) Object.assign(this, { chosen: null, shown: new Map() });
    this.batch = batch;
    this.drawBatch();
    redrawNew();
  }

  key(event) {
    if (!this.batch || !event.shiftKey || event.key.toLowerCase() !== "a" || event.ctrlKey || event.metaKey) return false;
    this.sure.accept();
    return true;
  }

  // Why an image cannot teach, or undefined if it can.
  reason(row) { return REASONS[this.batch.teaches[row]]; }

  drawNone() {
    this.body.replaceChildren(el("div", { class: "empty" }, el("p", {}, "No new images have been sorted into this run yet."),
      el("p", {}, el("code", {}, "flawsort assign new/ --run run/ --keep monday")),
      el("p", {}, el("code", {}, "flawsort watch incoming/ --run run/")),
      el("p", { class: "hint" }, "The first command sorts a folder of images into these groups, the second sorts them as they arrive. The result appears here: counts for each group by day or lot, increases, and images that match no group.")));
  }

  drawBatch() {
    const { batch } = this;
    const { scrollTop } = this.node;
    const held = this.body.contains(document.activeElement) ? document.activeElement.dataset.row : undefined;
    const fresh = batch.groups.filter((id) => id === NEW_KIND).length;
    const by = batch.by ? `by ${batch.by}` : "";
    const done = batch.decided.filter(Boolean).length;
    this.body.replaceChildren(
      el("p", { class: "lead" }, [count(batch.n, "image"), when(batch.at), by, `${number(done)} decided`, fresh ? `${number(fresh)} (${percent(fresh / batch.n)}) of new kinds` : "none of a new kind", verdictCounts(batch)].filter(Boolean).join(" · ")),
      ...(batch.teaches.includes("older") ? [el("p", { class: "warnings", role: "note" }, REASONS.older)] : []),
      ...this.rises(), this.charts(), ...this.proposals(), this.pictures(), this.verdict.node);
    this.verdict.draw(batch);
    this.node.scrollTop = scrollTop;
    if (held !== undefined) this.body.querySelector(`[data-row="${held}"]`)?.focus({ preventScroll: true });
  }

  async acceptAll(rows) {
    const { batch } = this;
    for (const id of new Set(rows.map((row) => batch.groups[row]))) {
      const same = rows.filter((row) => batch.groups[row] === id);
      if (!(await answer(batch.name, same, id < 0 ? "normal" : id))) return;
    }
  }

  rises() {
    if (!this.batch.rises.length) return [];
    const items = this.batch.rises.map(({ group, period, count: seen, expected }) =>
      el("li", { class: "with-mark" }, newMark(group), el("span", {}, `${newTitle(group)} in ${period}: ${number(seen)}, ${expected < 0.05 ? "none" : `about ${expected.toFixed(expected < 10 ? 1 : 0)}`} expected`)));
    return [el("div", { class: "warnings", role: "note" }, el("strong", {}, count(items.length, "increase")), el("ul", { class: "plain" }, items))];
  }

  // One row per group, all on the same scale, so that groups can be compared.
  charts() {
    const { counts, rises } = this.batch;
    const most = Math.max(1, ...counts.table.flat());
    const place = new Map([...model.groups.map((group) => group.id), NORMAL, NEW_KIND].map((id, rank) => [id, rank]));
    const columns = counts.groups.map((id, column) => [id, column]).sort((a, b) => place.get(a[0]) - place.get(b[0]));
    const rows = columns.map(([id, column]) => {
      const values = counts.table.map((row) => row[column]);
      const risen = new Set(rises.filter((rise) => rise.group === id).map((rise) => rise.period));
      const on = this.chosen === id;
      const choose = button([newMark(id), el("span", { class: "clip" }, newTitle(id))], () => { this.chosen = on ? null : id; this.drawBatch(); },
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
      el("p", { class: "hint" }, rows.length > 1
        ? "These images match no group of this run and look alike. Open one, and make it the first of a new group (S): the others follow."
        : "This image matches no group of this run. Open it, and say what it is (M), or make it the first of a new group (S)."),
      this.strip(rows, `proposal ${index}`)));
  }

  pictures() {
    const { batch, chosen: group } = this;
    const rows = batch.groups.flatMap((id, row) => (group === null || id === group ? [row] : []));
    // Undecided ones first, and of these the strange and the least certain: those need a look most.
    const sure = (row) => (batch.decided[row] ? 2 : strange(batch, row) ? -1 : batch.table.probability[row] ?? 1);
    rows.sort((a, b) => sure(a) - sure(b) || a - b);
    this.sure.show(rows);
    const apart = rows.filter((row) => strange(batch, row)).length;
    const words = apart ? el("p", { class: "hint" }, `${count(apart, "image")} with a group ${apart === 1 ? "is" : "are"} unlike the images of the run (?). Look at ${apart === 1 ? "it" : "them"} one by one: they come first, and the button below leaves them out.`) : null;
    return el("section", { class: "panel" }, el("h2", {}, group === null ? "Images" : newTitle(group), el("span", {}, `${count(rows.length, "image")}, the least certain first`)),
      words, this.sure.node, this.strip(rows, `group ${group}`));
  }

  // part: what the rows are of. Each part remembers how many of its images are shown.
  strip(rows, part) {
    const shown = this.shown.get(part) ?? SHOWN;
    const thumbs = rows.slice(0, shown).map((row, index) => this.thumb(rows, index));
    const left = rows.length - shown;
    const words = left > MORE ? `Show ${MORE} more of ${number(left)}` : left === 1 ? "Show the last image" : `Show the last ${count(left, "image")}`;
    const more = left > 0 ? button(words, () => { this.shown.set(part, shown + MORE); this.drawBatch(); }, { css: "quiet" }) : null;
    return el("div", { class: "alike" }, thumbs, more);
  }

  thumb(rows, index) {
    const { batch } = this;
    const row = rows[index];
    const [title, sure] = [newTitle(batch.groups[row]), newSureness(batch, row)];
    const words = [batch.table.name[row], title, newStanding(batch, row), batch.verdicts[row]].filter(Boolean).join(" · ");
    const image = batch.thumbnails[row] ? el("img", { src: `assigned/${encodeURIComponent(batch.name)}/thumb/${row}.jpg`, alt: "", loading: "lazy" }) : el("span", { class: "soft small" }, "no picture");
    const sign = batch.decided[row] ? el("span", { class: "sign sure" }, "✓") : sure === null ? null : el("span", { class: "sign maybe" }, `${strange(batch, row) ? "? " : ""}${sure}%`);
    const verdict = batch.verdicts[row] ? el("span", { class: `sign ${batch.verdicts[row] === "OK" ? "ok" : "not-ok"}` }, batch.verdicts[row]) : null;
    return el("button", { type: "button", "data-row": row, class: `thumb${sure === null ? "" : " suggested"}`, title: words, "aria-label": words, onclick: () => openNew(this, rows, index) },
      el("span", { class: "square" }, image, el("span", { class: "signs", "aria-hidden": "true" }, verdict, sign)),
      el("span", { class: "with-mark" }, newMark(batch.groups[row]), el("span", { class: "clip" }, title)));
  }
}

function bars(values, periods, most, id, risen) {
  const words = `${newTitle(id)}: ${values.map((value, i) => `${periods[i]} ${value}`).join(", ")}`;
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
