// Requests to the server, and the three ways in which they fail.

export class Conflict extends Error {} // somebody else changed the groups first
export class Refused extends Error {} // the server rejects the request and says why
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
  throw new Kind(reasonOf(body, reply.status));
}

const encode = encodeURIComponent;
const post = (path, body) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const api = {
  run: () => call("api/run", { cache: "default" }),
  state: () => call("api/state"),
  // skipped: postponed questions, as ["skip", group] or ["later", row].
  queue: (skipped) => call(`api/queue?${new URLSearchParams(skipped)}`),
  similar: (row, n = 12) => call(`api/similar/${row}?n=${n}`),
  split: (group, parts) => call(`api/split/${group}?parts=${parts}`),
  batches: () => call("api/assigned"),
  batch: (name) => call(`api/assigned/${encode(name)}`),
  undo: (version) => post("api/undo", { version }),
  redo: (version) => post("api/redo", { version }),
  edit: (version, kind, payload) => post("api/edits", { version, kind, payload }),
};
