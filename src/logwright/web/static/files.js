// The files of a journal, each with a map of its bytes.
import { clear, get, h, number, plainTable, size } from "./lib.js";
import { byteMap } from "./charts.js";

export async function files(place, signal, about) {
  const found = await get("files", { name: about.name }, signal);
  const most = Math.max(1, ...found.files.map((file) => file.bytes));
  const ranges = found.files.flatMap((file) => file.ranges.map((range) => ({ ...range, file: file.file })));
  clear(place,
    found.verified ? null : h("p", { class: "notice" }, "This journal has not been verified: damage is shown after a check. ", h("a", { href: `#/journal/${encodeURIComponent(about.name)}/check` }, "Check it")),
    h("div", { class: "files" }, found.files.map((file) => {
      const map = byteMap(file);
      map.style.width = `${Math.max(4, 100 * Math.sqrt(file.bytes / most))}%`;
      return h("div", { class: "file" }, h("div", { class: "line" }, h("code", {}, file.file), h("span", { class: "grow" }), h("span", { class: "muted" }, size(file.bytes))), map);
    })),
    h("figure", { class: "chart" }, h("figcaption", {}, h("span", { class: "key key-map-records" }, "records"), h("span", { class: "key key-map-damage" }, "damage"), h("span", { class: "key key-map-torn" }, "torn tail"), h("span", { class: "key key-map-free" }, "free"), h("span", { class: "muted" }, "longer: more bytes; torn tails and damage are drawn at least 4 pixels wide"))),
    ranges.length ? [h("h2", {}, "Ranges that are not records"), plainTable("Ranges that are not records", [
      { name: "file", cell: (row) => row.file }, { name: "position", right: true, cell: (row) => number(row.start) },
      { name: "bytes", right: true, cell: (row) => number(row.end - row.start) }, { name: "kind", cell: (row) => row.kind.replace("_", " ") }, { name: "reason", look: "long", cell: (row) => row.reason },
    ], ranges)] : null);
}
