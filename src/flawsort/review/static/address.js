// The address of what is shown: #page/part/part?filters. A reload, a bookmark or a link returns to it.

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

// {place, parts, params}: the page, what it shows, and what it filters by.
export function readAddress() {
  const [path, ...rest] = location.hash.slice(1).split("?");
  const [place, ...parts] = path.split("/").map(decoded);
  return { place, parts, params: new URLSearchParams(rest.join("?")) };
}

export const addressOf = (place, parts = [], filters = "") => `#${[place, ...parts].map(encodeURIComponent).join("/")}${filters ? `?${filters}` : ""}`;
