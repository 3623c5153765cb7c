// Rows of records: one row as an element, a table that scrolls over millions, and a list that grows.
import { clock, counted, get, h, number } from "./lib.js";

const HEIGHT = 30;
const PAGE = 100;
const MOST_PAGES = 60;
const MOST_PIXELS = 8_000_000; // browsers cannot draw taller elements: beyond that the bar is scaled

// The column of numbers is as wide as its widest number.
const fit = (element, about) => element.style.setProperty("--number", `${Math.max(5, number(about.rows).length) * 0.56}rem`);

export const header = (about) => h("div", { class: "row head", role: "row" },
  ["#", about.has_times ? "time (UTC)" : "place", "kind", "key", "value"].map((name, at) => h("span", { role: "columnheader", class: `c${at}` }, name)));

export function rowElement(about, row, onOpen) {
  if (row.gap) return h("div", { class: "row waiting", role: "row" }, h("span", { role: "cell", class: "wide" }, row.gap));
  if (row.damage) {
    return h("div", { class: "row damaged", role: "row", tabindex: "-1" },
      h("span", { role: "cell", class: "c0" }, row.row === null || row.row === undefined ? "" : number(row.row)),
      h("span", { role: "cell", class: "wide" }, damaged(row)));
  }
  const where = about.has_times ? (row.time ? clock(row.time) : "") : `${row.file} @ ${row.position}`;
  return h("div", { class: row.after ? "row after-damage" : "row", title: row.after ? damaged(row.after) : null, role: "row", tabindex: "-1", "data-number": row.number, onclick: () => onOpen(row),
    onkeydown: (event) => { if (event.key === "Enter") onOpen(row); } },
  h("span", { role: "cell", class: "c0" }, row.row === null || row.row === undefined ? (row.number.length < 12 ? row.number : `@${row.position}`) : number(row.row)),
  h("span", { role: "cell", class: "c1" }, where),
  h("span", { role: "cell", class: "c2" }, row.kind ? h("span", { class: "kind" }, row.kind) : ""),
  h("span", { role: "cell", class: "c3" }, row.key),
  h("span", { role: "cell", class: "c4" }, row.after ? h("span", { class: "badge bad" }, "after damage") : null, row.text));
}

const damaged = (row) => (row.file ? `${row.damage.replace("_", " ")}: ${row.file} @ ${row.position}, ${counted(row.size, "byte")}: ${row.text}` : row.text);

