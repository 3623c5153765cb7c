// What all views share: elements, requests, numbers and times. Data becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// The answer to a request. `signal` ends it when its view is left.
export async function get(path, parameters = {}, signal = null) {
  const answer = await fetch(url(path, parameters), { signal });
  const found = await answer.json().catch(() => ({ error: `${answer.status} ${answer.statusText}` }));
  if (answer.status === 401) location.assign("/login"); // the server was started again
  if (!answer.ok) throw new Error(found.error || `${answer.status} ${answer.statusText}`);
  return found;
}

// Events of the server, each with its data, until the view is left.
export function listen(path, parameters, signal, calls) {
  const source = new EventSource(url(path, parameters));
  signal.addEventListener("abort", () => source.close());
  source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) get("about").catch(() => {}); });
  for (const [name, call] of Object.entries(calls)) source.addEventListener(name, (event) => call(event.data === undefined ? null : JSON.parse(event.data)));
  return source;
}

// Each call returns the signal of a new request and ends the preceding one, so only the last answer is drawn.
export function newest(signal) {
  let last = new AbortController();
  return () => {
    last.abort();
    last = new AbortController();
    return AbortSignal.any([signal, last.signal]);
  };
}

export function url(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `/api/${path}${given.length ? "?" : ""}${new URLSearchParams(given)}`;
}

export function failure(error) {
  return h("p", { class: "notice bad", role: "alert" }, error.message || String(error));
}

export function say(text) {
  document.getElementById("status").textContent = text;
}

// --- numbers and times ------------------------------------------------------------------------------------------------

const WHOLE = new Intl.NumberFormat("en");
export const number = (value) => (value === null || value === undefined ? "–" : WHOLE.format(value));

export const counted = (value, what, several = `${what}s`) => `${number(value)} ${value === 1 ? what : several}`;

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10000) return WHOLE.format(value);
  for (const [limit, unit] of [[1e6, "k"], [1e9, "M"], [1e12, "G"]]) {
    if (value < limit) return `${(value / (limit / 1000)).toPrecision(3)} ${unit}`;
  }
  return value.toExponential(2);
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  if (bytes < 1024) return `${bytes} B`;
  let amount = bytes;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    amount /= 1024;
    if (amount < 1000 || unit === "TiB") return `${amount.toPrecision(3)} ${unit}`;
  }
  return "";
}

export function ago(ms) {
  if (!ms) return "–";
  const seconds = Math.max(0, (Date.now() - ms) / 1000);
  for (const [limit, scale, unit] of [[5, 1, ""], [90, 1, "s"], [5400, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "days"]]) {
    if (seconds < limit) return unit ? `${Math.round(seconds / scale)} ${unit} ago` : "just now";
  }
  return "";
}

export function rate(count, ms) {
  if (!count || !ms) return "";
  for (const [scale, unit] of [[1000, "s"], [60e3, "min"], [3600e3, "h"], [86400e3, "day"]]) {
    if ((count * scale) / ms >= 1 || unit === "day") return `${short(Number(((count * scale) / ms).toPrecision(3)))} / ${unit}`;
  }
  return "";
}

export const iso = (ms) => new Date(ms).toISOString();

export function shortTime(ms, span) {
  const text = iso(ms);
  if (span < 2 * 60e3) return text.slice(11, 23);
  if (span < 48 * 3600e3) return text.slice(11, 19);
  return text.slice(0, 16).replace("T", " ");
}

// A time as a column or a sentence shows it; all times are UTC, and say so there.
export const clock = (time) => (time ? time.replace("T", " ").replace(/(\.\d{3})\d*Z?$|Z$/, "$1") : "–");

// --- pieces -----------------------------------------------------------------------------------------------------------

const HEALTH = {
  good: ["good", "sound"],
  torn: ["warn", "torn tail"],
  lost: ["warn", "known losses"],
  damaged: ["bad", "damaged"],
  unreadable: ["bad", "unreadable"],
};

export function badge(health) {
  const [look, text] = HEALTH[health] || ["", health];
  return h("span", { class: `badge ${look}` }, text);
}

export function copyable(text) {
  const button = h("button", { class: "copy", type: "button", "aria-label": `Copy the command ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(text).catch(() => {});
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return h("span", { class: "command" }, h("code", {}, text), button);
}

export function tile(label, value, look = "", href = null) {
  return h(href ? "a" : "div", { class: `tile ${look}`, href }, h("span", { class: "tile-value" }, value), h("span", { class: "tile-label" }, label));
}

export function plainTable(caption, columns, rows, empty = "None.") {
  if (!rows.length) return h("p", { class: "muted" }, empty);
  const head = h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.right ? "right" : null }, column.name)));
  const body = rows.map((row) =>
    h("tr", { class: row.look || null }, columns.map((column) => h("td", { class: column.look || (column.right ? "right" : null) }, column.cell(row)))));
  return h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "hidden-text" }, caption), h("thead", {}, head), h("tbody", {}, body)));
}

export const json = (value) => (value === undefined ? "" : JSON.stringify(value));

export function clear(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
