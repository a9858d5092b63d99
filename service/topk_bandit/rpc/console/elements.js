// Elements from text and nothing but text: what others named can't become markup.

const SVG = "http://www.w3.org/2000/svg";

function made(one, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) one.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) one.setAttribute(name, value === true ? "" : value);
  }
  one.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return one;
}

export const element = (name, attributes = {}, ...children) => made(document.createElement(name), attributes, children);

export const shape = (name, attributes = {}, ...children) => made(document.createElementNS(SVG, name), attributes, children);

// A table in a box that can be scrolled, also by keyboard. Columns that begin with "#" have numbers.
export function table(caption, columns, rows) {
  const kinds = columns.map((column) => (column.startsWith("#") ? { class: "figure" } : {}));
  const head = columns.map((column, at) => element("th", { scope: "col", ...kinds[at] }, column.replace(/^#/, "")));
  const body = rows.map((cells) => element("tr", {}, cells.map((cell, at) => element("td", kinds[at], cell))));
  return element("div", { class: "wide", tabindex: "0", role: "group", "aria-label": caption },
    element("table", {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, head)),
      element("tbody", {}, body)));
}

export const section = (title, id, ...children) =>
  element("section", { "aria-labelledby": `${id}-title`, id }, element("h2", { id: `${id}-title` }, title), children);

export const facts = (pairs) =>
  element("dl", { class: "facts" }, pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));

export const soft = (...text) => element("p", { class: "soft" }, text);

// Puts new children in the place of old ones. What was focused, unfolded and scrolled by its id or label stays so.
export function replace(parent, ...children) {
  const held = document.activeElement;
  const mark = parent.contains(held) ? markOf(held) : "";
  const unfolded = [...parent.querySelectorAll("details[open]")].map(({ id }) => id);
  const scrolled = [...parent.querySelectorAll(".wide")].map((one) => [markOf(one), one.scrollLeft]);
  parent.replaceChildren(...children);
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
  for (const [of, left] of scrolled) if (of) { const one = parent.querySelector(of); if (one) one.scrollLeft = left; }
  if (mark) parent.querySelector(mark)?.focus({ preventScroll: true });
}

function markOf(one) {
  if (one.id) return `#${CSS.escape(one.id)}`;
  if (one.localName === "summary") return `#${CSS.escape(one.parentElement.id)} > summary`;
  const named = ["href", "aria-label"].find((name) => one.hasAttribute(name));
  return named ? `[${named}="${CSS.escape(one.getAttribute(named))}"]` : "";
}
