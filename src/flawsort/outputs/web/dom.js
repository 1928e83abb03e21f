// Small helpers for elements. Names of groups and files are only ever set as text, never as HTML.

// The SVG namespace, read from an element, so that a report contains no URL at all.
const SVG_SPACE = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

export const $ = (id) => document.getElementById(id);

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.setAttribute("class", value);
    else if (key === "css") for (const [name, set] of Object.entries(value)) node.style.setProperty(name, set);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// css: properties set one by one, since the content security policy forbids style attributes.
export const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG_SPACE, tag), props, children);

export const number = (value) => value.toLocaleString("en");
export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
export const figure = (value) =>
  value === null || value === undefined ? "–" : Math.abs(value) < 999.5 ? value.toPrecision(3) : String(Math.round(value));
export const percent = (share) => `${Math.round(100 * share)}%`;

// A button with its shortcut key beside its text.
export function button(words, action, { key, css = "", title, ...props } = {}) {
  const hint = key ? el("kbd", { "aria-hidden": "true" }, key) : null;
  const extra = key ? { "aria-keyshortcuts": key } : {};
  return el("button", { type: "button", class: css || null, title, onclick: action, ...extra, ...props }, words, hint);
}

// A function that runs the action once in the next frame, however often it is called.
export function soon(action) {
  let scheduled = false;
  return () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => { scheduled = false; action(); });
  };
}

// Decode base64 into an ArrayBuffer.
export function unpack(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out.buffer;
}

// Place a tooltip beside a point of the window, within its bounds.
export function placeTip(tip, x, y) {
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, x + 16 + width > innerWidth ? x - width - 16 : x + 16)}px`;
  tip.style.top = `${Math.min(innerHeight - height - 4, Math.max(4, y - height / 2))}px`;
}
