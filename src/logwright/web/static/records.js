// The records of a journal: timeline, filter, table, live tail, and one record in full.
import { clear, counted, failure, get, h, iso, listen, newest, number, say } from "./lib.js";
import { timeline } from "./charts.js";
import { growingList, virtualTable } from "./rows.js";
import { recordPanel } from "./record.js";

export async function records(place, signal, about) {
  const panel = recordPanel(about, signal);
  const chart = h("div", { class: about.has_times ? "chart-place reserved" : "chart-place" });
  const notice = h("p", { class: "muted", role: "status" });
  const list = h("div", { class: "list-place" });
  const table = virtualTable(about, panel.open, signal);
  const nextRange = newest(signal), nextList = newest(signal);
  let range = {}, source = null;

  // --- the range of time ---
  async function drawTimeline(own) {
    const found = await get("timeline", { name: about.name, part: about.part, ...range }, own);
    const hadFocus = chart.contains(document.activeElement);
    clear(chart, found.buckets.length ? timeline(found, choose) : range.since ? h("p", { class: "notice" }, `No records from ${range.since} to ${range.until}.`) : null, resetButton());
    if (hadFocus) chart.querySelector(".timeline, .reset")?.focus();
  }
  async function choose(low, high) {
    const own = nextRange();
    range = low === null ? {} : { since: iso(low), until: iso(high) };
    try {
      await drawTimeline(own);
      if (["find", "grep", "where"].some((name) => form.elements[name].value)) { await search(); return; }
      showTable();
      if (!range.since) { table.limit(0, about.rows); return; }
      const [start, stop] = await Promise.all([range.since, range.until].map((since) => get("seek", { name: about.name, part: about.part, since }, own)));
      table.limit(start.row, stop.row);
      notice.textContent = `${counted(stop.row - start.row, "record")} from ${range.since} to ${range.until}`;
    } catch (error) { if (!own.aborted) clear(chart, failure(error), resetButton()); }
  }
  const resetButton = () => (range.since ? h("button", { type: "button", class: "reset", onclick: () => choose(null, null) }, "Show all times") : null);

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
        const found = await get("seek", { name: about.name, part: about.part, since: event.target.elements.time.value }, signal);
        if (range.since) await choose(null, null);
        showTable();
        table.limit(0, about.rows);
        table.moveTo(Math.min(found.row, about.rows - 1));
        say(`Row ${found.row}`);
      } catch (error) { notice.textContent = error.message; }
    } }, h("label", {}, "Go to time", h("input", { name: "time", placeholder: "2026-01-15 10:00 or 2 hours ago" })), h("button", { type: "submit" }, "Go"))
    : null;

  async function search() {
    const own = nextList();
    const given = Object.fromEntries(new FormData(form));
    if (!given.find && !given.grep && !given.where) return showTable();
    const found = growingList(about, panel.open, { most: 100000, label: "Matching records" });
    const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => load() }, "More");
    clear(list, found.element, more);
    let start = null, isDone = false, isBusy = false;
    async function load() {
      if (isBusy || isDone || own.aborted) return;
      isBusy = true;
      const wanted = found.count + 100;
      try {
        while (found.count < wanted && !isDone) {
          const answer = await get("search", { name: about.name, part: about.part, ...given, ...range, start, count: 100 }, own);
          found.add(answer.rows);
          start = answer.next;
          isDone = answer.next === null;
          notice.textContent = isDone ? counted(found.count, "record matches", "records match") : `${counted(found.count, "match", "matches")} so far …`;
        }
        more.hidden = isDone;
        if (!isDone) notice.textContent = `${counted(found.count, "match", "matches")}, and perhaps more`;
      } catch (error) {
        if (own.aborted) return;
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
    nextList();
    stopLive();
    notice.textContent = about.rows || !about.complete ? "" : "No records yet. The live tail shows those that are appended.";
    clear(list, table.element);
    table.draw();
  }

  // --- the live tail ---
  let isPaused = false, held = [], heldRecords = 0, seen = 0;
  const tail = growingList(about, panel.open, { most: 500, label: "Live tail" });
  const liveButton = h("button", { type: "button", class: "live", "aria-pressed": "false", onclick: () => (source ? showTable() : startLive()) }, "Live tail");
  const pauseButton = h("button", { type: "button", hidden: true, "aria-pressed": "false", onclick: () => pause(!isPaused) }, "Pause");
  async function startLive() {
    const own = nextList();
    liveButton.setAttribute("aria-pressed", "true");
    pauseButton.hidden = false;
    tail.clear();
    seen = 0;
    clear(list, tail.element);
    notice.textContent = "Waiting for records …";
    let isLost = false;
    const shown = new Set(); // the rows that the tail begins with: those that are appended meanwhile are sent as well
    source = listen("journal/live", { name: about.name, part: about.part }, signal, {
      records: (found) => {
        const sent = found.rows.filter((row) => !row.damage);
        const rows = found.rows.filter((row) => !shown.has(row.number ?? null));
        const records = found.records - (found.rows.length - rows.length);
        if (found.records > sent.length) rows.unshift({ gap: `${counted(found.records - sent.length, "record")} came too fast to be shown` });
        if (!rows.length) return;
        seen += records;
        if (isPaused) { held = [...held, ...rows].slice(-500); heldRecords += records; pauseButton.textContent = `Continue (${number(heldRecords)} new)`; return; }
        grow(rows);
      },
      missed: () => { tail.add([{ gap: "This browser was too slow: records are missing here" }]); },
      failed: (found) => { stopLive(); notice.textContent = found.error; },
      error: () => { isLost = true; liveButton.classList.remove("on"); notice.textContent = "The server does not answer. Trying again …"; },
      ready: () => {
        liveButton.classList.add("on");
        if (isLost) tail.add([{ gap: "The connection was lost: records may be missing here" }]);
        notice.textContent = seen ? counted(seen, "new record") : "Waiting for records …";
        isLost = false;
      },
    });
    try {
      await about.refresh();
      const last = await get("rows", { name: about.name, part: about.part, row: Math.max(0, about.rows - 30), count: 30 }, own);
      if (!tail.count && !heldRecords) {
        tail.add(last.rows);
        tail.toEnd();
        for (const row of last.rows) shown.add(row.number);
      }
    } catch (error) { if (!own.aborted) notice.textContent = error.message; }
  }
  function grow(rows) {
    tail.add(rows);
    tail.toEnd();
    notice.textContent = counted(seen, "new record");
  }
  function stopLive() {
    if (source) about.refresh().then(() => { if (!range.since) table.limit(0, about.rows, true); }).catch(() => {});
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
    if (!wanted && held.length) grow(held);
    if (!wanted) { held = []; heldRecords = 0; }
  }

  clear(place, chart, form, h("div", { class: "tools" }, jump, h("span", { class: "grow" }), pauseButton, liveButton), notice,
    h("div", { class: "split" }, list, panel.element));
  showTable();
  place.addEventListener("read", () => { if (!range.since) { table.limit(0, about.rows, true); drawTimeline(nextRange()).catch(() => {}); } });
  await drawTimeline(nextRange());
}
