// Drawings in SVG: sparkline, timeline with a range, area over rows, byte map, plot of a query.
import { h, iso, number, s, short, shortTime, size } from "./lib.js";

export function sparkline(counts, label) {
  const width = 120, height = 26;
  const most = Math.max(1, ...counts);
  const step = width / Math.max(1, counts.length);
  const bars = counts.map((count, at) => {
    const tall = count ? Math.max(1.5, (count / most) * (height - 2)) : 0;
    return s("rect", { x: at * step, y: height - tall, width: Math.max(0.8, step - 0.8), height: tall });
  });
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "none" }, bars);
}

// Bars of records, bars of bytes below them, marks of damage. Dragging, or the keys + - ← →, choose a range.
export function timeline(found, onRange) {
  const width = 1000, height = 100, below = 30;
  const buckets = found.buckets;
  const svg = s("svg", { class: "timeline", viewBox: `0 0 ${width} ${height + below}`, preserveAspectRatio: "none", tabindex: "0",
    role: "application", "aria-roledescription": "timeline", "aria-label": `Records over time from ${found.since} to ${found.until}${found.damages.length ? `, ${found.damages.length} damaged` : ""}. Press plus to zoom in, minus to show all, arrows to move.` });
  const first = buckets[0].ms, last = buckets[buckets.length - 1].ms + found.step_ms, span = last - first;
  const most = Math.max(1, ...buckets.map((bucket) => bucket.records));
  const mostBytes = Math.max(1, ...buckets.map((bucket) => bucket.bytes));
  const step = width / buckets.length;
  const x = (ms) => ((ms - first) / span) * width;
  for (const [at, bucket] of buckets.entries()) {
    const tall = bucket.records ? Math.max(2, (bucket.records / most) * (height - 8)) : 0;
    svg.append(s("rect", { class: "bar-records", x: at * step, y: height - tall, width: Math.max(1, step - 1.2), height: tall },
      s("title", {}, `${iso(bucket.ms)}: ${number(bucket.records)} records, ${size(bucket.bytes)}`)));
  }
  for (const [at, bucket] of buckets.entries()) {
    svg.append(s("rect", { class: "bar-bytes", x: at * step, y: height + 2, width: Math.max(1, step - 1.2), height: (bucket.bytes / mostBytes) * (below - 2) }));
  }
  svg.append(s("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }));
  for (const damage of found.damages) {
    if (damage.ms === null || damage.ms < first || damage.ms > last) continue;
    const at = x(damage.ms);
    svg.append(s("path", { class: "mark-damage", d: `M${at - 6} 0 h12 l-6 11 z M${at - 1} 8 h2 V${height + below} h-2 z` },
      s("title", {}, `${damage.file} @ ${damage.position}: ${damage.reason}`)));
  }
  const chosen = s("rect", { class: "chosen", y: 0, height: height + below, width: 0, x: 0 });
  svg.append(chosen);
  const timeAt = (event) => {
    const box = svg.getBoundingClientRect();
    return first + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * span;
  };
  let from = null;
  svg.addEventListener("pointerdown", (event) => { from = timeAt(event); svg.setPointerCapture(event.pointerId); });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const low = Math.min(from, timeAt(event)), high = Math.max(from, timeAt(event));
    chosen.setAttribute("x", x(low));
    chosen.setAttribute("width", x(high) - x(low));
  });
  svg.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const low = Math.min(from, timeAt(event)), high = Math.max(from, timeAt(event));
    from = null;
    chosen.setAttribute("width", 0);
    if (high - low > span / 200) onRange(low, high);
  });
  svg.addEventListener("pointercancel", () => { from = null; chosen.setAttribute("width", 0); });
  svg.addEventListener("keydown", (event) => {
    if ((event.key === "+" || event.key === "=") && span >= 4) onRange(first + span / 4, last - span / 4);
    if (event.key === "-") onRange(null, null);
    const step = { ArrowLeft: -span / 4, ArrowRight: span / 4 }[event.key];
    if (step) { event.preventDefault(); onRange(first + step, last + step); }
  });
  const marks = (span < 0.01 ? [0] : [0, 0.25, 0.5, 0.75, 1]).map((share) => h("span", {}, share && span < 10 ? `+${Number((share * span).toPrecision(2))} ms` : shortTime(first + share * span, span)));
  return h("figure", { class: "chart" }, svg,
    h("div", { class: "ticks", "aria-hidden": "true" }, marks),
    h("figcaption", {},
      h("span", { class: "key key-records" }, `records (up), at most ${short(most)} a bar`),
      h("span", { class: "key key-bytes" }, `bytes (down), at most ${size(mostBytes)}`),
      found.damages.length ? h("span", { class: "key key-damage" }, "damage") : null,
      h("span", { class: "muted" }, `${iso(first).slice(0, 10)}, UTC; drag to choose a range, or use + − ← →`)));
}

// A drawing with the value of its top at its left.
const scaled = (svg, top) => h("div", { class: "scaled" }, h("span", { class: "scale", "aria-hidden": "true" }, top), svg);

