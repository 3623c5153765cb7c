// Pages: which ones transactions changed, and the bytes of a page before and after each change.
import { clear, clock, failure, get, h, newest, number, plainTable, tile } from "./lib.js";

const width = () => (innerWidth < 700 ? 8 : 16); // bytes of a line

export async function pages(place, signal, about) {
  const found = await get("pages", { name: about.name, part: about.part }, signal);
  const next = newest(signal);
  const detail = h("section", { class: "page-detail" });
  clear(place,
    h("div", { class: "tiles" }, tile("pages", number(found.total)), Object.entries(found.outcomes).map(([outcome, count]) => tile(outcome.replace("_", " "), number(count), outcome === "completed" ? "" : "warn"))),
    plainTable("Pages", [
      { name: "page", right: true, cell: (row) => h("button", { type: "button", class: "link", onclick: () => show(row.page) }, row.page) },
      { name: "versions", right: true, cell: (row) => number(row.versions) },
      { name: "last change (UTC)", cell: (row) => clock(row.time) },
    ], found.pages, "No transaction changed a page yet."), detail);
  if (found.pages.length) await show(found.pages[0].page);

  async function show(page) {
    const own = next();
    try {
      const versions = (await get("page", { name: about.name, part: about.part, key: page }, own)).changes;
      const slider = h("input", { type: "range", class: "slider", min: 0, max: versions.length - 1, value: versions.length - 1, "aria-label": "Version of the page" });
      const title = h("p", { class: "muted", "aria-live": "polite" });
      const both = h("div", { class: "before-after" });
      const draw = () => {
        const at = Number(slider.value);
        const old = bytesOf(versions[at - 1]), now = bytesOf(versions[at]);
        title.textContent = `version ${at + 1} of ${versions.length} · transaction ${versions[at].transaction} · ${versions[at].event} · ${clock(versions[at].time)} UTC`;
        clear(both, dump("Before", old, now), dump("After", now, old));
      };
      slider.addEventListener("input", draw);
      clear(detail, h("h2", {}, `Page ${page}`), slider, title, both);
      draw();
    } catch (error) { if (!own.aborted) clear(detail, failure(error)); }
  }
}

function bytesOf(version) {
  const found = new Map();
  for (const range of version?.ranges || []) (range.hex.match(/../g) || []).forEach((byte, at) => found.set(range.offset + at, byte));
  return found;
}

function dump(name, bytes, other) {
  const WIDTH = width();
  const places = [...new Set([...bytes.keys(), ...other.keys()].map((at) => Math.floor(at / WIDTH)))].sort((a, b) => a - b).slice(0, 512);
  const lines = places.map((line) => {
    const cells = Array.from({ length: WIDTH }, (_, at) => line * WIDTH + at);
    return h("div", { class: "hex-line" }, h("span", { class: "hex-at" }, (line * WIDTH).toString(16).padStart(4, "0")),
      cells.map((at) => h("span", { class: bytes.get(at) !== other.get(at) ? "byte changed" : "byte" }, bytes.get(at) ?? "··")),
      h("span", { class: "hex-text" }, cells.map((at) => { const code = parseInt(bytes.get(at) ?? "00", 16); return code > 31 && code < 127 ? String.fromCharCode(code) : "·"; }).join("")));
  });
  return h("div", { class: "dump", role: "img", tabindex: "0", "aria-label": `${name}: ${bytes.size} known bytes` }, h("h3", {}, name), lines.length ? lines : h("p", { class: "muted" }, "nothing is known"));
}
