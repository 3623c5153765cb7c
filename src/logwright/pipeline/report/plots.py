"""The drawings of the report: activity over time, bars, sparklines, and the places of damage in files.

Each is a function from figures to SVG of bounded size. Colours are classes (`c0` … `c6`, `rest` and the kinds of
damage) that the style sheet defines for light, dark and paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from . import units
from .figures import Activity, DamagedFile, Range, Series
from .markup import Markup, element, shown, svg, text, title

COLOURS: Final = 7
"""The number of journals that have their own colour."""
KINDS: Final = ("torn_tail", "malformed", "unexpected_offset", "gap", "truncated", "checksum", "unreadable")
"""The kinds of damage that have their own colour, in the order of the key."""

_WIDTH: Final = 1000
_TOP: Final = 12
_BOTTOM: Final = 30
_HEIGHT: Final = 210
_MOST_LINES: Final = 5
_MOST_TIMES: Final = 9
_STRIP_WIDTH: Final = 640
_STRIP_HEIGHT: Final = 18
_THINNEST: Final = 2.0
"""The least width of a damaged range, so that it is visible."""

_LONGEST_REASON: Final = 300


# --- activity -------------------------------------------------------------------------------------------------------


def coloured(activity: Activity) -> list[tuple[Series, str]]:
    """The series to draw, each with the class of its colour: the largest, and one for all others."""
    named = sorted((series for series in activity.series if series.name is not None), key=lambda one: -sum(one.bytes))
    found = [(series, f"c{number}") for number, series in enumerate(named[:COLOURS])]
    others = [*named[COLOURS:], *(series for series in activity.series if series.name is None)]
    if others:
        rest = Series(None, [0] * activity.buckets, [0] * activity.buckets)
        for series in others:
            rest.records = [one + other for one, other in zip(rest.records, series.records, strict=True)]
            rest.bytes = [one + other for one, other in zip(rest.bytes, series.bytes, strict=True)]
        found.append((rest, "rest"))
    return found


def activity_plot(activity: Activity, *, of_bytes: bool) -> Markup:
    """Records or bytes of each journal over time, as stacked bars."""
    series = [(one.bytes if of_bytes else one.records, one.name, colour) for one, colour in coloured(activity)]
    totals = [sum(counts[bucket] for counts, _, _ in series) for bucket in range(activity.buckets)]
    ticks = units.number_ticks(max(totals, default=0), _MOST_LINES, binary=of_bytes)
    worded = units.size if of_bytes else units.short
    inner_height = _HEIGHT - _TOP - _BOTTOM
    step = _WIDTH / max(1, activity.buckets)
    scale = inner_height / ticks[-1]
    base = _HEIGHT - _BOTTOM
    levels = [base - tick * scale for tick in ticks]
    lines = [element("line", x1=0, x2=_WIDTH, y1=y, y2=y, class_="grid") for y in levels]
    numbers = [
        text(-8, f"{100 * (y + 4) / _HEIGHT:.2f}%", worded(tick) if tick else "0", class_="axis", anchor="end")
        for y, tick in zip(levels, ticks, strict=True)
    ]
    below = [0] * activity.buckets
    bars = []
    bar_width = _bar_width(step)
    aside = (step - bar_width) / 2
    for counts, _, colour in series:
        path = "".join(
            f"M{aside + bucket * step:.1f} {base - (below[bucket] + count) * scale:.1f}"
            f"h{bar_width:.2f}V{base - below[bucket] * scale:.1f}h-{bar_width:.2f}z"
            for bucket, count in enumerate(counts)
            if count
        )
        bars.append(element("path", d=path, class_=colour))
        below = [one + other for one, other in zip(below, counts, strict=True)]
    words = "bytes" if of_bytes else "records"
    described = f"{words} per {width_in_words(activity.width)}, over time"
    areas = [_bucket_area(activity, bucket, step, base, totals, series, of_bytes) for bucket in range(len(totals))]
    drawn = element(
        "svg",
        *(lines, bars, areas),
        viewBox=f"0 0 {_WIDTH} {base}",
        preserveAspectRatio="none",
        width="100%",
        height=f"{100 * base / _HEIGHT:.2f}%",
    )
    axes = [*numbers, *_time_axis(activity, step)]
    return element("svg", drawn, axes, class_="activity", role="img", aria_label=described)


def _bar_width(step: float) -> float:
    """The width of a bar, with a gap between bars if they are wide enough."""
    return step if step < 3 else min(step - 1, 40)


def _time_axis(activity: Activity, step: float) -> list[Markup]:
    """The times below a plot. Their size does not depend on its width; if it is narrow, every second one is hidden."""
    end = activity.start + activity.buckets * activity.width
    found = []
    for number, (at, words, is_larger) in enumerate(units.time_ticks(activity.start, end, _MOST_TIMES)):
        share = (at - activity.start) / activity.width * step / _WIDTH
        anchor = "start" if share < 0.02 else "end" if share > 0.98 else "middle"
        looks = ["axis", *(["strong"] if is_larger else []), *(["minor"] if number % 2 else [])]
        found.append(text(f"{100 * share:.2f}%", "97%", words, class_=" ".join(looks), anchor=anchor))
    return found


def _bucket_area(
    activity: Activity,
    bucket: int,
    step: float,
    base: float,
    totals: Sequence[int],
    series: Sequence[tuple[list[int], str | None, str]],
    of_bytes: bool,
) -> Markup:
    """The tooltip of one bucket, over the full height of the plot."""
    if not totals[bucket]:
        return Markup("")
    worded = units.size if of_bytes else units.whole
    parts = sorted(((counts[bucket], name) for counts, name, _ in series if counts[bucket]), key=lambda part: -part[0])
    lines = [f"{units.moment(activity.start + bucket * activity.width)} UTC: {worded(totals[bucket])}"]
    lines += [f"{'others' if name is None else shown(name)}: {worded(count)}" for count, name in parts[:5]]
    x = bucket * step
    said = title("\n".join(lines))
    return element("rect", said, x=x, y=_TOP, width=step, height=base - _TOP, class_="area")


def width_in_words(seconds: int) -> str:
    """The length of a bucket in words: minute, 5 minutes, day."""
    for name, length in (("year", 365 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds % length == 0:
            return name if seconds == length else f"{seconds // length} {name}s"
    return units.duration(seconds)


# --- in rows of tables ----------------------------------------------------------------------------------------------


def bar(part: float, of: float, colour: str, *, describe: str) -> Markup:
    """A bar in a table row; visible for every value above zero."""
    width = 0.0 if not part or of <= 0 else max(1.5, 200 * part / of)
    shapes = [element("rect", x=0, y=3, width=200, height=8, rx=2, class_="track")]
    if width:
        shapes.append(element("rect", x=0, y=3, width=width, height=8, rx=2, class_=colour))
    return svg(200, 14, shapes, describe=describe, class_="share", stretched=True)


def sparkline(counts: Sequence[int], colour: str, *, describe: str, most: int = 60) -> Markup:
    """Counts over time, without axes."""
    group = -(-len(counts) // most) if counts else 1
    sums = [sum(counts[first : first + group]) for first in range(0, len(counts), group)]
    highest = max(sums, default=0)
    if not highest:
        return Markup("")
    step = 120 / len(sums)
    path = "".join(
        f"M{number * step:.1f} 18V{18 - max(1.0, 16 * count / highest):.1f}h{max(0.8, step - 0.5):.1f}V18z"
        for number, count in enumerate(sums)
        if count
    )
    return svg(120, 18, element("path", d=path, class_=colour), describe=describe, class_="spark", stretched=True)


# --- damage ---------------------------------------------------------------------------------------------------------


def kind_class(kind: str) -> str:
    """The class of the colour of a kind of damage."""
    return f"k-{kind}" if kind in KINDS else "k-other"


def strip(file: DamagedFile) -> Markup:
    """A file from its first byte to its last, with its damaged ranges."""
    whole = max(1, file.size)
    shapes = [element("rect", x=0, y=0, width=_STRIP_WIDTH, height=_STRIP_HEIGHT, rx=2, class_="track")]
    for found in file.ranges:
        start = min(found.start, whole) / whole * _STRIP_WIDTH
        width = max(_THINNEST, (min(found.end, whole) - min(found.start, whole)) / whole * _STRIP_WIDTH)
        x = min(start, _STRIP_WIDTH - width)
        said = title(range_in_words(found))
        shapes.append(element("rect", said, x=x, y=0, width=width, height=_STRIP_HEIGHT, class_=kind_class(found.kind)))
    described = f"{units.counted(file.count, 'damaged range')} in {units.size(file.size)}"
    return svg(_STRIP_WIDTH, _STRIP_HEIGHT, shapes, describe=described, class_="bytemap", stretched=True)


def range_in_words(found: Range) -> str:
    """A damaged range, or several that are too close to be drawn separately."""
    kind, reason = shown(found.kind), shown(found.reason, _LONGEST_REASON)
    if found.count == 1:
        return f"{kind} @ {units.whole(found.start)}, {units.counted(found.bytes, 'byte')}: {reason}"
    place = f"{units.whole(found.start)} to {units.whole(found.end)}"
    what = f"{units.counted(found.count, 'range')}, {units.size(found.bytes)}"
    return f"{kind} @ {place}: {what}; the first: {reason}"
