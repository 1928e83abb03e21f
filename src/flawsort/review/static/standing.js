// Whether an edit still means what the person saw, after others have changed the groups.

// Kinds of edits that are about images which they name. The others are about groups or everything: what the server
// does not add to the edits of others is shown to the person first.
const NAMING = ["accept", "reject", "move", "several", "split", "note", "audit", "answer"];
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

// before, after: states. An undo names one edit, and the server refuses it if it is not safe any more.
export function stands({ kind, payload }, before, after) {
  if (kind === "undo" || kind === "redo") return true;
  if (!NAMING.includes(kind) || before.basis !== after.basis) return false;
  const images = payload.images ?? (payload.image === undefined ? [] : [payload.image]);
  if (!images.length && kind !== "answer") return false;
  if (before.k !== after.k) return false;
  const named = [payload.group, payload.to, ...(payload.groups ?? [])].filter(Number.isInteger);
  return images.every((row) => same(imageIn(before, row), imageIn(after, row))) &&
    [...named, ...images.map((row) => before.labels[row])].every((id) => same(groupIn(before, id), groupIn(after, id)));
}

// What a person is shown of an image and of a group, apart from numbers that change all the time.
const imageIn = (state, row) => [state.labels[row], state.decided.includes(row), state.kinds[row] ?? [], state.notes[row] ?? ""];

function groupIn(state, id) {
  const found = state.groups.find((group) => group.id === id);
  return found ? [found.title, found.role, found.severity, found.note] : null;
}
