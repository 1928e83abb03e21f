// Requests to the server, and the three ways in which they fail.

export class Conflict extends Error {} // somebody else changed the groups first
export class Refused extends Error {} // the server rejects the request and says why; taken, normal: of a name
export class Lost extends Error {} // no answer at all

const PATIENCE = 30_000;

function reasonOf(body, status) {
  if (typeof body.detail === "string") return body.detail;
  if (Array.isArray(body.detail)) return body.detail.map((problem) => problem.msg).join("; ");
  return `The server answered with an error (${status}).`;
}

async function call(path, options = {}) {
  let reply;
  try {
    reply = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE), ...options });
  } catch {
    throw new Lost("The server does not answer.");
  }
  if ([502, 503, 504].includes(reply.status)) throw new Lost("The server does not answer.");
  let body;
  try {
    body = await reply.json();
  } catch {
    if (reply.ok) throw new Lost("The server sent an incomplete answer.");
    body = {};
  }
  if (reply.ok) return body;
  const Kind = reply.status === 409 ? Conflict : Refused;
  throw Object.assign(new Kind(reasonOf(body, reply.status)), { taken: body.taken, normal: body.normal });
}

const encode = encodeURIComponent;
const json = (body) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
const post = (path, body) => call(path, json(body));

export const api = {
  run: () => call("api/run", { cache: "default" }),
  state: () => call("api/state"),
  // asker: who asks. hold: rather the question that they have. skipped: postponed questions, as ["skip", group]
  // or ["later", row].
  queue: (asker, hold, skipped) => call(`api/queue?${new URLSearchParams([["asker", asker], ["hold", hold], ...skipped])}`),
  // Also while the page is being closed, when no answer can be waited for.
  leave: (asker) => fetch("api/queue/leave", { ...json({ asker }), keepalive: true }).catch(() => null),
  history: (n, before) => call(`api/history?n=${n}${before === undefined ? "" : `&before=${before}`}`),
  accuracy: () => call("api/accuracy"),
  audit: () => call("api/audit"),
  lots: (by) => call(`api/lots?by=${encode(by)}`),
  sizes: () => call("api/sizes"),
  similar: (row, n = 12) => call(`api/similar/${row}?n=${n}`),
  place: (row) => call(`api/place/${row}`),
  split: (group, parts) => call(`api/split/${group}?parts=${parts}`),
  batches: () => call("api/assigned"),
  batch: (name) => call(`api/assigned/${encode(name)}`),
  verdict: () => call("api/verdict"),
  // on: the version and the basis of the state that an edit is based on, and who makes it. of: the number of an edit.
  undo: (on, { of }) => post("api/undo", { ...on, of }),
  redo: (on, { of }) => post("api/redo", { ...on, of }),
  // Answer for new images. batch: their name; payload: rows, to and, for a new group, its name.
  answer: (on, { batch, ...payload }) => post(`api/assigned/${encode(batch)}/answers`, { ...on, ...payload }),
  edit: (on, kind, payload) => post("api/edits", { ...on, kind, payload }),
};
