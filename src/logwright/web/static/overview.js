// All journals, those with problems first; kept up to date by the server.
import { ago, badge, clear, copyable, failure, h, number, rate, short, size, tile, url } from "./lib.js";
import { sparkline } from "./charts.js";

export const address = (name, tab = "", query = {}) => {
  const rest = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return `#/journal/${encodeURIComponent(name)}${tab ? `/${tab}` : ""}${rest ? `?${rest}` : ""}`;
};

export async function overview(page, onLeave) {
  const place = h("div", { class: "page" }, h("p", { class: "muted" }, "Looking at the journals …"));
  clear(page, place);
  const source = new EventSource(url("live"));
  onLeave(() => source.close());
  source.addEventListener("overview", (event) => draw(place, JSON.parse(event.data)));
  source.addEventListener("error", () => { if (!place.querySelector("h1")) clear(place, failure(new Error("The server does not answer. Trying again …"))); });
}

const SHOWN_JOURNALS = 200, SHOWN_PROBLEMS = 30;
let showsAll = false;

function draw(place, found) {
  if (found.error) { clear(place, failure(new Error(found.error))); return; }
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") || document.activeElement.getAttribute("aria-label") : null;
  const journals = found.journals;
  const sum = (name) => journals.reduce((total, journal) => total + (journal[name] || 0), 0);
  const problems = journals.flatMap((journal) => journal.problems.map((problem) => ({ journal, ...problem })));
  const isBad = (journal) => journal.health === "damaged" || journal.health === "unreadable";
  clear(place,
    h("h1", { class: "hidden-text" }, "Overview"),
    h("div", { class: "tiles" },
      tile("journals", number(journals.length)),
      tile("records", short(sum("records"))),
      tile("bytes", size(sum("bytes"))),
      tile(problems.length === 1 ? "problem" : "problems", number(problems.length), problems.length ? (journals.some(isBad) ? "bad" : "warn") : "good")),
    problems.length
      ? h("section", { "aria-labelledby": "attention" }, h("h2", { id: "attention" }, "Needs attention"),
        h("ul", { class: "problems" }, problems.slice(0, SHOWN_PROBLEMS).map((problem) =>
          h("li", { class: `problem ${problem.look}` },
            h("div", { class: "problem-head" }, h("a", { href: address(problem.journal.name, "check") }, problem.journal.name), h("span", { class: `badge ${problem.look}` }, problem.kind)),
            h("p", {}, problem.text), copyable(problem.command)))),
        problems.length > SHOWN_PROBLEMS ? h("p", { class: "muted" }, `and ${number(problems.length - SHOWN_PROBLEMS)} more, in the list of journals`) : null)
      : null,
    found.pending ? h("p", { class: "notice", role: "status" }, `Looking at ${number(found.pending)} more journals …`) : null,
    found.unreadable.map((refused) => h("p", { class: "notice warn" }, `${refused.name}: ${refused.reason}`)),
    h("section", { "aria-labelledby": "journals" }, h("h2", { id: "journals" }, "Journals"),
      journals.length ? listing(showsAll ? journals : journals.slice(0, SHOWN_JOURNALS)) : found.pending ? null : h("p", { class: "notice" }, `No journal is below ${found.root} yet. One that appears is shown here by itself.`),
      !showsAll && journals.length > SHOWN_JOURNALS ? h("button", { type: "button", class: "more", onclick: () => { showsAll = true; draw(place, found); } }, `Show all ${number(journals.length)} journals`) : null));
  if (focused) [...place.querySelectorAll("a, button")].find((one) => (one.getAttribute("href") || one.getAttribute("aria-label")) === focused)?.focus({ preventScroll: true });
}

function listing(journals) {
  const head = ["Journal", "Health", "Records", "Size", "Last write", "Rate", "Lag or depth"];
  return h("table", { class: "stack" },
    h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col", class: ["Records", "Size"].includes(name) ? "right" : null }, name)))),
    h("tbody", {}, journals.map((journal) =>
      h("tr", {},
        h("th", { scope: "row", "data-label": "Journal" }, h("a", { href: address(journal.name) }, journal.name),
          h("span", { class: "sub" }, journal.format, journal.parts.length ? ` · ${journal.parts.length} ${journal.part_name}s` : "")),
        h("td", { "data-label": "Health" }, badge(journal.health), journal.damaged ? h("span", { class: "sub" }, `${number(journal.damaged)} damaged ${journal.damaged === 1 ? "place" : "places"}`) : null),
        h("td", { "data-label": "Records", class: "right" }, number(journal.records)),
        h("td", { "data-label": "Size", class: "right" }, size(journal.bytes)),
        h("td", { "data-label": "Last write" }, ago(journal.written_ms)),
        h("td", { "data-label": "Rate" }, journal.spark.length ? [sparkline(journal.spark, `Records of ${journal.name} over its time: ${rate(journal.records, journal.span_ms)} on average`), h("span", { class: "sub" }, rate(journal.records, journal.span_ms))] : h("span", { class: "muted" }, "no times")),
        h("td", { "data-label": "Lag or depth" }, waiting(journal))))));
}

function waiting(journal) {
  if (journal.depth) return `${number(journal.depth.waiting)} queued, ${number(journal.depth.open)} open`;
  const late = journal.lags.filter((consumer) => consumer.lag !== null).sort((a, b) => b.lag - a.lag);
  return late.length ? late.slice(0, 2).map((consumer) => h("span", { class: "lag" }, `${consumer.consumer}: ${number(consumer.lag)} behind`)) : h("span", { class: "muted" }, "–");
}
