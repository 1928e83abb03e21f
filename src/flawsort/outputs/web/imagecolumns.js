// The columns that every run has, as conditions.js describes them.

import { figure } from "./dom.js";

const NO_FLAG = "none";
const TOP = ".";
const naturally = new Intl.Collator("en", { numeric: true }).compare;

export const percentWords = (value) => `${Number(value.toFixed(2))}%`;

// The result of `make`, made when it is first asked for.
function once(make) {
  let made = null;
  return () => { made ??= make(); return made; };
}

// The folders of a file, the nearest last; those of an address begin below its host.
function foldersOf(name) {
  const parts = name.slice(0, Math.max(0, name.lastIndexOf("/"))).split("/");
  const all = parts.map((_, index) => parts.slice(0, index + 1).join("/"));
  const found = all.filter((one) => one && !/^\w+:\/?$/.test(one));
  return found.length ? found : [TOP];
}

// For each image its folder and those above it; images of one folder share their list.
function folderLists(names) {
  const lists = new Map();
  return names.map((name) => {
    const folder = name.slice(0, name.lastIndexOf("/") + 1);
    if (!lists.has(folder)) lists.set(folder, foldersOf(name));
    return lists.get(folder);
  });
}

function flagLists(flags) {
  const lists = new Map(flags.map((text) => [text, text ? text.split(";") : [NO_FLAG]]));
  return flags.map((text) => lists.get(text));
}

// The share of each image that its regions cover, in percent.
function areas({ n, regions }) {
  const shares = new Float64Array(n);
  regions.image.forEach((row, region) => { shares[row] += 100 * regions.share[region]; });
  return shares;
}

// run(): {n, names, scores, flags, regions: {image, share}}, lists with one value an image or region. Nothing is read
// before a column is used.
export function imageColumns(run) {
  const [folders, flags, shares] = [once(() => folderLists(run().names)), once(() => flagLists(run().flags)), once(() => areas(run()))];
  const folderList = once(() => [...new Set([...new Set(folders())].flat())].sort(naturally));
  return {
    name: { words: "File name", kind: "text", of: (row) => run().names[row] },
    flags: {
      words: "Flags", kind: "choice", of: (row) => flags()[row], title: (key) => (key === NO_FLAG ? "No flag" : key.charAt(0).toUpperCase() + key.slice(1).replace("-", " ")),
      options: once(() => [...new Set(flags().flat())].sort((a, b) => (a === NO_FLAG) - (b === NO_FLAG) || naturally(a, b))),
    },
    score: { words: "Anomaly score", kind: "number", of: (row) => run().scores[row], show: figure },
    area: { words: "Size of the flaw", kind: "number", of: (row) => shares()[row], show: percentWords, unit: "% of the image", hint: "The part of the image that its regions cover." },
    folder: { words: "Folder", kind: "choice", closed: true, of: (row) => folders()[row], title: (key) => (key === TOP ? "(no folder)" : key), options: folderList, shown: () => folderList().length > 1 },
  };
}
