// Elements without inner HTML: everything that comes from the cluster becomes text.

import * as f from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

export function card(title, ...children) {
  return h("section", { class: "card", "aria-label": title }, h("h2", null, title), children);
}

/** A table; `columns` are {title, num, cell(row), sort, long}. `onSort` gets a column's name. */
export function table(caption, columns, rows, { sort = null, onSort = null, empty = "None." } = {}) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = columns.map((column) => {
    const name = column.sort;
    if (!name || !onSort) return h("th", { scope: "col", class: column.num ? "num" : null }, column.title);
    const isUp = sort === name;
    const isDown = sort === "-" + name;
    return h(
      "th",
      { scope: "col", class: column.num ? "num" : null, "aria-sort": isUp ? "ascending" : isDown ? "descending" : null },
      h("button", { type: "button", onclick: () => onSort(isUp ? "-" + name : name) }, column.title, isUp ? " ↑" : isDown ? " ↓" : ""),
    );
  });
  const body = rows.map((row) =>
    h("tr", null, columns.map((column) => h("td", { class: column.num ? "num" : column.long ? "long" : column.tight ? "tight" : null }, column.cell(row)))),
  );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", null, caption), h("thead", null, h("tr", null, head)), h("tbody", null, body)),
  );
}

export function pager(answer, go) {
  const pages = Math.max(1, Math.ceil(answer.total / answer.size));
  if (pages === 1) return null;
  return h(
    "div",
    { class: "pager" },
    h("button", { type: "button", disabled: answer.page === 0, onclick: () => go(answer.page - 1) }, "Previous"),
    h("span", null, `Page ${answer.page + 1} of ${pages}`),
    h("button", { type: "button", disabled: answer.page + 1 >= pages, onclick: () => go(answer.page + 1) }, "Next"),
  );
}

export const pill = (text, kind) => h("span", { class: "pill " + (kind || "") }, text);

/** A plot of values over time with a text for those who cannot see it. */
export function plot(label, samples, value, format) {
  const values = samples.map(value);
  const last = values.length ? format(values[values.length - 1]) : "no data yet";
  const most = Math.max(...values, 0);
  const text = values.length ? `${label}: ${last} now, at most ${format(most)}` : `${label}: no data yet`;
  const figure = h("div", null, h("div", { class: "key" }, h("span", null, label), h("b", null, last), h("span", null, `at most ${format(most)}`), values.length > 1 ? h("span", null, `since ${f.moment(samples[0].time_ms)}`) : null));
  if (values.length < 2) return figure;
  const begin = samples[0].time_ms;
  const span = Math.max(1, samples[samples.length - 1].time_ms - begin);
  const points = samples.map((sample, index) => {
    const x = ((sample.time_ms - begin) / span) * 600;
    const y = 90 - (most ? (values[index] / most) * 84 : 0);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  figure.append(
    svg(
      "svg",
      { class: "plot", viewBox: "0 0 600 92", preserveAspectRatio: "none", role: "img", "aria-label": text },
      svg("polygon", { class: "area", points: `0,91 ${points.join(" ")} 600,91` }),
      svg("polyline", { class: "curve", points: points.join(" ") }),
    ),
  );
  return figure;
}

/** A small plot for a cell of a table; null values are unknown. */
export function spark(label, values, format) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return f.DASH;
  const most = Math.max(...known);
  const step = 100 / (values.length - 1);
  const points = values.map((value, index) => (value === null ? null : `${(index * step).toFixed(1)},${(18 - (most ? (value / most) * 16 : 0)).toFixed(1)}`));
  return svg(
    "svg",
    { class: "plot spark", viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${format(known[0])} at first, ${format(known[known.length - 1])} now, at most ${format(most)}` },
    svg("polyline", { class: "curve", points: points.filter(Boolean).join(" ") }),
  );
}
