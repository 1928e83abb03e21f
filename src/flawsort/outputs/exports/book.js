// Tiles of the flaw or of the whole image, by a button and by the key V; beside a flaw and its match the difference.

import { differenceOf } from "./difference.js";

const button = document.getElementById("tiles");

function swap() {
  const on = document.documentElement.classList.toggle("flaw-tiles");
  button.setAttribute("aria-pressed", String(on));
  if (on) document.querySelectorAll("figure").forEach(compare);
}

// Draws the difference below the flaw and its match, once. It is not kept in the file, which stays small.
async function compare(figure) {
  const [here, there] = figure.querySelectorAll(".of-flaw img");
  if (!there || figure.querySelector(".difference")) return;
  const place = there.closest(".square").cloneNode(true);
  place.classList.add("difference");
  there.closest(".square").after(place);
  await Promise.all([here.decode(), there.decode()]);
  const drawn = differenceOf(here, there);
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", "Difference of the two");
  place.querySelector(".picture").replaceChildren(drawn);
}

if (button) {
  button.hidden = false;
  button.addEventListener("click", swap);
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "v" || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    swap();
  });
}
