// Names that are taken already, or that mean normal: an offer instead of a refusal.

import { askName, choose } from "./dialogs.js";
import { count } from "./dom.js";
import { edit } from "./editing.js";
import { model } from "./model.js";

const ANOTHER = { value: "again", words: "Another name…" };
const MEANS = (name) => `“${name}” means images without a flaw`;
const TAKEN = ({ taken }) => `There is a group ${model.title(taken)} already`;
const sized = (id) => `${model.title(id)} (${count(model.group(id)?.n ?? 0, "image")})`;

// Handles an edit that was refused for its name; for the option `refused` of `edit`. given: {name, title, text, yes}
// for a name that is taken, the same for one that means normal; join(to): puts it into the group with that id, or
// "normal"; again(): asks for another name.
function instead({ taken, normal, join, again }) {
  return (error) => {
    const offer = error.normal ? normal : error.taken === null || error.taken === undefined ? null : taken(error);
    if (!offer) return null;
    return choose(offer.title, offer.text, [{ value: "join", words: offer.yes, css: "primary" }, ANOTHER]).then((answer) => {
      if (answer === "join") return join(error.normal ? "normal" : error.taken);
      return answer === "again" ? again() : null;
    });
  };
}

// For images that were to become a group of that name. what: the images, in words.
export const insteadOfNew = (name, what, { join, again }) => instead({
  taken: (error) => ({ title: TAKEN(error), text: `Put ${what} into ${sized(error.taken)}?`, yes: "Put them there" }),
  normal: { title: MEANS(name), text: `Move ${what} to normal?`, yes: "Move them to normal" }, join, again,
});

// Give a group a name. Resolves to the new state, or to null.
export function nameGroup(group, name) {
  const { id, title } = group;
  const refused = instead({
    taken: (error) => ({ title: TAKEN(error), text: `Merge ${sized(id)} into ${sized(error.taken)}? It can be undone.`, yes: "Merge them" }),
    normal: { title: MEANS(name), text: `Mark ${title} as normal?`, yes: "Mark it as normal" },
    join: (to) => (to === "normal" ? setRole(group, "normal") : mergeGroups(id, to)),
    again: async () => {
      const other = await askName(`Name of ${title}`, name);
      return other === null ? null : nameGroup(group, other);
    },
  });
  return edit("name", { group: id, name }, `name ${title} “${name}”`, { refused });
}

export const setRole = (group, role) => edit("role", { group: group.id, role }, `make ${group.title} ${role === "flaw" ? "a kind of flaw" : role}`);

export const mergeGroups = (id, into) => edit("merge", { groups: [id], into }, `merge ${model.title(id)} into ${model.title(into)}`);

export const keepApart = (one, other) => edit("different", { groups: [one, other] }, `say that ${model.title(one)} and ${model.title(other)} differ`);
