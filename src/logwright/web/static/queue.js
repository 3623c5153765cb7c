// A queue: items by state, depth, head and tail, open items, and the life of one item.
import { clear, clock, failure, get, h, iso, newest, number, plainTable, tile } from "./lib.js";
import { address } from "./overview.js";
import { lines } from "./charts.js";

export async function queue(place, signal, about) {
  const found = await get("queue", { name: about.name, part: about.part }, signal);
  const life = h("section", { class: "life", "aria-live": "polite" });
  const state = (name) => found.states[name] || 0;
  const button = (item) => item.place ? h("button", { type: "button", class: "link", onclick: () => show(item) }, item.text || "(empty)") : item.text;
  const next = newest(signal);
  async function show(item) {
    const own = next();
    try {
      const history = await get("history", { name: about.name, part: about.part, key: item.place }, own);
      clear(life, h("h3", {}, `The life of item ${item.item}: ${item.text}`),
        h("ol", { class: "events" }, history.changes.map((change) =>
          h("li", {}, h("strong", {}, change.event), h("span", { class: "muted" }, ` ${change.file} @ ${change.position}`),
            change.value?.xid ? ` · transaction ${change.value.xid}` : "", change.event === "added" && change.value?.added ? ` · ${clock(iso(change.value.added))} UTC` : ""))));
      life.scrollIntoView({ block: "nearest" });
    } catch (error) { if (!own.aborted) clear(life, failure(error)); }
  }
  const isHolding = about.part.endsWith("~delayed");
  const columns = [
    { name: "item", right: true, cell: (item) => number(item.item) },
    { name: "data", look: "long", cell: button },
    { name: "added (UTC)", cell: (item) => clock(item.added) },
    { name: isHolding ? "due (UTC)" : "expires (UTC)", cell: (item) => (item.expires ? clock(item.expires) : "never") },
  ];
  const openColumns = [...columns.slice(0, isHolding ? 4 : 3), { name: "reserved at", cell: (item) => (item.reserved || "–").replace("@", " @ ") },
    { name: "transaction", right: true, cell: (item) => number(item.xid) }, { name: "attempts before", right: true, cell: (item) => number(item.attempts) }];
  const head = found.head.slice(0, 10), last = found.tail.slice(-10).filter((item) => !head.some((one) => one.place === item.place));
  const xs = found.depth.map((point) => point.row);
  clear(place,
    h("div", { class: "tiles" }, tile("waiting", number(state("waiting"))), tile(isHolding ? "delayed" : "open", number(state("open")), state("open") && !isHolding ? "warn" : ""),
      found.delayed === null ? null : tile("delayed", number(found.delayed), "", address(about.name, "queue", { part: `${about.part}~delayed` })), tile("expired", number(state("expired")), state("expired") ? "warn" : ""), tile("done", number(state("done")))),
    h("h2", {}, "Items over time"),
    found.depth.length > 1 ? lines("Items by state over the operations of the queue", xs, ["waiting", "open", "expired", "done"].map((name) => [name, name, found.depth.map((point) => point[name])]), "operations", found.depth.map((point) => point.ms)) : h("p", { class: "muted" }, "No operations yet."),
    h("h2", {}, isHolding ? "Delayed items" : "Open items"),
    found.open.length ? h("p", { class: "muted" }, isHolding ? "Items that were put with a delay: each is reserved here until it is due." : "A journal has no time for a reservation: the place of its operation is shown. Choose an item for its life.") : null,
    plainTable("Open items", openColumns, found.open, "No item is open."),
    h("h2", {}, "Head"), plainTable("The first waiting items", columns, head, "No item is waiting."),
    last.length ? [h("h2", {}, "Tail"), plainTable("The last waiting items", columns, last)] : null, life);
}
