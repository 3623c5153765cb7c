// The records of a journal: timeline, filter, table, live tail, and one record in full.
import { clear, failure, get, h, iso, number, say, url } from "./lib.js";
import { timeline } from "./charts.js";
import { growingList, virtualTable } from "./rows.js";
import { recordPanel } from "./record.js";

export async function records(place, onLeave, about) {
  const panel = recordPanel(about);
  const chart = h("div", { class: about.has_times ? "chart-place reserved" : "chart-place" });
  const notice = h("p", { class: "muted", role: "status" });
  const list = h("div", { class: "list-place" });
  const table = virtualTable(about, panel.open);
  let range = {}, source = null;
  onLeave(() => source?.close());

  // --- the range of time ---
  async function drawTimeline() {
    const found = await get("timeline", { name: about.name, part: about.part, ...range });
    const hadFocus = chart.contains(document.activeElement);
    const reset = range.since ? h("button", { type: "button", class: "reset", onclick: () => choose(null, null) }, "Show all times") : null;
    clear(chart, found.buckets.length ? timeline(found, choose) : range.since ? h("p", { class: "notice" }, `No records from ${range.since} to ${range.until}.`) : null, reset);
    if (hadFocus) chart.querySelector(".timeline, .reset")?.focus();
  }
  async function choose(low, high) {
    range = low === null ? {} : { since: iso(low), until: iso(high) };
    await drawTimeline();
    if (form.elements.find.value || form.elements.grep.value || form.elements.where.value) return search();
    if (!range.since) return table.limit(0, about.rows);
    const [start, stop] = await Promise.all([range.since, range.until].map((since) => get("seek", { name: about.name, part: about.part, since })));
    table.limit(start.row, stop.row);
    notice.textContent = `${number(stop.row - start.row)} records from ${range.since} to ${range.until}`;
    return undefined;
  }

  // --- the filter ---
  const field = (name, label, hint) => h("label", {}, label, h("input", { name, placeholder: hint, autocomplete: "off", spellcheck: "false" }));
  const form = h("form", { class: "filters", role: "search", "aria-label": "Filter records", onsubmit: (event) => { event.preventDefault(); stopLive(); search(); } },
    field("find", "Key", { kestrel: "a queue", appendfile: "a segment", yeltsin: "a page" }[about.format] || "a key"),
    field("grep", "Text", "a regular expression"),
    field("where", "SQL condition", about.format === "sej" ? "type = 1 AND value.count > 5" : `columns: ${about.columns.slice(0, 3).join(", ")} …`),
    h("label", {}, "Values", h("select", { name: "decode" }, ["json", "msgpack", "bonjson", "text"].map((name) => h("option", { value: name }, name)))),
    h("button", { type: "submit", class: "primary" }, "Filter"),
    h("button", { type: "button", onclick: () => { form.reset(); showTable(); } }, "Clear"));
  const jump = about.has_times
    ? h("form", { class: "jump", "aria-label": "Jump to a time", onsubmit: async (event) => {
      event.preventDefault();
      try {
        const found = await get("seek", { name: about.name, part: about.part, since: event.target.elements.time.value });
        showTable();
        table.limit(0, about.rows);
        table.moveTo(Math.min(found.row, about.rows - 1));
        say(`Row ${found.row}`);
      } catch (error) { notice.textContent = error.message; }
    } }, h("label", {}, "Go to time", h("input", { name: "time", placeholder: "2026-01-15 10:00 or 2 hours ago" })), h("button", { type: "submit" }, "Go"))
    : null;

  let searching = 0;
  async function search() {
    const own = ++searching;
    const given = Object.fromEntries(new FormData(form));
    if (!given.find && !given.grep && !given.where) return showTable();
    const found = growingList(about, panel.open, { most: 100000, label: "Matching records" });
    const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => load() }, "More");
    clear(list, found.element, more);
    let start = null, isDone = false, isBusy = false;
    async function load() {
      if (isBusy || isDone || own !== searching) return;
      isBusy = true;
      const wanted = found.count + 100;
      try {
        while (found.count < wanted && !isDone && own === searching) {
          const answer = await get("search", { name: about.name, part: about.part, ...given, ...range, start, count: 100 });
          found.add(answer.rows);
          start = answer.next;
          isDone = answer.next === null;
          notice.textContent = isDone ? `${number(found.count)} records match` : `${number(found.count)} matches so far …`;
        }
        more.hidden = isDone;
        if (!isDone) notice.textContent = `${number(found.count)} matches, and perhaps more`;
      } catch (error) {
        isDone = true;
        clear(list, failure(error));
        notice.textContent = "";
      }
      isBusy = false;
    }
    found.element.addEventListener("scroll", () => {
      if (found.element.scrollTop + found.element.clientHeight > found.element.scrollHeight - 200) load();
    });
    return load();
  }

  function showTable() {
    searching += 1;
    stopLive();
    notice.textContent = "";
    clear(list, table.element);
    table.draw();
  }

  // --- the live tail ---
  let isPaused = false, held = [], heldRecords = 0, seen = 0;
  const tail = growingList(about, panel.open, { most: 500, label: "Live tail" });
  const liveButton = h("button", { type: "button", class: "live", "aria-pressed": "false", onclick: () => (source ? showTable() : startLive()) }, "Live tail");
  const pauseButton = h("button", { type: "button", hidden: true, "aria-pressed": "false", onclick: () => pause(!isPaused) }, "Pause");
  async function startLive() {
    searching += 1;
    liveButton.setAttribute("aria-pressed", "true");
    pauseButton.hidden = false;
    tail.clear();
    seen = 0;
    clear(list, tail.element);
    notice.textContent = "Waiting for records …";
    source = new EventSource(url("journal/live", { name: about.name, part: about.part }));
    source.addEventListener("records", (event) => {
      const found = JSON.parse(event.data);
      seen += found.records;
      if (isPaused) { held = [...held, ...found.rows].slice(-500); heldRecords += found.records; pauseButton.textContent = `Continue (${number(heldRecords)} new)`; return; }
      tail.add(found.rows);
      tail.toEnd();
      notice.textContent = `${number(seen)} new records`;
    });
    source.addEventListener("missed", () => { notice.textContent = "Some records came too fast to be shown."; });
    source.addEventListener("failed", (event) => { notice.textContent = JSON.parse(event.data).error; source.close(); });
    source.addEventListener("ready", () => { liveButton.classList.add("on"); });
    const last = await get("rows", { name: about.name, part: about.part, row: Math.max(0, about.rows - 30), count: 30 });
    if (source && !tail.count) { tail.add(last.rows); tail.toEnd(); }
  }
  function stopLive() {
    source?.close();
    source = null;
    pause(false);
    pauseButton.hidden = true;
    liveButton.setAttribute("aria-pressed", "false");
    liveButton.classList.remove("on");
  }
  function pause(wanted) {
    isPaused = wanted;
    pauseButton.textContent = wanted ? "Continue" : "Pause";
    pauseButton.setAttribute("aria-pressed", String(wanted));
    if (!wanted && held.length) { tail.add(held); tail.toEnd(); notice.textContent = `${number(seen)} new records`; }
    if (!wanted) { held = []; heldRecords = 0; }
  }

  clear(place, chart, form, h("div", { class: "tools" }, jump, h("span", { class: "grow" }), pauseButton, liveButton), notice,
    h("div", { class: "split" }, list, panel.element));
  showTable();
  await drawTimeline();
}
