// Small helpers for elements. Whatever people or files are called is only ever set as text.

const SVG_SPACE = "http://www.w3.org/2000/svg";

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

// css: properties set one by one, since the page's policy forbids style attributes.
export const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG_SPACE, tag), props, children);

export const number = (value) => value.toLocaleString("en");
export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
export const figure = (value) =>
  value === null || value === undefined ? "–" : Math.abs(value) < 999.5 ? value.toPrecision(3) : String(Math.round(value));
export const percent = (share) => `${Math.round(100 * share)} %`;

// A button with its key beside its words.
export function button(words, action, { key, css = "", title, ...props } = {}) {
  const hint = key ? el("kbd", { "aria-hidden": "true" }, key) : null;
  const extra = key ? { "aria-keyshortcuts": key } : {};
  return el("button", { type: "button", class: css || null, title, onclick: action, ...extra, ...props }, words, hint);
}

// Once, in the next frame, however often it is asked for.
export function soon(action) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; action(); });
  };
}

let quiet = null;

// Read out, for those who do not see what happened.
export function say(text) {
  $("said").textContent = "";
  // A live region that is told the same words twice says them once.
  setTimeout(() => { $("said").textContent = text; }, 30);
}

// What happened, shown for a moment and read out.
export function announce(text, { undo } = {}) {
  const toast = $("toast");
  say(text);
  toast.replaceChildren(el("span", {}, text), ...(undo ? [button("Undo", undo, { css: "quiet" })] : []));
  toast.hidden = false;
  clearTimeout(quiet);
  quiet = setTimeout(() => { toast.hidden = true; }, 5000);
}
