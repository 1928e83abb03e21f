// What is offered for names that are not clear: two groups of one name, or a group called normal that is none. The
// server finds them (labels/names.py).

import { button, count, el } from "./dom.js";
import { model } from "./model.js";
import { keepApart, mergeGroups, setRole } from "./naming.js";

// The notices about a group; about all groups if it is null. compare(one, other): shows both side by side.
// merged(id): called with the group that both became.
export function offersOf(id, { compare, merged }) {
  return model.state.offers.filter(({ groups }) => id === null || groups.includes(id)).map(({ kind, groups }) =>
    (kind === "normal" ? calledNormal(model.group(groups[0])) : ofOneName(groups, { compare, merged })));
}

const notice = (words, ...tools) => el("div", { class: "notice", role: "note" }, el("p", {}, words), el("div", { class: "row" }, tools));

function calledNormal(group) {
  return notice(`“${group.name}” means images without a flaw, but the group counts as a kind of flaw.`,
    button("Mark it as normal", () => setRole(group, "normal"), { css: "primary" }));
}

function ofOneName([one, other], { compare, merged }) {
  const sizes = [one, other].map((id) => count(model.group(id).n, "image")).join(" and ");
  return notice(`Two groups are called ${model.title(one)}: ${sizes}.`,
    button("Merge them", async () => { if (await mergeGroups(other, one)) merged(one); }, { css: "primary" }),
    button("Compare…", () => compare(one, other)),
    button("Keep them apart", () => keepApart(one, other), { css: "quiet" }));
}
