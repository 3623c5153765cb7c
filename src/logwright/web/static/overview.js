// All journals, those with problems first; kept up to date by the server.
import { ago, badge, clear, copyable, counted, failure, h, iso, listen, number, rate, short, size, tile } from "./lib.js";
import { sparkline } from "./charts.js";

export const address = (name, tab = "", query = {}) => {
  const rest = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return `#/journal/${encodeURIComponent(name)}${tab ? `/${tab}` : ""}${rest ? `?${rest}` : ""}`;
};

export async function overview(page, signal) {
  const place = h("div", {}, h("p", { class: "muted" }, "Looking at the journals …"));
  const silent = h("p", { class: "notice bad", role: "alert", hidden: true }, "The server does not answer: what is shown may be old. Trying again …");
  clear(page, h("div", { class: "page" }, silent, place));
  let source = null;
  // A browser opens few connections to a server, so a page that is not seen keeps none.
  const follow = () => {
    source?.close();
    source = document.hidden ? null : listen("live", {}, signal, {
      overview: (found) => { silent.hidden = true; draw(place, found); },
      error: () => { silent.hidden = false; },
    });
  };
  document.addEventListener("visibilitychange", follow, { signal });
  const clock = setInterval(() => place.querySelectorAll("[data-written]").forEach((one) => { one.textContent = ago(Number(one.dataset.written)); }), 5000);
  signal.addEventListener("abort", () => clearInterval(clock));
  follow();
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
    found.pending ? h("p", { class: "notice", role: "status" }, `Looking at ${counted(found.pending, "more journal")} …`) : null,
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
          h("span", { class: "sub" }, journal.format, journal.parts.length ? ` · ${counted(journal.parts.length, journal.part_name)}` : "")),
        h("td", { "data-label": "Health" }, badge(journal.health), journal.damaged ? h("span", { class: "sub" }, counted(journal.damaged, "damaged place")) : null),
        h("td", { "data-label": "Records", class: "right" }, number(journal.records)),
        h("td", { "data-label": "Size", class: "right" }, size(journal.bytes)),
        h("td", { "data-label": "Last write" }, h("span", { "data-written": journal.written_ms, title: journal.written_ms ? iso(journal.written_ms) : null }, ago(journal.written_ms))),
        h("td", { "data-label": "Rate" }, journal.spark.length ? [sparkline(journal.spark, `Records of ${journal.name} over its time: ${rate(journal.records, journal.span_ms)} on average`), h("span", { class: "sub" }, rate(journal.records, journal.span_ms))] : h("span", { class: "muted" }, journal.drawn === false ? "large: open it" : "no times")),
        h("td", { "data-label": "Lag or depth" }, waiting(journal))))));
}

function waiting(journal) {
  if (journal.depth) return ["waiting", "open", "delayed"].filter((state) => journal.depth[state] || state === "waiting").map((state) => `${number(journal.depth[state])} ${state === "waiting" ? "queued" : state}`).join(", ");
  if (journal.depth === null && journal.drawn === false && journal.format === "kestrel") return h("span", { class: "muted" }, "large: open it");
  const late = journal.lags.filter((consumer) => consumer.lag !== null).sort((a, b) => b.lag - a.lag);
  return late.length ? late.slice(0, 2).map((consumer) => h("span", { class: "lag" }, `${consumer.consumer}: ${number(consumer.lag)} behind`)) : h("span", { class: "muted" }, "–");
}
