"""The report: one self-contained HTML page.

The page contains its style and drawings. It loads nothing, runs no scripts, and is readable in dark mode and on paper.
Names of journals and files are always escaped.

    figures = gather(activity, damage, {"files": …, "consumers": …}, counts, …)
    write_report(Path("tables/report.html"), figures)
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ... import __version__
from ...core.io.disk import REAL_DISK, Disk, replace_file
from ...location import without_secrets
from . import chapters, plots, units
from .figures import Activity, ConsumerFigures, DamagedFile, DamageFigures, Figures, JournalFigures
from .markup import DASH, NOTHING, Content, Markup, element, empty, join, label, row, section, shown, table
from .style import STYLE

_MOST_RANGES: Final = 60
_MOST_PROBLEMS: Final = 30
_LONGEST_REASON: Final = 300
_LATE_RECORDS: Final = 1000
"""A consumer is late from this lag on, if that is also a tenth of the journal: as on the live page."""
_HARMLESS_KINDS: Final = frozenset({"torn_tail", "lost", "restored"})
"""The next writer cuts off a torn tail, and a repair has accounted for the others."""
_STATUSES: Final = {
    "current": "good",
    "behind": "",
    "overtaken": "bad",
    "ahead": "warn",
    "new": "",
    "unreadable": "bad",
}
"""The statuses of consumers, and their CSS classes."""


def write_report(path: Path, figures: Figures, *, disk: Disk = REAL_DISK) -> int:
    """Write the report, replacing an existing one, and return its size."""
    page = render_report(figures).encode()
    replace_file(disk, path, page, path.with_name(path.name + ".tmp"))
    return len(page)


def render_report(figures: Figures) -> str:
    """The report as HTML."""
    heading = f"Journal report: {shown(without_secrets(figures.source))}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'",
        ),
        element("title", heading),
        element("style", Markup(STYLE)),
    )
    sections = (
        _attention(figures),
        _damage(figures),
        _consumers(figures),
        _activity(figures),
        _journals(figures),
        chapters.queues(figures),
        chapters.stores(figures),
        chapters.segments(figures),
        chapters.pages(figures),
        chapters.expectations(figures),
        _tables(figures),
        _notes(figures),
    )
    foot = element("footer", f"Made by Logwright {__version__}. Times are UTC. Point at a drawing to see its numbers.")
    body = element("body", element("main", _header(figures), _cards(figures), sections, foot, class_="page"))
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"


# --- the top --------------------------------------------------------------------------------------------------------


def _header(figures: Figures) -> Markup:
    source, out = without_secrets(figures.source), without_secrets(figures.out)
    took = "" if figures.seconds is None else f" in {units.duration(figures.seconds)}"
    return join(
        element("h1", "Journal report"),
        element(
            "p",
            *("From ", element("b", label(source, 200)), " into ", element("b", label(out, 200))),
            f", {units.moment(figures.made_at)} UTC{took}",
            class_="from",
        ),
    )


def _cards(figures: Figures) -> Markup:
    total = figures.total
    formats = sorted({journal.format for journal in figures.journals if journal.format})
    found = [_card("Journals", units.whole(figures.journal_count), ", ".join(formats), to="journals")]
    if figures.activity is not None:
        found.append(_records_card(total))
    files = units.counted(total.files, "file") if total.files else units.counted(total.size, "byte")
    found.append(_card("Size", units.size(total.size), files, to="journals"))
    if total.first is not None and total.last is not None:
        found.append(_time_card(total.first, total.last, "activity" if figures.activity is not None else "journals"))
    if figures.consumers is not None:
        found.insert(0, _consumer_card(figures))
    if figures.damage is not None:
        found.insert(0, _damage_card(figures.damage, len(figures.tails)))
    return element("nav", found, class_="tiles", aria_label="Figures, which link to their sections")


def _card(name: str, value: str, more: str, look: str = "", *, to: str) -> Markup:
    """A tile that leads to its section."""
    return element(
        "a",
        element("span", value, class_="tile-value"),
        element("span", name, class_="tile-label"),
        element("span", more, class_="tile-more"),
        class_=f"tile {look}".rstrip(),
        href=f"#{to}",
    )


def _records_card(total: JournalFigures) -> Markup:
    shortened, exact = units.short(total.records), units.whole(total.records)
    parts = [exact] if shortened != exact else []
    parts += [f"{units.size(total.bytes / total.records)} each"] if total.records else []
    return _card("Records", shortened, ", ".join(parts), to="activity")


def _time_card(first: int, last: int, to: str) -> Markup:
    days = list(dict.fromkeys(units.moment(at).partition(" ")[0] for at in (first, last)))
    if days == ["year"]:
        days = [units.moment(first)]
    return _card("Time", units.duration(last - first + 60), " to ".join(days), to=to)


def _damage_card(damage: DamageFigures, tails: int) -> Markup:
    if not damage.count and tails:
        return _card("Damage", "none", f"{units.counted(tails, 'file')} with an incomplete end", "warn", to="damage")
    if not damage.count:
        return _card("Damage", "none", "all bytes are records", "good", to="damage")
    look = "warn" if set(damage.kinds) <= _HARMLESS_KINDS else "bad"
    places = []
    if damage.file_count:
        places.append(f"{units.size(damage.bytes)} in {units.counted(damage.file_count, 'file')}")
    if damage.unreadable_count:
        places.append(f"{units.counted(damage.unreadable_count, 'journal')} not opened")
    return _card("Damage", units.short(damage.count), ", ".join(places), look, to="damage")


def _consumer_card(figures: Figures) -> Markup:
    count = sum(figures.statuses.values())
    if not count:
        return _card("Consumers", "none", "no journal has any", to="consumers")
    lag = max((consumer.lag or 0 for consumer in figures.consumers or ()), default=0)
    troubled = sum(figures.statuses.get(status, 0) for status in ("overtaken", "unreadable"))
    more = f"{units.whole(troubled)} in trouble" if troubled else "all up to date"
    if lag and not troubled:
        more = f"up to {units.counted(lag, 'record')} behind"
    return _card("Consumers", units.whole(count), more, "bad" if troubled else "", to="consumers")


# --- what needs attention -------------------------------------------------------------------------------------------


def _attention(figures: Figures) -> Markup:
    """The problems and the commands that help, as on the live page."""
    found = [*_damage_problems(figures), *_consumer_problems(figures)]
    if not found:
        return NOTHING
    hidden = len(found) - _MOST_PROBLEMS
    more = element("p", f"and {units.counted(hidden, 'other problem')}", class_="says") if hidden > 0 else NOTHING
    problems = element("ul", found[:_MOST_PROBLEMS], class_="problems")
    return element("section", element("h2", "Needs attention"), problems, more, id="attention")


def _damage_problems(figures: Figures) -> Iterator[Markup]:
    damage = figures.damage or DamageFigures()
    for journal, reason in damage.unreadable:
        yield _problem(figures, journal, "unreadable", reason, "verify", "bad", "damage")
    for file in damage.files:
        kinds = {one.kind for one in file.ranges}
        if not kinds <= _HARMLESS_KINDS:
            text = f"{file.file}: {units.counted(file.count, 'damaged range')}, {units.size(file.bytes)}"
            yield _problem(figures, file.journal, "damage", text, "repair --plan", "bad", "damage")
        elif "torn_tail" in kinds:
            text = f"{file.file}: {units.size(file.bytes)} at its end are not a complete record"
            yield _problem(figures, file.journal, "torn tail", text, "repair --plan", "warn", "damage")


def _consumer_problems(figures: Figures) -> Iterator[Markup]:
    sizes = {journal.name: journal.records for journal in figures.journals}
    for one in figures.consumers or ():
        name = one.consumer if one.shard is None else f"{one.consumer} of {one.shard}"
        lag = one.lag or 0
        if one.status in ("overtaken", "unreadable"):
            missed = f"{units.counted(one.missed, 'record')} removed before it read them" if one.missed else one.problem
            text = f"{name}: {missed or one.status}"
            yield _problem(figures, one.journal, "consumer", text, "offsets", "bad", "consumers")
        elif lag >= _LATE_RECORDS and lag * 10 >= sizes.get(one.journal, 0):
            text = f"consumer {name} is {units.counted(lag, 'record')} behind"
            yield _problem(figures, one.journal, "lag", text, "offsets", "warn", "consumers")


def _problem(figures: Figures, journal: str, kind: str, text: str, verb: str, look: str, to: str) -> Markup:
    source = without_secrets(figures.source)
    place = shown(f"{source.rstrip('/')}/{journal}" if journal else source, _LONGEST_REASON)
    head = (element("a", label(journal or source), href=f"#{to}"), element("span", kind, class_=f"badge {look}"))
    command = element("code", f"logwright {verb} {shlex.quote(place)}")
    return element(
        "li",
        element("div", *head, class_="problem-head"),
        element("p", shown(text, _LONGEST_REASON)),
        element("span", command, class_="command"),
        class_=f"problem {look}",
    )


# --- sections -------------------------------------------------------------------------------------------------------


def _activity(figures: Figures) -> Markup:
    activity = figures.activity
    if activity is None:
        return NOTHING
    if not activity.buckets:
        words = "No record has a time." if figures.total.records else "There are no records."
        return section("Activity", "Records and bytes over time.", empty(words))
    end = activity.start + activity.buckets * activity.width
    per = plots.width_in_words(activity.width)
    says = f"{units.moment(activity.start)} to {units.moment(end)} UTC, a bar for each {per}." + _outside(activity)
    key = element("ul", [_key(colour, series.name) for series, colour in plots.coloured(activity)], class_="legend")
    return section(
        "Activity",
        says,
        element("h3", f"Records per {per}"),
        plots.activity_plot(activity, of_bytes=False),
        element("h3", f"Bytes per {per}"),
        plots.activity_plot(activity, of_bytes=True),
        key,
    )


def _outside(activity: Activity) -> str:
    """What the plots do not show."""
    parts = [
        f"{units.counted(count, 'record')} {where}"
        for count, where in (
            (activity.before, "before"),
            (activity.after, "after"),
            (activity.untimed, "without a time"),
        )
        if count
    ]
    return f" Not shown: {', '.join(parts)}." if parts else ""


def _key(colour: str, name: str | None) -> Markup:
    patch = element("svg", element("rect", width=10, height=10, class_=colour), viewBox="0 0 10 10", aria_hidden="true")
    return element("li", patch, "all others" if name is None else label(name))


def _journals(figures: Figures) -> Markup:
    if not figures.journals:
        return section("Journals", "What was found.", empty("No journal was found."))
    columns = [("Journal", "name"), ("Format", ""), ("Records", "number"), ("Files", "number"), ("Size", "number")]
    columns += [("Share", "bars"), ("Activity", "sparks"), ("First", "time"), ("Last", "time"), ("Damage", "number")]
    colours = _colours(figures)
    rows = [_journal_row(columns, figures, journal, colours.get(journal.name, "rest")) for journal in figures.journals]
    hidden = figures.journal_count - len(figures.journals)
    if hidden > 0:
        rows.append(row(columns, *_other_journals(figures, hidden), look="others"))
    says = "The largest first." if hidden <= 0 else f"The {len(figures.journals)} largest; the others together."
    return section("Journals", says, table(columns, rows))


def _colours(figures: Figures) -> dict[str, str]:
    """The colours that journals have in the plots of activity."""
    if figures.activity is None:
        return {journal.name: f"c{number}" for number, journal in enumerate(figures.journals[: plots.COLOURS])}
    return {series.name: colour for series, colour in plots.coloured(figures.activity) if series.name is not None}


def _journal_row(columns: Sequence[tuple[str, str]], figures: Figures, journal: JournalFigures, colour: str) -> Markup:
    whole = figures.total.size
    part = units.share(journal.size, whole)
    series = figures.activity.series if figures.activity is not None else []
    counts = next((one.records for one in series if one.name == journal.name), [])
    damaged: Content = units.whole(journal.damaged) if journal.damaged else DASH
    if journal.damaged:
        damaged = element("span", units.whole(journal.damaged), class_="badge bad")
    return row(
        columns,
        label(journal.name),
        journal.format or DASH,
        units.whole(journal.records),
        units.whole(journal.files) if journal.files else DASH,
        units.size(journal.size),
        plots.bar(journal.size, whole, colour, describe=part),
        plots.sparkline(counts, colour, describe="records over time"),
        DASH if journal.first is None else units.moment(journal.first),
        DASH if journal.last is None else units.moment(journal.last),
        damaged,
    )


def _other_journals(figures: Figures, hidden: int) -> list[Content]:
    def rest(name: str) -> int:
        of_all: int = getattr(figures.total, name)
        named: int = sum(getattr(journal, name) for journal in figures.journals)
        return of_all - named

    size = max(0, figures.total.size - sum(journal.size for journal in figures.journals))
    bar = plots.bar(size, figures.total.size, "rest", describe=units.share(size, figures.total.size))
    return [
        units.counted(hidden, "other journal"),
        "",
        units.whole(rest("records")),
        units.whole(rest("files")),
        units.size(size),
        bar,
        "",
        "",
        "",
        units.whole(rest("damaged")) if rest("damaged") else DASH,
    ]


def _consumers(figures: Figures) -> Markup:
    if figures.consumers is None:
        return NOTHING
    if not figures.consumers:
        return section("Consumers", "How many records each has not read.", empty("These journals have no consumers."))
    columns = [("Consumer", "name"), ("Journal", "name"), ("Status", ""), ("Offset", "number"), ("Next", "number")]
    columns += [("Lag", "number"), ("", "wide")]
    highest = max(consumer.lag or 0 for consumer in figures.consumers)
    rows = [_consumer_row(columns, consumer, highest) for consumer in figures.consumers]
    count = sum(figures.statuses.values())
    says = "The largest lag first."
    if count > len(rows):
        says = f"The {len(rows)} with the largest lag, of {units.whole(count)}."
    said = [f"{units.whole(number)} {status}" for status, number in figures.statuses.items()]
    return section("Consumers", f"{says} {', '.join(said)}.", table(columns, rows))


def _consumer_row(columns: Sequence[tuple[str, str]], consumer: ConsumerFigures, highest: int) -> Markup:
    look = _STATUSES.get(consumer.status, "")
    reason = consumer.problem
    if consumer.missed:
        reason = f"{units.counted(consumer.missed, 'record')} removed before it read them"
    chip = element(
        "span",
        shown(consumer.status),
        class_=f"badge {look}".rstrip(),
        title=None if reason is None else shown(reason, _LONGEST_REASON),
    )
    shard = [] if consumer.shard is None else [element("span", " / ", label(consumer.shard), class_="part")]
    colour = f"s-{consumer.status}" if consumer.status in ("behind", "overtaken", "ahead") else "rest"
    lag = DASH if consumer.lag is None else units.whole(consumer.lag)
    return row(
        columns,
        label(consumer.consumer),
        [label(consumer.journal), *shard],
        chip,
        DASH if consumer.offset is None else units.whole(consumer.offset),
        DASH if consumer.next is None else units.whole(consumer.next),
        lag,
        plots.bar(consumer.lag or 0, highest, colour, describe=f"lag {lag}"),
    )


def _damage(figures: Figures) -> Markup:
    damage = figures.damage
    if damage is None:
        return NOTHING
    tails = _tails(figures)
    if not damage.count:
        return section("Damage", "Bytes that are not records.", empty("No damage was found.", "good"), tails)
    said = [
        f"{shown(kind)}: {units.counted(count, 'range')}" + (f", {units.size(size)}" if size else "")
        for kind, (count, size) in damage.kinds.items()
    ]
    return section("Damage", "; ".join(said) + ".", _map(damage), _unreadable(damage), _ranges(damage), tails)


def _tails(figures: Figures) -> Markup:
    """Incomplete ends that incremental runs leave for later: they may be completed, or be damage."""
    if not figures.tails:
        return NOTHING
    said = [element("li", shown(tail, _LONGEST_REASON)) for tail in figures.tails[:_MOST_RANGES]]
    hidden = len(figures.tails) - len(said)
    if hidden > 0:
        said.append(element("li", f"and {units.counted(hidden, 'other file')}"))
    return join(element("h3", "Not read yet"), element("ul", said, class_="notes"))


def _map(damage: DamageFigures) -> Markup:
    if not damage.files:
        return NOTHING
    columns = [("File", "name"), ("From its first byte to its last", "strips"), ("Size", "number")]
    columns += [("Ranges", "number"), ("Bytes", "number")]
    rows: list[Content] = [
        row(
            columns,
            [label(file.journal), element("span", " / ", label(file.file), class_="part")],
            plots.strip(file),
            units.size(file.size),
            units.whole(file.count),
            units.size(file.bytes),
        )
        for file in damage.files
    ]
    hidden = damage.file_count - len(damage.files)
    if hidden > 0:
        rest = damage.count - damage.unreadable_count - sum(file.count for file in damage.files)
        cells = (units.counted(hidden, "other file"), "", "", units.whole(rest), "")
        rows.append(row(columns, *cells, look="others"))
    kinds = {found.kind for file in damage.files for found in file.ranges}
    known = [kind for kind in plots.KINDS if kind in kinds]
    key = [_key(plots.kind_class(kind), kind) for kind in (*known, *sorted(kinds - set(known)))]
    return join(table(columns, rows), element("ul", key, class_="legend"))


def _unreadable(damage: DamageFigures) -> Markup:
    if not damage.unreadable:
        return NOTHING
    columns = [("Journal that could not be opened", "name"), ("Why", "reason")]
    rows: list[Content] = [
        row(columns, label(journal), shown(reason, _LONGEST_REASON)) for journal, reason in damage.unreadable
    ]
    hidden = damage.unreadable_count - len(rows)
    if hidden > 0:
        rows.append(row(columns, units.counted(hidden, "other journal"), "", look="others"))
    return join(element("h3", "Not opened"), table(columns, rows))


def _ranges(damage: DamageFigures) -> Markup:
    """The ranges as text, for paper and for readers who cannot use tooltips."""
    found = [(file, one) for file in damage.files for one in file.ranges]
    if not found:
        return NOTHING
    columns = [("File", "name"), ("From", "number"), ("To", "number"), ("Kind", ""), ("Why", "reason")]
    rows = [
        row(
            columns,
            _file_name(file),
            units.whole(one.start),
            units.whole(one.end),
            shown(one.kind),
            shown(one.reason, _LONGEST_REASON) + (f" (and {one.count - 1} more)" if one.count > 1 else ""),
        )
        for file, one in found[:_MOST_RANGES]
    ]
    hidden = len(found) - len(rows)
    words = f"The first {len(rows)} ranges" if hidden > 0 else units.counted(len(rows), "range")
    return element("details", element("summary", f"{words}, in words"), table(columns, rows))


def _file_name(file: DamagedFile) -> Markup:
    return join(label(file.journal), element("span", " / ", label(file.file), class_="part"))


def _tables(figures: Figures) -> Markup:
    if not figures.tables:
        return NOTHING
    columns = [("Table", "name"), ("Rows", "number"), ("Files", "number"), ("Size", "number"), ("", "wide")]
    largest = max(one.bytes or 0 for one in figures.tables)
    rows = [
        row(
            columns,
            label(one.name),
            DASH if one.rows is None else units.whole(one.rows),
            DASH if one.files is None else units.whole(one.files),
            DASH if one.bytes is None else units.size(one.bytes),
            plots.bar(one.bytes or 0, largest, "c0", describe=units.size(one.bytes or 0)),
        )
        for one in figures.tables
    ]
    return section("Tables", "The tables made from the journals.", table(columns, rows))


def _notes(figures: Figures) -> Markup:
    if not figures.notes:
        return NOTHING
    said = [element("li", shown(note, _LONGEST_REASON)) for note in figures.notes]
    return section("Notes", "Other messages of the run.", element("ul", said, class_="notes"))
