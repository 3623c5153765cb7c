// A store: its keys at any moment, the history of one key, and the difference between two moments.
import { clear, clock, failure, get, h, iso, json, newest, number, plainTable, s } from "./lib.js";

const STEPS = 1000;

export async function store(place, signal, about) {
  const times = await get("timeline", { name: about.name, part: about.part, steps: 200 }, signal);
  if (!times.buckets.length) { clear(place, h("p", { class: "muted" }, "This store has no changes yet.")); return; }
  const first = times.buckets[0].ms, last = times.buckets[times.buckets.length - 1].ms + Math.ceil(times.step_ms) + 1;
  const where = h("output", { class: "moment" });
  const slider = h("input", { type: "range", min: 0, max: STEPS, value: STEPS, "aria-label": "Moment", class: "slider" });
  const prefix = h("input", { placeholder: "beginning of keys", "aria-label": "Beginning of keys" });
  const table = h("div", { class: "keys", "aria-live": "off" });
  const side = h("section", { class: "history" });
  const compare = h("div", { class: "compare" });
  const nextHistory = newest(signal), nextDifference = newest(signal);
  let mark = null, before = new Map(), busy = false, again = false;
  let at = null; // now, or an exact time: a step of the slider may have many changes
  // Times have up to nine digits after the second, of which Date.parse reads three.
  const nanoseconds = (time) => BigInt(Date.parse(time.replace(/\.\d+/, ""))) * 1000000n + BigInt((/\.(\d+)/.exec(time)?.[1] ?? "").padEnd(9, "0"));
  const words = (time) => (time === null ? "now" : `${clock(time)} UTC`);
  const moveTo = (time) => { at = time; slider.value = time === null ? STEPS : Math.min(STEPS - 1, ((Date.parse(time) - first) / (last - first)) * STEPS); draw(); };
  const slide = () => { at = Number(slider.value) >= STEPS ? null : iso(first + Math.round((Number(slider.value) / STEPS) * (last - first))); draw(); };

  async function draw() {
    where.textContent = words(at);
    slider.setAttribute("aria-valuetext", where.textContent);
    if (busy) { again = true; return; }
    busy = true;
    try {
      const found = await get("store", { name: about.name, part: about.part, at, prefix: prefix.value }, signal);
      const rows = found.keys.map((key) => ({ ...key, look: before.size && before.get(key.key) !== key.time ? "changed" : "" }));
      before = new Map(found.keys.map((key) => [key.key, key.time]));
      clear(table, h("p", { class: "muted" }, `${number(found.total)} keys${found.total > found.keys.length ? `, of which ${number(found.keys.length)} are shown` : ""}`, rows.some((row) => row.look) ? h("span", { class: "key key-changed" }, "changed by the last move") : null), plainTable("Keys", [
        { name: "key", cell: (row) => h("button", { type: "button", class: "link", onclick: () => history(row.key) }, row.key) },
        { name: "value", look: "long", cell: (row) => json(row.value) },
        { name: "since (UTC)", cell: (row) => clock(row.time) },
      ], rows, "No keys at this moment."));
    } catch (error) { clear(table, failure(error)); }
    busy = false;
    if (again) { again = false; draw(); }
  }

  async function history(key) {
    const own = nextHistory();
    try {
      const found = await get("history", { name: about.name, part: about.part, key }, own);
      const width = 1000;
      const place = (change) => (Math.min(1, Math.max(0, change.ms - first) / (last - first))) * (width - 20) + 10;
      const line = s("svg", { class: "history-line", viewBox: `0 0 ${width} 36`, preserveAspectRatio: "none", role: "img", "aria-label": `${found.total} changes of ${key}` },
        s("line", { class: "axis", x1: 0, x2: width, y1: 18, y2: 18 }),
        found.changes.map((change) => s("rect", { class: change.deleted ? "map-damage" : "bar-records", x: place(change) - 3, y: 6, width: 6, height: 24 }, s("title", {}, `${change.time}: ${change.deleted ? "deleted" : json(change.value)}`))));
      clear(side, h("h2", {}, `History of ${key}`), h("div", { class: "chart" }, line, h("div", { class: "ticks", "aria-hidden": "true" }, h("span", {}, clock(iso(first))), h("span", {}, `${clock(iso(last))} UTC`))),
        plainTable(`Changes of ${key}`, [
          { name: "time (UTC)", cell: (row) => h("button", { type: "button", class: "link", onclick: () => moveTo(row.time) }, clock(row.time)) },
          { name: "value", look: "long", cell: (row) => (row.deleted ? h("span", { class: "badge warn" }, "deleted") : json(row.value)) },
        ], found.changes.slice().reverse()));
      side.scrollIntoView({ block: "nearest" });
    } catch (error) { if (!own.aborted) clear(side, failure(error)); }
  }

  async function difference() {
    const own = nextDifference();
    const [low, high] = mark !== null && (at === null || nanoseconds(mark) <= nanoseconds(at)) ? [mark, at] : [at, mark];
    if (low === null) { clear(compare, h("p", { class: "notice" }, "Both moments are now: move the slider.")); return; }
    try {
      const found = await get("difference", { name: about.name, part: about.part, since: low, until: high }, own);
      const rows = [
        ...Object.entries(found.added).map(([key, value]) => ({ key, what: "added", before: "", after: json(value) })),
        ...Object.entries(found.changed).map(([key, value]) => ({ key, what: "changed", before: json(value.before), after: json(value.after) })),
        ...Object.entries(found.removed).map(([key, value]) => ({ key, what: "removed", before: json(value), after: "" })),
      ].sort((a, b) => (a.key < b.key ? -1 : 1));
      clear(compare, h("h2", {}, `From ${words(low)} to ${words(high)}`), plainTable("Difference", [
        { name: "key", cell: (row) => row.key },
        { name: "change", cell: (row) => h("span", { class: `badge ${{ added: "good", changed: "", removed: "bad" }[row.what]}` }, row.what) },
        { name: "before", look: "long", cell: (row) => row.before },
        { name: "after", look: "long", cell: (row) => row.after },
      ], rows, "Nothing changed between these moments."),
        found.total > rows.length ? h("p", { class: "muted" }, `${number(found.total)} keys differ, of which ${number(rows.length)} are shown`) : null);
    } catch (error) { if (!own.aborted) clear(compare, failure(error)); }
  }
  const markButton = h("button", { type: "button", onclick: () => { mark = at; markButton.textContent = `Marked ${words(mark)}`; compareButton.disabled = false; } }, "Mark this moment");
  const compareButton = h("button", { type: "button", disabled: true, onclick: difference }, "Compare with the mark");
  slider.addEventListener("input", slide);
  prefix.addEventListener("input", draw);
  clear(place, h("div", { class: "card" }, h("div", { class: "line" }, h("h2", {}, "The store at"), where, h("button", { type: "button", onclick: () => moveTo(null) }, "Now")),
    slider, h("div", { class: "ticks", "aria-hidden": "true" }, h("span", {}, clock(iso(first))), h("span", {}, `${clock(iso(last))} UTC`)),
    h("div", { class: "line" }, prefix, h("span", { class: "grow" }), markButton, compareButton)), compare, table, side);
  await draw();
}
