// One journal: its head, its tabs, and the view of the tab.
import { badge, clear, get, h, number, size } from "./lib.js";
import { address } from "./overview.js";
import { check } from "./check.js";
import { files } from "./files.js";
import { pages } from "./pages.js";
import { queue } from "./queue.js";
import { records } from "./records.js";
import { segments } from "./segments.js";
import { shards } from "./shards.js";
import { store } from "./store.js";

const VIEWS = {
  records: ["Records", records],
  queue: ["Queue", queue],
  store: ["Store", store],
  segments: ["Segments", segments],
  pages: ["Pages", pages],
  shards: ["Consumers", shards],
  files: ["Files", files],
  check: ["Check", check],
};

export async function journal(page, onLeave, name, tab, query) {
  const about = await get("journal", { name, part: query.part });
  const tabs = ["records", ...about.views, "files", "check"];
  const [, view] = VIEWS[tab] || VIEWS.records;
  const place = h("section", { class: "view", "aria-label": VIEWS[tab]?.[0] || "Records" });
  const parts = about.parts.length > 1
    ? h("label", { class: "part" }, about.part_name,
      h("select", { onchange: (event) => { location.hash = address(name, tab, { part: event.target.value }); } },
        about.parts.map((part) => h("option", { value: part, selected: part === about.part }, part))))
    : null;
  const damaged = about.damages.filter((damage) => damage.kind !== "torn_tail").length;
  clear(page, h("div", { class: "page" },
    h("div", { class: "title" },
      h("div", {}, h("div", { class: "line" }, h("h1", {}, name), damaged ? badge("damaged") : about.damages.length ? badge("torn") : null), h("p", { class: "muted" }, `${about.title} · ${number(about.rows)} records${about.complete ? "" : " so far"} · ${size(about.bytes)}`)),
      parts),
    h("nav", { class: "tabs", "aria-label": "Views of this journal" }, tabs.map((one) =>
      h("a", { href: address(name, one, { part: query.part }), "aria-current": one === tab ? "page" : null }, VIEWS[one][0]))),
    place));
  await view(place, onLeave, about, query);
}
