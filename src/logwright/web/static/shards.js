// The parts of a journal and their consumers: how far each is, and how far behind.
import { clear, get, h, number, s, size, tile } from "./lib.js";

export async function shards(place, signal, about) {
  const found = (await get("shards", { name: about.name }, signal)).parts;
  const consumers = found.flatMap((part) => part.consumers);
  const worst = Math.max(0, ...consumers.map((consumer) => consumer.lag || 0));
  clear(place,
    h("div", { class: "tiles" }, tile(found.length > 1 ? "shards" : "journal", number(found.length)), tile("consumers", number(new Set(consumers.map((consumer) => consumer.consumer)).size)), tile("largest lag", number(worst), worst > 1000 ? "warn" : "")),
    found.map((part) => h("section", { class: "card shard" },
      h("div", { class: "line" }, h("h2", {}, part.part || about.name), h("span", { class: "muted" }, `offsets ${number(part.first)} to ${number(part.next)} · ${size(part.bytes)}`)),
      part.consumers.length ? part.consumers.map((consumer) => lane(part, consumer)) : h("p", { class: "muted" }, "No consumer has committed an offset here."))));
}

function lane(part, consumer) {
  const span = Math.max(1, part.next - part.first);
  const done = Math.min(1, Math.max(0, ((consumer.offset ?? part.first) - part.first) / span));
  const text = consumer.problem || `${consumer.consumer}: at ${number(consumer.offset)}, ${number(consumer.lag)} behind`;
  return h("div", { class: "lane" }, h("span", { class: "lane-name" }, consumer.consumer),
    s("svg", { viewBox: "0 0 1000 14", preserveAspectRatio: "none", class: "lane-bar", role: "img", "aria-label": text },
      s("rect", { class: "lane-all", x: 0, y: 0, width: 1000, height: 14, rx: 4 }), s("rect", { class: "lane-done", x: 0, y: 0, width: done * 1000, height: 14, rx: 4 })),
    h("span", { class: `lane-lag ${consumer.lag > 1000 ? "late" : ""}` }, consumer.problem || `${number(consumer.lag)} behind`));
}
