// One record in full: fields, the decoded value, the bytes, and its neighbours.
import { clear, clock, failure, get, h, newest, number } from "./lib.js";

export function recordPanel(about, signal) {
  const element = h("aside", { class: "record", hidden: true, "aria-label": "One record", tabindex: "-1" });
  const next = newest(signal);
  let opener = null, decode = null, schema = null, shown = null;
  const close = () => { element.hidden = true; shown = null; opener?.focus(); };
  element.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });

  async function open(row, offset = 0) {
    const own = next();
    if (element.hidden) opener = document.activeElement?.closest(".virtual") || document.activeElement;
    element.hidden = false;
    const focused = element.contains(document.activeElement) ? document.activeElement.getAttribute("data-step") : null;
    try {
      const found = await get("record", { name: about.name, part: about.part, number: row.number, decode, offset, schema: decode === "avro" ? schema : null }, own);
      draw(row, found);
    } catch (error) {
      if (own.aborted) return;
      clear(element, closeButton(), failure(error));
    }
    (element.querySelector(`[data-step="${focused}"]:not(:disabled)`) || element).focus({ preventScroll: true });
    if (shown === null && matchMedia("(max-width: 900px)").matches) element.scrollIntoView({ block: "start" });
    shown = row.number;
  }
  const closeButton = () => h("button", { type: "button", class: "close", "aria-label": "Close the record", onclick: close }, "×");

  function draw(row, found) {
    const at = found.neighbours.findIndex((one) => one.number === found.number);
    const [before, after] = [found.neighbours.slice(0, at).reverse(), found.neighbours.slice(at + 1)].map((list) => list.find((one) => !one.damage));
    const step = (one, text) => h("button", { type: "button", "data-step": text, disabled: !one, onclick: () => open(one) }, text);
    const box = h("textarea", { rows: 3, placeholder: "the schema of Avro, as JSON", "aria-label": "Schema of Avro", hidden: decode !== "avro", value: schema });
    const columns = element.clientWidth < 620 ? 8 : 16;
    const choice = h("select", { "aria-label": "Decode the value as", onchange: (event) => {
      decode = event.target.value || null;
      if (decode === "avro" && !schema) { box.hidden = false; box.focus(); } else open(row);
    } }, ["", "json", "msgpack", "bonjson", "avro", "text"].map((name) => h("option", { value: name, selected: name === (decode || "") }, name || `what fits (${found.decoding || "none"})`)));
    box.addEventListener("change", () => { schema = box.value; open(row); });
    clear(element, closeButton(),
      h("h2", {}, `Record ${found.row === null ? "" : number(found.row)}`),
      h("div", { class: "steps" }, step(before, "← Previous"), step(after, "Next →"), found.neighbours.some((one) => one.damage) ? h("span", { class: "badge bad" }, "damage beside it") : null),
      h("dl", {}, found.time ? [h("dt", {}, "time"), h("dd", {}, `${clock(found.time)} UTC`)] : null,
        found.key ? [h("dt", {}, "key"), h("dd", {}, found.key)] : null,
        Object.entries(found.fields).filter(([name]) => !["key", "operations"].includes(name)).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : value)])),
      found.fields.operations ? [h("h3", {}, "Operations"), found.fields.operations.map((one) => operation(one, columns))] : null,
      found.decoded !== undefined || found.undecoded ? h("div", { class: "line" }, h("h3", {}, "Value"), found.value_bytes === null ? null : choice) : null,
      box,
      found.decoded !== undefined && found.decoded !== null ? h("pre", { class: "decoded" }, found.decoded) : null,
      found.undecoded ? h("p", { class: "notice warn" }, found.undecoded) : null,
      found.hex ? [h("h3", {}, `Bytes${found.value_bytes > 4096 ? ` ${number(found.hex_offset)} to ${number(found.hex_offset + found.hex.length / 2)} of ${number(found.value_bytes)}` : ""}`),
        h("pre", { class: "hex", tabindex: "0", "aria-label": "The value in hexadecimal" }, hexLines(found.hex, found.hex_offset, columns)),
        found.value_bytes > 4096 ? h("div", { class: "steps" },
          h("button", { type: "button", disabled: found.hex_offset === 0, "data-step": "bytes before", onclick: () => open(row, Math.max(0, found.hex_offset - 4096)) }, "← Bytes"),
          h("button", { type: "button", disabled: found.hex_offset + 4096 >= found.value_bytes, "data-step": "bytes after", onclick: () => open(row, found.hex_offset + 4096) }, "Bytes →")) : null] : null);
  }
  return { element, open: (row) => open(row) };
}

// An operation of a transaction, with its bytes as hex.
function operation({ before, after, ...fields }, columns) {
  const bytes = (name, base64) => (base64 ? [h("div", { class: "muted" }, name), h("pre", { class: "hex" }, hexLines([...atob(base64)].map((one) => one.charCodeAt(0).toString(16).padStart(2, "0")).join(""), fields.page_offset || 0, columns))] : null);
  return h("div", {}, h("code", {}, Object.entries(fields).map(([name, value]) => (name === "op" ? value : `${name} ${value}`)).join(", ")), bytes("before", before), bytes("after", after));
}

export function hexLines(hex, from = 0, width = 16) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 2 * width) {
    const bytes = hex.slice(at, at + 2 * width).match(/../g) || [];
    const text = bytes.map((byte) => { const code = parseInt(byte, 16); return code > 31 && code < 127 ? String.fromCharCode(code) : "·"; }).join("");
    lines.push(`${(from + at / 2).toString(16).padStart(6, "0")}  ${bytes.join(" ").padEnd(3 * width - 1)}  ${text}`);
  }
  return lines.join("\n");
}
