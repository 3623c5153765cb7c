// One journal: its head, its tabs, and the view of the tab.
import { badge, clear, counted, failure, get, h, number, size } from "./lib.js";
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

export async function journal(page, signal, name, tab, query) {
  const about = await get("journal", { name, part: query.part }, signal);
  const summary = h("p", { class: "muted" });
  const describe = () => { summary.textContent = `${about.title} · ${counted(about.rows - about.missing, "record")}${about.missing ? ` · ${number(about.missing)} lost` : ""}${about.complete ? "" : ` so far, ${Math.floor(100 * about.share)} % read`} · ${size(about.bytes)}`; };
  about.refresh = async () => {
    Object.assign(about, await get("journal", { name, part: about.part }, signal));
    describe();
  };
  describe();
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
      h("div", {}, h("div", { class: "line" }, h("h1", {}, name), damaged ? badge("damaged") : about.damages.length ? badge("torn") : null), summary),
      parts),
    h("nav", { class: "tabs", "aria-label": "Views of this journal" }, tabs.map((one) =>
      h("a", { href: address(name, one, { part: query.part }), "aria-current": one === tab ? "page" : null }, VIEWS[one][0]))),
    place));
  // The first pass over a large journal takes longer than one request: each continues it.
  (async () => { while (!about.complete) await about.refresh(); place.dispatchEvent(new Event("read")); })().catch(() => {});
  try {
    await view(place, signal, about, query);
  } catch (error) { clear(place, failure(error)); }
}