// The rows from `first` to `last`; only those on the screen are requested.
export function virtualTable(about, onOpen, signal) {
  const body = h("div", { class: "virtual-body" });
  const spacer = h("div", { class: "virtual-space" }, body);
  const scroller = h("div", { class: `virtual of-${about.format}`, tabindex: "0", role: "table", "aria-label": "Records", "aria-rowcount": about.rows }, header(about), spacer);
  fit(scroller, about);
  const pages = new Map();
  let first = 0, last = about.rows, top = 0, chosen = null, isOurs = false, frame = 0;

  const total = () => Math.max(0, last - first);
  const pixels = () => Math.min(total() * HEIGHT, MOST_PIXELS);
  const isScaled = () => total() * HEIGHT > MOST_PIXELS;
  const visible = () => Math.max(4, Math.floor((scroller.clientHeight - HEIGHT) / HEIGHT));
  const furthest = () => Math.max(0, total() - visible());

  async function load(page) {
    if (pages.has(page)) return;
    pages.set(page, null);
    try {
      const rows = [];
      let row = page * PAGE;
      while (row < (page + 1) * PAGE) {
        const found = await get("rows", { name: about.name, part: about.part, row, count: (page + 1) * PAGE - row }, signal);
        rows.push(...found.rows);
        if (found.next <= row || !found.rows.length) break;
        row = found.next;
      }
      pages.set(page, rows);
    } catch (error) {
      pages.set(page, [{ row: page * PAGE, damage: "error", file: "", text: error.message }]);
      setTimeout(() => pages.delete(page), 2000); // what is drawn next asks again
    }
    while (pages.size > MOST_PAGES) pages.delete(pages.keys().next().value);
    draw();
  }

  function draw() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      spacer.style.height = `${pixels()}px`;
      const start = first + Math.floor(top), end = Math.min(last, start + visible() + 2);
      const shown = [];
      const byRow = new Map();
      for (let page = Math.floor(start / PAGE); page <= Math.floor(Math.max(start, end - 1) / PAGE); page++) {
        if (!pages.has(page)) load(page);
        for (const row of pages.get(page) || []) {
          const other = byRow.get(row.row); // lost records have no row where records are not numbered
          byRow.set(row.row, !other ? row : other.damage && !row.damage ? { ...row, after: other } : other);
        }
      }
      for (let row = start; row < end; row++) {
        const found = byRow.get(row);
        const element = found ? rowElement(about, found, open)
          : h("div", { class: "row waiting", role: "row" }, h("span", { role: "cell", class: "c0" }, number(row)), h("span", { role: "cell", class: "wide" }, pages.get(Math.floor(row / PAGE)) ? "missing" : "…"));
        element.setAttribute("aria-rowindex", row + 1);
        if (row === chosen) element.classList.add("current");
        shown.push(element);
      }
      body.replaceChildren(...shown);
      body.style.transform = `translateY(${isScaled() ? scroller.scrollTop : Math.floor(top) * HEIGHT}px)`;
      scroller.dataset.first = start;
    });
  }

  function open(row) {
    chosen = row.row;
    draw();
    onOpen(row);
  }

  function moveTo(row) {
    top = Math.min(furthest(), Math.max(0, row));
    const wanted = isScaled() ? (top / Math.max(1, furthest())) * (pixels() - scroller.clientHeight + HEIGHT) : top * HEIGHT;
    spacer.style.height = `${pixels()}px`; // otherwise a longer table is not scrolled far enough
    const before = scroller.scrollTop;
    scroller.scrollTop = wanted;
    isOurs = scroller.scrollTop !== before;
    draw();
  }

  scroller.addEventListener("scroll", () => {
    if (isOurs) { isOurs = false; draw(); return; }
    top = isScaled() ? (scroller.scrollTop / Math.max(1, pixels() - scroller.clientHeight + HEIGHT)) * furthest() : scroller.scrollTop / HEIGHT;
    draw();
  });
  scroller.addEventListener("wheel", (event) => {
    if (!isScaled()) return; // the browser scrolls by itself
    const before = top;
    moveTo(top + event.deltaY / HEIGHT);
    if (top !== before) event.preventDefault(); // at its ends the page scrolls
  }, { passive: false });
  scroller.addEventListener("keydown", (event) => {
    const at = chosen === null ? first + Math.floor(top) - 1 : chosen;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: visible(), PageUp: -visible() };
    if (event.key in steps) chosen = Math.min(last - 1, Math.max(first, at + steps[event.key]));
    else if (event.key === "Home") chosen = first;
    else if (event.key === "End") chosen = last - 1;
    else if (event.key === "Enter" && chosen !== null) {
      const row = (pages.get(Math.floor(chosen / PAGE)) || []).find((found) => found.row === chosen && !found.damage);
      if (row) onOpen(row);
      return;
    } else return;
    event.preventDefault();
    if (chosen - first < top || chosen - first >= top + visible() - 1) moveTo(chosen - first - Math.floor(visible() / 2));
    else draw();
  });
  new ResizeObserver(draw).observe(scroller);

  return {
    element: scroller,
    limit(low, high, isSame = false) {
      for (const [page, rows] of pages) if ((rows || []).length < PAGE) pages.delete(page); // it may have grown
      first = low;
      last = high;
      fit(scroller, about);
      scroller.setAttribute("aria-rowcount", total());
      if (isSame) { moveTo(top); return; }
      chosen = null;
      moveTo(0);
    },
    moveTo: (row) => { chosen = row; moveTo(row - first); },
    draw,
  };
}

// A list that grows at its end, such as the matches of a filter or a live tail; the oldest rows leave it.
export function growingList(about, onOpen, { most = 2000, label = "Records" } = {}) {
  const body = h("div", { class: "list-body", role: "rowgroup" });
  const element = h("div", { class: `virtual list of-${about.format}`, tabindex: "0", role: "table", "aria-label": label }, header(about), body);
  fit(element, about);
  element.addEventListener("keydown", (event) => {
    const rows = [...body.children], at = rows.indexOf(document.activeElement);
    const wanted = { ArrowDown: at + 1, ArrowUp: at < 0 ? rows.length - 1 : Math.max(0, at - 1), Home: 0, End: rows.length - 1 }[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    rows[Math.min(wanted, rows.length - 1)]?.focus();
  });
  return {
    element,
    add(rows) {
      for (const row of rows) body.append(rowElement(about, row, onOpen));
      while (body.childElementCount > most) body.firstElementChild.remove();
    },
    clear() { body.replaceChildren(); },
    toEnd() { element.scrollTop = element.scrollHeight; },
    get count() { return body.childElementCount; },
  };
}
