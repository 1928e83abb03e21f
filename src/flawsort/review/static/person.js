// Who edits: a name that is asked once, before the first edit, and kept in this browser.

import { askText } from "./dialogs.js";
import { $ } from "./dom.js";

const KEY = "flawsort.person";
const LONGEST = 80;
// What the server refuses in a name: control characters, and those that change the direction of text.
const REFUSED = /[\p{Cc}\p{Cs}\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]/gu;
const listeners = new Set();
let asking = null;

const clean = (text) => text.replace(REFUSED, "").trim().slice(0, LONGEST);

// A browser may keep nothing; the name is then asked for each time that the page is opened.
function stored() {
  try {
    const found = localStorage.getItem(KEY);
    return found === null ? null : clean(found);
  } catch {
    return null;
  }
}

function store(name) {
  try {
    localStorage.setItem(KEY, name);
  } catch {
    // It stays for this page.
  }
}

// name: "" for somebody who gave none; null until somebody was asked.
export const person = {
  name: stored(),

  get known() { return person.name !== null; },

  // Calls `listener` when the name has changed.
  watch(listener) { listeners.add(listener); },

  // Ask for the name. Resolves to whether it is known then.
  ask() {
    asking ??= askText("Who are you?", person.name ?? "", {
      label: "Your name", longest: LONGEST,
      hint: "Your name is kept with each of your edits, so that others see who changed what, and in this browser, so that you are asked once. Leave it empty to give none.",
    }).then((name) => {
      asking = null;
      if (name === null) return person.known;
      person.name = clean(name);
      store(person.name);
      draw();
      for (const listener of listeners) listener();
      return true;
    });
    return asking;
  },
};

function draw() {
  const node = $("person");
  const words = person.name ? `You are ${person.name}` : "You gave no name";
  node.hidden = !person.known;
  node.querySelector(".clip").textContent = person.name || "No name";
  node.title = `${words}. Change it.`;
  node.setAttribute("aria-label", node.title);
}

// Another tab of this browser has another name now.
addEventListener("storage", (event) => {
  if (event.key !== KEY) return;
  person.name = stored();
  draw();
  for (const listener of listeners) listener();
});
$("person").addEventListener("click", () => person.ask());
draw();
