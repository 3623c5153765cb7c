"""The style sheet of the report, with colours for light and dark mode and for paper.

The categorical colours are distinguishable for colour-blind readers and in greyscale.
"""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1c2330; --soft: #5d6778; --line: #e1e5eb; --track: #e9ecf1;
  --good: #1a7f4b; --good-soft: #e3f4ea; --bad: #b3261e; --bad-soft: #fbe9e7; --warn: #8a5a00; --warn-soft: #fdf1d8;
  --c0: #2f6fde; --c1: #e07b1a; --c2: #1f9e78; --c3: #c2408f; --c4: #7a5cd6; --c5: #c9a20c; --c6: #3aa7c9;
  --rest: #9aa4b2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161d; --card: #1a2029; --ink: #e6eaf0; --soft: #98a3b3; --line: #2b333f; --track: #262e3a;
    --good: #5fd39a; --good-soft: #173528; --bad: #ff8a80; --bad-soft: #3d1f1e; --warn: #f0c05a; --warn-soft: #3a2e14;
    --c0: #6d9ff5; --c1: #f0a050; --c2: #4cc9a0; --c3: #e67fc0; --c4: #a994f0; --c5: #e3c54d; --c6: #76cde6;
    --rest: #6b7686;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 4px; }
h3 { font-size: 13px; margin: 20px 0 4px; color: var(--soft); font-weight: 600; }
p { margin: 0 0 10px; }
.from { color: var(--soft); margin-bottom: 28px; overflow-wrap: anywhere; }
.from b { color: var(--ink); font-weight: 600; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 14px; margin-bottom: 14px; }
.card, section {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; break-inside: avoid;
}
.card { padding: 16px 18px; }
.card .name { color: var(--soft); font-size: 13px; }
.card .value { font-size: 26px; line-height: 1.25; font-weight: 650; letter-spacing: -0.01em; white-space: nowrap; }
.card .more { color: var(--soft); font-size: 13px; }
.card.good .value { color: var(--good); }
.card.bad .value { color: var(--bad); }
.card.warn .value { color: var(--warn); }
section { padding: 22px 24px 20px; margin-top: 14px; }
.says { color: var(--soft); font-size: 14px; margin-bottom: 12px; }
.empty { color: var(--soft); background: var(--page); border-radius: 8px; padding: 14px 16px; margin: 8px 0 0; }
.empty.good { color: var(--good); background: var(--good-soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th {
  text-align: left; font-weight: 600; font-size: 12px; color: var(--soft); padding: 6px 12px 6px 0;
  border-bottom: 1px solid var(--line); white-space: nowrap;
}
td { padding: 7px 12px 7px 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
tr:last-child td { border-bottom: 0; }
th:last-child, td:last-child { padding-right: 0; }
th.number, td.number { text-align: right; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 170px; font-weight: 500; }
td.time { white-space: nowrap; color: var(--soft); }
td.bars { width: 15%; min-width: 90px; }
td.wide { width: 40%; min-width: 120px; }
td.sparks { width: 124px; min-width: 90px; }
td.strips { width: 52%; min-width: 200px; }
td.reason { overflow-wrap: anywhere; color: var(--soft); }
tr.others td { color: var(--soft); font-weight: 400; }
.part { color: var(--soft); font-weight: 400; }
.chip {
  display: inline-block; border-radius: 999px; padding: 1px 9px; font-size: 12px; font-weight: 600;
  white-space: nowrap; background: var(--track); color: var(--soft);
}
.chip.good { background: var(--good-soft); color: var(--good); }
.chip.bad { background: var(--bad-soft); color: var(--bad); }
.chip.warn { background: var(--warn-soft); color: var(--warn); }
.key { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; margin: 6px 0 0; padding: 0; list-style: none; }
.key li { display: flex; align-items: center; gap: 7px; max-width: 320px; overflow-wrap: anywhere; }
.key svg { width: 11px; height: 11px; flex: none; border-radius: 3px; }
.notes { margin: 8px 0 0; padding-left: 20px; }
details { margin-top: 14px; }
summary { cursor: pointer; color: var(--soft); font-size: 13px; font-weight: 600; }
svg { display: block; }
svg.plot { width: 100%; height: auto; overflow: visible; }
svg.bar { width: 100%; height: 14px; }
svg.spark { width: 100%; height: 20px; }
svg.strip { width: 100%; height: 18px; }
svg text.axis { fill: var(--soft); font-size: 12px; }
svg text.strong { fill: var(--ink); font-weight: 600; }
.grid { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.track { fill: var(--track); }
.area { fill: transparent; }
.area:hover { fill: var(--ink); fill-opacity: 0.07; }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .c6 { fill: var(--c6); } .rest { fill: var(--rest); }
.s-behind { fill: var(--c0); } .s-overtaken { fill: var(--bad); } .s-ahead { fill: var(--c1); }
.k-torn_tail { fill: var(--c5); } .k-malformed { fill: var(--bad); } .k-unexpected_offset { fill: var(--c4); }
.k-gap { fill: var(--c0); } .k-checksum { fill: var(--c3); } .k-unreadable { fill: var(--c1); }
.k-truncated { fill: var(--c2); } .k-other { fill: var(--rest); }
footer { color: var(--soft); font-size: 13px; margin-top: 24px; }
@media print {
  :root {
    --page: #ffffff; --card: #ffffff; --ink: #000000; --soft: #444444; --line: #cccccc; --track: #eeeeee;
    --good: #1a7f4b; --bad: #b3261e; --warn: #8a5a00; --rest: #999999;
    --c0: #2f6fde; --c1: #e07b1a; --c2: #1f9e78; --c3: #c2408f; --c4: #7a5cd6; --c5: #c9a20c; --c6: #3aa7c9;
  }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { font-size: 12px; }
  main { max-width: none; padding: 0; }
  .scroll { overflow: visible; }
  table { font-size: 9.5px; }
  th { font-size: 9px; white-space: normal; }
  th, td { padding: 4px 7px 4px 0; }
  td.name { min-width: 90px; }
  td.time { white-space: normal; min-width: 52px; }
  td.bars, td.sparks { min-width: 50px; width: 10%; }
  td.wide { min-width: 80px; }
  .chip { font-size: 9px; padding: 0 6px; }
  section { padding: 14px 16px 12px; }
  .says { font-size: 11px; }
  .cards { grid-template-columns: repeat(3, 1fr); }
  section { break-inside: auto; }
  h2, .says { break-after: avoid; }
  tr, svg.plot { break-inside: avoid; }
  .area { display: none; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
@page { margin: 14mm; }
"""