// Lines over rows: `series` is [[name, class, values]]; `times` are those of the rows, if they are known.
export function lines(label, xs, series, axis, times = []) {
  const width = 1000, height = 150;
  const most = Math.max(1, ...series.flatMap(([, , values]) => values));
  const last = Math.max(1, xs[xs.length - 1]);
  const ends = series.map(([name, , values]) => `${name} ${values[values.length - 1]}`).join(", ");
  const svg = s("svg", { class: "lines", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}. At the end: ${ends}.` });
  for (const [, look, values] of series) {
    const points = values.map((value, at) => `${(xs[at] / last) * width},${height - 4 - (value / most) * (height - 10)}`).join(" ");
    svg.append(s("polyline", { class: `series ${look}`, points }));
  }
  svg.append(s("line", { class: "axis", x1: 0, x2: width, y1: height - 1, y2: height - 1 }));
  const known = times.filter((time) => time);
  const span = known.length ? known[known.length - 1] - known[0] : 0;
  const tick = (row) => {
    const at = Math.max(0, xs.findLastIndex((x) => x <= row));
    return h("span", {}, `${short(row)}${times[at] ? ` · ${shortTime(times[at], span)}` : ""}`);
  };
  return h("figure", { class: "chart" }, scaled(svg, short(most)),
    h("div", { class: "ticks", "aria-hidden": "true" }, [0, Math.round(last / 2), last].map(tick)),
    h("figcaption", {}, series.map(([name, look]) => h("span", { class: `key key-${look}` }, name)),
      h("span", { class: "muted" }, `over ${short(last)} ${axis}${known.length ? `; the time is that of the last item added, from ${iso(known[0]).slice(0, 10)} on, UTC` : ""}`)));
}

export function byteMap(file) {
  const width = 1000;
  const total = Math.max(1, file.bytes);
  const svg = s("svg", { class: "bytemap", viewBox: `0 0 ${width} 18`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${file.file}: ${size(file.bytes)}; ${file.ranges.length ? file.ranges.map((range) => `${range.kind.replace("_", " ")} at ${range.start}`).slice(0, 20).join(", ") : "all records"}` },
  s("rect", { class: "map-records", x: 0, y: 0, width: file.bytes ? width : 0, height: 18 }));
  for (const range of file.ranges) {
    const left = (range.start / total) * width;
    const wide = Math.max(4, ((range.end - range.start) / total) * width);
    svg.append(s("rect", { class: { torn_tail: "map-torn", free: "map-free" }[range.kind] || "map-damage", x: Math.min(left, width - wide), y: 0, width: wide, height: 18 },
      s("title", {}, `${range.kind} @ ${range.start}: ${range.reason}`)));
  }
  return svg;
}

const MOST_BARS = 50;

// A plot of two columns of a query: bars by name, or a line over numbers and times.
export function plot(points, kind, label) {
  const values = points.map((point) => point.y);
  const top = Math.max(0, ...values), low = Math.min(0, ...values);
  return kind === "bars" ? bars(points, label, top - low || 1, -low) : curve(points, label, top, low);
}

function bars(points, label, span, zero) {
  const rows = points.slice(0, MOST_BARS).map((point) => [
    h("span", { class: "bar-name", title: point.label }, point.label),
    s("svg", { viewBox: "0 0 1000 14", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("rect", { class: "bar-records", x: ((zero + Math.min(0, point.y)) / span) * 1000, y: 0, height: 14, width: Math.max(2, (Math.abs(point.y) / span) * 1000) })),
    h("span", { class: "right" }, number(point.y)),
  ]);
  const left = points.length - rows.length;
  return h("figure", { class: "chart" }, h("div", { class: "plot bars" }, rows),
    h("figcaption", {}, h("span", { class: "muted" }, `${label}${left > 0 ? `; the first ${MOST_BARS} rows` : ""}`)));
}

function curve(points, label, top, low) {
  const width = 1000, height = 220;
  const y = (value) => height - 6 - ((value - low) / (top - low || 1)) * (height - 14);
  const xs = points.map((point) => point.x);
  const first = Math.min(...xs), last = Math.max(...xs);
  const place = (point) => `${((point.x - first) / (last - first || 1)) * width},${y(point.y)}`;
  const svg = s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}, from ${low} to ${top}` },
    s("line", { class: "axis", x1: 0, x2: width, y1: y(0), y2: y(0) }),
    s("polyline", { class: "series waiting", points: points.map(place).join(" ") }));
  const ends = [points[0], points[Math.floor(points.length / 2)], points[points.length - 1]];
  return h("figure", { class: "chart" }, scaled(svg, short(top)),
    h("div", { class: "ticks", "aria-hidden": "true" }, ends.map((point) => h("span", {}, point.label.replace("T", " ").replace("Z", "")))),
    h("figcaption", {}, h("span", { class: "muted" }, `${label}; from ${short(low)} to ${short(top)}`)));
}
