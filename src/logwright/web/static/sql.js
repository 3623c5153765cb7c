// SQL over the journals: a box, a table, a plot, and downloads.
import { clear, counted, failure, get, h, newest, plainTable, url } from "./lib.js";
import { plot } from "./charts.js";

export async function sql(page, signal, query) {
  const next = newest(signal);
  const examples = h("div", { class: "chips" });
  const box = h("textarea", { rows: 5, spellcheck: "false", "aria-label": "Query", placeholder: "SELECT * FROM 'orders' LIMIT 10", value: query.q || "" });
  const run = h("button", { type: "button", class: "primary", onclick: go }, "Run");
  const csv = h("a", { class: "button", href: "#", download: "result.csv", hidden: true }, "CSV");
  const parquet = h("a", { class: "button", href: "#", download: "result.parquet", hidden: true }, "Parquet");
  const result = h("div", { class: "result", "aria-live": "polite" });
  box.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(); });
  clear(page, h("div", { class: "page" }, h("h1", {}, "SQL"), h("p", { class: "muted" }, "A quoted name is a journal: 'orders', 'queues:items', 'stores:state@2 hours ago'. Ctrl+Enter runs the query."),
    box, h("div", { class: "line" }, run, csv, parquet, h("span", { class: "grow" })), examples, result));
  get("overview", {}, signal).then((found) => clear(examples, found.journals.length ? h("span", { class: "muted" }, "Examples:") : null, found.journals.slice(0, 12).map((journal) => h("button", { type: "button", class: "chip", onclick: () => { box.value = example(journal); go(); } }, journal.name)))).catch(() => {});
  if (box.value) await go();

  async function go() {
    const text = box.value.trim();
    if (!text) return;
    history.replaceState(null, "", `#/sql?${new URLSearchParams({ q: text })}`);
    const own = next();
    clear(result, h("p", { class: "muted" }, "Running …"));
    try {
      const found = await get("sql", { query: text }, own);
      csv.href = url("sql.csv", { query: text });
      parquet.href = url("sql.parquet", { query: text });
      csv.hidden = parquet.hidden = false;
      draw(result, found);
    } catch (error) {
      if (own.aborted) return;
      csv.hidden = parquet.hidden = true;
      clear(result, failure(error));
    }
  }
}

function example(journal) {
  const name = `'${journal.name.replaceAll("'", "''")}'`;
  const ofFormat = {
    sej: `SELECT time_bucket(INTERVAL '15 minutes', timestamp) AS quarter, count(*) AS messages\nFROM ${name} GROUP BY ALL ORDER BY quarter`,
    kestrel: `SELECT state, count(*) AS items\nFROM ${name.slice(0, -1)}:items' GROUP BY ALL ORDER BY items DESC`,
    versioned: `SELECT k, count(*) AS changes\nFROM ${name} GROUP BY k ORDER BY changes DESC`,
    appendfile: `SELECT segment, count(*) AS records\nFROM ${name} WHERE kind = 'data' GROUP BY segment ORDER BY segment`,
    yeltsin: `SELECT page, count(*) AS operations\nFROM ${name} GROUP BY page ORDER BY operations DESC`,
  };
  return ofFormat[journal.format] || `SELECT * FROM ${name} LIMIT 100`;
}

function draw(result, found) {
  const columns = found.columns.map((column, at) => ({ name: column.name, right: column.kind === "number", look: column.kind === "text" ? "long" : null, cell: (row) => (row[at] === null ? h("span", { class: "muted" }, "null") : typeof row[at] === "object" ? JSON.stringify(row[at]) : row[at]) }));
  const place = h("div", { class: "plot-place" });
  clear(result, plotted(found, place), place,
    h("p", { class: "muted" }, found.cut ? `The first ${counted(found.rows.length, "row")}; the downloads have all.` : counted(found.rows.length, "row")),
    plainTable("Result", columns, found.rows, "No rows."));
}

function plotted(found, place) {
  const numbers = found.columns.map((column, at) => ({ ...column, at })).filter((column) => column.kind === "number");
  if (!numbers.length || found.rows.length < 2) return null;
  const pick = (label, options, chosen) => h("label", {}, label, h("select", {}, options.map((column) => h("option", { value: column.at, selected: column.at === chosen }, column.name))));
  const all = found.columns.map((column, at) => ({ ...column, at }));
  const y = numbers[numbers.length - 1].at;
  const across = pick("over", all, (all.find((column) => column.at !== y) || all[0]).at);
  const up = pick("Plot", numbers, y);
  const draw = () => {
    const [x, value] = [across, up].map((label) => Number(label.querySelector("select").value));
    const kind = found.columns[x].kind === "text" || (found.columns[x].kind === "number" && found.rows.length <= 24) ? "bars" : "line";
    const points = found.rows.slice(0, 1000).map((row) => ({ label: String(row[x]), y: Number(row[value]) || 0, x: found.columns[x].kind === "time" ? Date.parse(row[x]) : Number(row[x]) }));
    clear(place, plot(points, kind, `${found.columns[value].name} over ${found.columns[x].name}`));
  };
  across.addEventListener("change", draw);
  up.addEventListener("change", draw);
  draw();
  return h("div", { class: "line" }, up, across);
}
