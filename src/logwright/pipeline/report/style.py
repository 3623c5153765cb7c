"""The style of the report: that of the live page, and what only a report on paper and in tables needs.

The style sheet of the page is inlined, so tiles, tables, badges and drawings look the same in both. The categorical
colours are distinguishable for colour-blind readers and in greyscale.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_SHARED: Final = (Path(__file__).parents[2] / "web" / "static" / "style.css").read_text("utf-8")
_OWN: Final = """
.page > .card { padding: 1.2rem 1.3rem 1.1rem; margin: .9rem 0; scroll-margin-top: .5rem; break-inside: avoid; }
.card h2 { margin: 0 0 .2rem; }
.from { color: var(--muted); margin-bottom: 1.4rem; overflow-wrap: anywhere; }
.from b { color: var(--ink); font-weight: 600; }
.says { color: var(--muted); font-size: .9rem; margin-bottom: .7rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
.card table { font-variant-numeric: tabular-nums; }
td { white-space: normal; }
th.number, td.number { text-align: right; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 9rem; font-weight: 500; }
td.time { white-space: nowrap; color: var(--muted); }
td.bars { width: 13%; min-width: 70px; } td.wide { width: 40%; min-width: 110px; }
td.sparks { width: 124px; min-width: 90px; } td.strips { width: 52%; min-width: 180px; }
td.reason { overflow-wrap: anywhere; color: var(--muted); }
tr.others td { color: var(--muted); font-weight: 400; }
span.part { color: var(--muted); font-weight: 400; margin: 0; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .82rem; margin: .4rem 0 0; padding: 0; }
.legend li { display: flex; align-items: center; gap: .4rem; max-width: 320px; overflow-wrap: anywhere; }
.legend svg { width: 11px; height: 11px; flex: none; border-radius: 3px; }
.notes { margin: .5rem 0 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
details { margin-top: .9rem; }
summary { cursor: pointer; color: var(--muted); font-size: .85rem; font-weight: 600; }
svg.activity { display: block; width: 100%; height: 210px; padding-left: 3.6rem; overflow: visible; }
svg.share { display: block; width: 100%; height: 14px; }
td .spark { width: 100%; }
td .bytemap { width: 100%; margin: 0; }
svg text.axis { fill: var(--muted); stroke: none; font-size: 12px; }
svg text.strong { fill: var(--ink); font-weight: 600; }
.grid { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.area { fill: transparent; }
.area:hover { fill: var(--ink); fill-opacity: .07; }
.s-behind { fill: var(--c0); } .s-overtaken { fill: var(--bad); } .s-ahead { fill: var(--c1); }
.k-torn_tail { fill: var(--c5); } .k-malformed { fill: var(--bad); } .k-unexpected_offset { fill: var(--c4); }
.k-gap { fill: var(--c0); } .k-checksum { fill: var(--c3); } .k-unreadable { fill: var(--c1); }
.k-truncated { fill: var(--c2); } .k-other { fill: var(--rest); }
footer { color: var(--muted); font-size: .85rem; margin-top: 1.5rem; }
@media (max-width: 700px) {
  .page > .card { padding: .9rem .8rem; }
  svg.activity { height: 170px; padding-left: 3rem; }
  svg .minor { display: none; }
}
@media screen and (max-width: 1000px) {
  table.stack td { min-width: 0; width: auto; }
  table.stack td:empty { display: none; }
  table.stack tr { grid-template-columns: repeat(auto-fit, minmax(5.2rem, 1fr)); padding: .5rem .7rem; }
  table.stack td:first-child::before { content: none; }
  table.stack td.name + td.name { grid-column: auto; font-weight: 400; }
  table.stack td.time { grid-column: span 2; }
  table.stack td.wide, table.stack td.strips, table.stack td.reason { grid-column: 1 / -1; }
}
@media print {
  :root {
    --back: #ffffff; --surface: #ffffff; --ink: #000000; --muted: #444444; --line: #cccccc; --soft: #eeeeee;
    --good: #1a7f4b; --bad: #b3261e; --warn: #8a5a00; --rest: #999999; color-scheme: light;
    --c0: #2f6fde; --c1: #e07b1a; --c2: #1f9e78; --c3: #c2408f; --c4: #7a5cd6; --c5: #c9a20c; --c6: #3aa7c9;
  }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { font-size: 12px; }
  .page { max-width: none; padding: 0; }
  .scroll { overflow: visible; }
  table { font-size: 9.5px; }
  thead th { font-size: 9px; white-space: normal; }
  th, td { padding: 4px 7px 4px 0; }
  td.name { min-width: 90px; }
  td.time { white-space: normal; min-width: 52px; }
  td.bars, td.sparks { min-width: 50px; width: 10%; }
  td.wide { min-width: 80px; }
  .badge { font-size: 9px; padding: 0 6px; }
  .tiles { grid-template-columns: repeat(3, 1fr); }
  .page > .card { break-inside: auto; }
  h2, .says { break-after: avoid; }
  tr, svg.activity { break-inside: avoid; }
  .area { display: none; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
@page { margin: 14mm; }
"""
STYLE: Final = _SHARED + _OWN
