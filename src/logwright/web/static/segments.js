// A journal with checkpoints: its segments as a strip, and what a recovery would return.
import { clear, get, h, number, plainTable, size, tile } from "./lib.js";

export async function segments(place, signal, about) {
  const found = (await get("segments", { name: about.name }, signal)).segments;
  const look = (segment) => (segment.recovered ? "recovered" : segment.checked ? "checked" : segment.complete ? "complete" : "current");
  const names = { checked: "checked", recovered: "complete, not checked: a recovery returns it", current: "not complete" };
  const strip = h("div", { class: "strip", role: "img", "aria-label": `${found.length} segments: ${found.map((segment) => `${segment.segment} ${look(segment)}`).slice(0, 200).join(", ")}` },
    found.map((segment) => {
      const box = h("span", { class: `segment segment-${look(segment)}`, title: `segment ${segment.segment}: ${segment.records} records, ${size(segment.bytes)}, ${look(segment)}` }, found.length <= 40 ? segment.segment : "");
      box.style.flexGrow = Math.max(1, Math.sqrt(segment.bytes || 0));
      return box;
    }));
  const recovered = found.filter((segment) => segment.recovered);
  clear(place,
    h("div", { class: "tiles" }, tile("segments", number(found.length)), tile("checked", number(found.filter((segment) => segment.checked).length), "good"),
      tile("to recover", number(recovered.length), recovered.length ? "warn" : ""), tile("records to recover", number(recovered.reduce((sum, segment) => sum + segment.records, 0)))),
    h("figure", { class: "chart" }, strip, h("figcaption", {}, Object.entries(names).map(([name, text]) => h("span", { class: `key key-${name}` }, text)), h("span", { class: "muted" }, "wider: more bytes"))),
    plainTable("Segments", [
      { name: "segment", right: true, cell: (row) => number(row.segment) },
      { name: "generation", right: true, cell: (row) => number(row.generation) },
      { name: "state", cell: (row) => h("span", { class: `badge ${{ checked: "good", recovered: "warn" }[look(row)] || ""}` }, { recovered: "to recover" }[look(row)] || { current: "not complete" }[look(row)] || look(row)) },
      { name: "records", right: true, cell: (row) => number(row.records) },
      { name: "bytes", right: true, cell: (row) => size(row.bytes) },
      { name: "begins", cell: (row) => `${row.first_file ?? "–"} @ ${row.first_position ?? "–"}` },
    ], found));
}
