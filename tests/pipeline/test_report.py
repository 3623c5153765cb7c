"""The report: one page that says what the figures are, needs nothing else, and takes no name for markup."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from logwright.pipeline.report import figures, plots, units
from logwright.pipeline.report.figures import (
    Activity,
    ConsumerFigures,
    DamagedFile,
    DamageFigures,
    Figures,
    JournalFigures,
    QueueFigures,
    Range,
    Series,
    TableFigures,
)
from logwright.pipeline.report.markup import Markup, element, label, shown
from logwright.pipeline.report.page import render_report, write_report
from logwright.pipeline.report.reducing import PageRow, SegmentRow, StoreRow
from logwright.pipeline.report.style import STYLE

START = 1_790_000_040
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; background: url(//evil.example)",
    "</style></svg></title><b>",
    "&lt;b&gt; &amp; &#x3c;",
    "a\x00b\x1b[31m\u202e\n\ud800\udcff",
    "naïve/日本語/مرحبا",
    "x" * 5000,
    "",
]


def sample(names: list[str], buckets: int = 30) -> Figures:
    """Figures of some journals, the first being the largest, with a bit of everything."""
    dice = random.Random(len(names))
    series = [
        Series(name, [dice.randrange(100) for _ in range(buckets)], [dice.randrange(9000) for _ in range(buckets)])
        for name in names[: figures.MOST_JOURNALS]
    ]
    journals = [
        JournalFigures(
            *("sej", one.name or "", sum(one.records), sum(one.bytes), 2, sum(one.bytes) + 9),
            first=START,
            last=START + 60 * buckets,
            damaged=number % 2,
        )
        for number, one in enumerate(series)
    ]
    total = JournalFigures("", "", 10**7 + 1, 10**9, 2 * len(names), 10**9 + 9, START, START + 60 * buckets, 5, 3, 70)
    damage = DamageFigures({"malformed": (3, 60), "odd <kind>": (1, 10)}, file_count=2)
    for number, name in enumerate(names[:2]):
        ranges = [Range(500, 520, "malformed", f"why {name}", 1, 20), Range(900, 990, "odd <kind>", name, 7, 10)]
        damage.files.append(DamagedFile(name, f"jnl/{name}", 1000 * (number + 1), 8, 30, ranges))
    consumers = [ConsumerFigures(name, name, name, 1, 9, 8, 2, "overtaken", name) for name in names[:3]]
    return Figures(
        "/data/journals",
        "/data/tables",
        1_790_001_000.0,
        83.4,
        journals,
        len(names),
        total,
        Activity(START, 60, buckets, series, before=12, untimed=5),
        [TableFigures("events", 1234, 2, 5 << 20), TableFigures("elsewhere", None, None, None)],
        consumers,
        {"overtaken": len(consumers)},
        damage,
        [f"about {name}" for name in names[:2]],
        [QueueFigures(name, name, 7, 1, 2, 12_345) for name in names[:3]],
        5,
    )


def parsed(page: str) -> ElementTree.Element:
    """The page as a tree: it is well-formed XML as well."""
    doctype, _, rest = page.partition("\n")
    assert doctype == "<!DOCTYPE html>"
    return ElementTree.fromstring(rest)


def texts(tree: ElementTree.Element, path: str) -> list[str]:
    return ["".join(found.itertext()) for found in tree.iterfind(path)]


def card(tree: ElementTree.Element, name: str) -> tuple[str, str, str]:
    """The value of a card, what else it says, and how it looks."""
    for found in tree.iterfind(".//nav/a"):
        value, title, more = texts(found, "span")
        if title == name:
            return value, more, found.get("class", "").removeprefix("tile").strip()
    raise AssertionError(f"there is no card {name}")


def section(tree: ElementTree.Element, name: str) -> ElementTree.Element:
    return next(found for found in tree.iterfind(".//section") if texts(found, "h2") == [name])


# --- what it says -----------------------------------------------------------------------------------------------------


def test_header_names_subject_time_and_source() -> None:
    tree = parsed(render_report(sample(["orders", "clicks"])))
    assert texts(tree, "head/title") == ["Journal report: /data/journals"]
    (line,) = texts(tree, ".//p[@class='from']")
    assert line == "From /data/journals into /data/tables, 2026-09-21 14:30 UTC in 1 min 23 s"
    assert card(tree, "Journals") == ("2", "sej", "")
    assert card(tree, "Records") == ("10 M", "10,000,001, 100 B each", "")
    assert card(tree, "Size") == ("954 MiB", "4 files", "")
    assert card(tree, "Time") == ("31 min", "2026-09-21", "")
    assert card(tree, "Damage") == ("4", "70 B in 2 files", "bad")
    assert card(tree, "Consumers") == ("2", "2 in trouble", "bad")


def test_problems_and_lag_come_first_with_the_command_that_helps() -> None:
    figures = sample(["orders", "clicks"])
    figures.consumers = [
        ConsumerFigures("a b", None, "billing", 0, 5000, 5000, 0, "behind", None),
        ConsumerFigures("orders", None, "mail", 0, 9, 9, 0, "behind", None),
    ]
    figures.journals.append(JournalFigures("sej", "a b", 5000, 1, 1, 1))
    tree = parsed(render_report(figures))
    assert texts(tree, ".//section/h2")[:4] == ["Needs attention", "Damage", "Consumers", "Activity"]
    problems = tree.findall(".//li[@class]")
    assert [found.get("class") for found in problems] == ["problem bad", "problem bad", "problem warn"]
    assert texts(problems[0], "p") == ["jnl/orders: 8 damaged ranges, 30 B"]
    assert texts(problems[2], "p") == ["consumer billing is 5,000 records behind"]
    assert [texts(found, "span/code")[0] for found in (problems[0], problems[2])] == [
        "logwright repair --plan /data/journals/orders",
        "logwright offsets '/data/journals/a b'",
    ]


def test_tiles_lead_to_their_sections() -> None:
    tree = parsed(render_report(sample(["orders", "clicks"])))
    anchors = {found.get("id") for found in tree.iter("section")}
    links = [found.get("href", "").removeprefix("#") for found in tree.iterfind(".//nav/a")]
    assert links == ["damage", "consumers", "journals", "activity", "journals", "activity"]
    assert set(links) <= anchors


def test_style_is_that_of_the_page() -> None:
    static = Path(__file__).resolve().parents[2] / "src" / "logwright" / "web" / "static"
    assert STYLE.startswith((static / "style.css").read_text())


def test_activity_is_drawn_to_scale_with_its_numbers() -> None:
    activity = Activity(START, 60, 3, [Series("a", [10, 0, 30], [1, 0, 3]), Series("b", [5, 0, 10], [2, 0, 2])])
    tree = ElementTree.fromstring(plots.activity_plot(activity, of_bytes=False))
    a, b = (found.get("d", "") for found in tree.iterfind("svg/path"))
    assert [found.get("class") for found in tree.iterfind("svg/path")] == ["c0", "c1"]
    tops = [float(match) for match in re.findall(r"M[\d.]+ ([\d.]+)", a + b)]
    base, scale = 180.0, (180 - 12) / 40
    assert tops == [pytest.approx(base - count * scale, abs=0.1) for count in (10, 30, 15, 40)]
    said = texts(tree, "svg/rect/title")
    assert said == [
        "2026-09-21 14:14 UTC: 15\na: 10\nb: 5",
        "2026-09-21 14:16 UTC: 40\na: 30\nb: 10",
    ]
    axis = texts(tree, "text")
    assert axis[:5] == ["0", "10", "20", "30", "40"]
    assert axis[5:] == ["14:14", "14:15", "14:16", "14:17"]


def test_only_a_limited_number_of_journals_have_a_colour() -> None:
    names = [f"j{number}" for number in range(12)]
    page = sample(names)
    assert page.activity is not None
    chosen = plots.coloured(page.activity)
    assert [colour for _, colour in chosen] == ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "rest"]
    for bucket in range(page.activity.buckets):
        drawn = sum(one.records[bucket] for one, _ in chosen)
        assert drawn == sum(one.records[bucket] for one in page.activity.series)
    key = texts(section(parsed(render_report(page)), "Activity"), ".//li")
    assert len(key) == 8
    assert key[-1] == "all others"


def test_omitted_data_is_mentioned() -> None:
    activity = section(parsed(render_report(sample(["a"]))), "Activity")
    assert "Not shown: 12 records before, 5 records without a time." in texts(activity, "p")[0]


def test_journals_consumers_and_tables_have_their_rows() -> None:
    tree = parsed(render_report(sample(["orders", "clicks"])))
    rows = [texts(row, "td") for row in section(tree, "Journals").iterfind(".//tbody/tr")]
    assert [row[0] for row in rows] == ["orders", "clicks"]
    assert rows[0][7:] == ["2026-09-21 14:14", "2026-09-21 14:44", "–"]
    assert rows[1][9] == "1"
    rows = [texts(row, "td") for row in section(tree, "Consumers").iterfind(".//tbody/tr")]
    assert rows[0][:6] == ["orders", "orders / orders", "overtaken", "1", "9", "8"]
    rows = [texts(row, "td") for row in section(tree, "Queues").iterfind(".//tbody/tr")]
    assert rows[0][:6] == ["orders", "orders", "7", "1", "2", "12,345"]
    assert texts(section(tree, "Queues"), "p")[0] == "The 2 with most items that are not done, of 5."
    rows = [texts(row, "td") for row in section(tree, "Tables").iterfind(".//tbody/tr")]
    assert [row[:4] for row in rows] == [["events", "1,234", "2", "5 MiB"], ["elsewhere", "–", "–", "–"]]
    assert texts(section(tree, "Notes"), ".//li") == ["about orders", "about clicks"]


def test_stores_have_rows_and_unknown_values_are_dashes() -> None:
    stores = [StoreRow("shop", "cars <b>", 1000, 20, 7), StoreRow("shop", "bikes", keys=3)]
    tree = parsed(render_report(replace(sample(["a"]), stores=stores, store_count=9)))
    found = section(tree, "Stores")
    assert "The 2 with most keys, of 9." in texts(found, ".//p")
    rows = [["".join(cell.itertext()) for cell in row.iter("td")][:5] for row in found.iter("tr")][1:]
    assert rows == [["cars <b>", "shop", "1,000", "20", "7"], ["bikes", "shop", "–", "–", "3"]]


def test_segments_and_pages_have_rows_and_empty_chapters_are_omitted() -> None:
    figures = replace(
        sample(["a"]),
        segmented=[SegmentRow("re<b>", 12, 11, 9, 1000, 5 << 20)],
        segmented_count=1,
        paged=[
            PageRow("base", "j<rnl", {"completed": 1000, "incomplete": 1}, 4096, 7, 2000, 3),
            PageRow("base", "b", pages=1, versions=2, removals=0),
        ],
        paged_count=40,
    )
    tree = parsed(render_report(figures))
    rows = [texts(found, "td") for found in section(tree, "Segments").iterfind(".//tbody/tr")]
    assert [one[:7] for one in rows] == [["re<b>", "12", "9", "3", "1", "1,000", "5 MiB"]]
    rows = [texts(found, "td") for found in section(tree, "Pages").iterfind(".//tbody/tr")]
    assert [one[:8] for one in rows] == [
        ["base / j<rnl", "1,000", "0", "1", "4 KiB", "7", "2,000", "3"],
        ["base / b", "–", "–", "–", "–", "1", "2", "0"],
    ]
    assert texts(section(tree, "Pages"), "p")[0] == "The 2 with most transactions, of 40."
    without = parsed(render_report(replace(figures, segmented=[], paged=None)))
    assert not {"Segments", "Pages"} & set(texts(without, ".//section/h2"))


def test_bars_are_proportional_and_never_invisible() -> None:
    def width(part: float, of: float) -> str | None:
        shapes = ElementTree.fromstring(plots.bar(part, of, "c0", describe="")).findall("rect")
        return shapes[1].get("width") if len(shapes) > 1 else None

    assert [width(50, 100), width(100, 100), width(0, 100), width(1, 10**9), width(0, 0)] == [
        "100",
        "200",
        None,
        "1.5",
        None,
    ]


def test_every_kind_of_damage_in_the_key_has_a_colour() -> None:
    assert [kind for kind in plots.KINDS if f".k-{kind} {{ fill: var(--" not in STYLE] == []
    assert [plots.kind_class(kind) for kind in ("truncated", "link")] == ["k-truncated", "k-other"]


def test_map_shows_the_position_of_damage_in_a_file() -> None:
    ranges = [
        Range(0, 0, "gap", "3 records are missing", 1, 0),
        Range(500, 750, "malformed", "size -1 <is> wrong", 1, 250),
        Range(999, 1000, "torn_tail", "cut", 4, 40),
    ]
    tree = ElementTree.fromstring(plots.strip(DamagedFile("a", "f", 1000, 6, 290, ranges)))
    track, *found = tree.findall("rect")
    assert track.get("width") == "640"
    assert [(rect.get("x"), rect.get("width"), rect.get("class")) for rect in found] == [
        ("0", "2", "k-gap"),
        ("320", "160", "k-malformed"),
        ("638", "2", "k-torn_tail"),
    ]
    assert texts(tree, "rect/title") == [
        "gap @ 0, 0 bytes: 3 records are missing",
        "malformed @ 500, 250 bytes: size -1 <is> wrong",
        "torn_tail @ 999 to 1,000: 4 ranges, 40 B; the first: cut",
    ]


def test_journals_that_could_not_be_opened_are_listed() -> None:
    damage = DamageFigures({"unreadable": (60, 0)}, unreadable=[("a", "denied"), ("b", "gone")], unreadable_count=60)
    tree = parsed(render_report(replace(sample(["a"]), damage=damage)))
    rows = [texts(row, "td") for row in section(tree, "Damage").iterfind(".//tbody/tr")]
    assert rows == [["a", "denied"], ["b", "gone"], ["58 other journals", ""]]
    assert card(tree, "Damage") == ("60", "60 journals not opened", "bad")


def test_torn_tails_alone_are_a_warning() -> None:
    damage = DamageFigures({"torn_tail": (1, 7)}, file_count=1)
    tree = parsed(render_report(replace(sample(["a"]), damage=damage)))
    assert card(tree, "Damage") == ("1", "7 B in 1 file", "warn")


# --- when there is little, or much ------------------------------------------------------------------------------------


def test_empty_report_says_so() -> None:
    tree = parsed(render_report(Figures("/data", "/out", 0.0)))
    assert texts(tree, ".//section/h2") == ["Journals"]
    assert texts(tree, ".//p[@class='notice']") == ["No journal was found."]


def test_absence_of_damage_consumers_and_times_is_stated() -> None:
    total = JournalFigures("", "", 5, 50, 1, 50, untimed=5)
    page = replace(
        sample(["a"]), total=total, activity=Activity(untimed=5), damage=DamageFigures(), consumers=[], statuses={}
    )
    tree = parsed(render_report(page))
    assert texts(section(tree, "Damage"), "p[@class='notice good']") == ["No damage was found."]
    assert texts(section(tree, "Consumers"), "p[@class='notice']") == ["These journals have no consumers."]
    assert texts(section(tree, "Activity"), "p[@class='notice']") == ["No record has a time."]
    assert card(tree, "Damage") == ("none", "all bytes are records", "good")
    page = replace(page, total=JournalFigures("", ""), activity=Activity())
    assert texts(section(parsed(render_report(page)), "Activity"), "p[@class='notice']") == ["There are no records."]


def test_unread_tails_are_listed_and_prevent_the_verdict_sound() -> None:
    tails = [f"a: jnl/{number} @ 7: 3 bytes at the end are not a complete record" for number in range(62)]
    tree = parsed(render_report(replace(sample(["a"]), damage=DamageFigures(), tails=tails[:2])))
    assert card(tree, "Damage") == ("none", "2 files with an incomplete end", "warn")
    assert texts(section(tree, "Damage"), "ul[@class='notes']/li") == tails[:2]
    many = texts(section(parsed(render_report(replace(sample(["a"]), tails=tails))), "Damage"), "ul[@class='notes']/li")
    assert many == [*tails[:60], "and 2 other files"]


def test_a_single_record_is_a_bar_in_the_middle() -> None:
    tree = ElementTree.fromstring(
        plots.activity_plot(Activity(START, 60, 1, [Series("a", [1], [100])]), of_bytes=False)
    )
    (path,) = (found.get("d", "") for found in tree.iterfind("svg/path"))
    x, width = (float(number) for number in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)", path)[0])
    assert x + width / 2 == pytest.approx(500, abs=0.1)


def test_five_hundred_journals_are_shown_as_forty_and_a_sum() -> None:
    names = [f"journal {number:03}" for number in range(500)]
    page = sample(names, buckets=figures.MOST_BUCKETS)
    tree = parsed(render_report(page))
    rows = [texts(row, "td") for row in section(tree, "Journals").iterfind(".//tbody/tr")]
    assert len(rows) == figures.MOST_JOURNALS + 1
    assert rows[-1][0] == "460 other journals"
    assert rows[-1][2] == units.whole(10**7 + 1 - sum(journal.records for journal in page.journals))
    assert texts(section(tree, "Journals"), "p")[0] == "The 40 largest; the others together."


def test_the_page_is_of_bounded_size() -> None:
    page = sample([f"{number} " + "<" * 500 for number in range(500)], buckets=figures.MOST_BUCKETS)
    ranges = [Range(n, n + 1, "malformed", "&" * 9999, 1, 1) for n in range(figures.MOST_RANGES_OF_A_FILE)]
    files = [DamagedFile("<" * 9999, "<" * 9999, 300, 300, 300, ranges)] * figures.MOST_DAMAGED_FILES
    page.damage = DamageFigures({"malformed": (10**9, 10**12)}, files, 10**6)
    assert len(render_report(page)) < 16 << 20


@pytest.mark.parametrize("start", [-(10**13), -62_135_596_860, 0, 253_402_300_740, 10**13])
@pytest.mark.parametrize("width", [60, 86400, 365 * 86400, 1 << 40])
def test_times_beyond_the_calendar_are_drawn(start: int, width: int) -> None:
    activity = Activity(start, width, 2, [Series("a", [1, 2], [3, 4])])
    page = replace(sample(["a"]), activity=activity)
    page.total.first, page.total.last = start, start + width
    tree = parsed(render_report(page))
    assert len(section(tree, "Activity").findall("svg")) == 2


# --- names are text ---------------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Everything that a browser would find in a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_page_has_the_same_elements_for_any_journal_names() -> None:
    plain = Elements(render_report(sample([f"name {number}" for number in range(len(HOSTILE))])))
    page = render_report(sample(HOSTILE))
    found = Elements(page)
    assert found.tags == plain.tags
    assert found.attributes == plain.attributes
    assert not found.tags & {"script", "img", "link", "iframe", "object", "embed", "base", "form"}
    tree = parsed(page)
    names = texts(section(tree, "Journals"), ".//tbody/tr/td[1]")
    assert names[:5] == HOSTILE[:5]
    assert names[5] == r"a\x00b\x1b[31m\u202e\n\ud800\udcff"
    assert names[6] == HOSTILE[6]
    assert len(names[7]) == 64
    for place in ("/data", "from <b>"):
        assert parsed(render_report(replace(sample(["a"]), source=place, out=place))) is not None


def test_page_loads_no_external_resources() -> None:
    page = render_report(sample(["orders", "clicks"]))
    assert "http://" not in page
    assert "https://" not in page
    links = [found.get("href", "") for found in parsed(page).iter("a")]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not {"src", "xlink:href", "onload", "onclick", "srcset", "data"} & Elements(page).attributes
    assert "url(" not in page
    assert "@import" not in page
    (policy,) = (
        found.get("content") for found in parsed(page).iterfind(".//meta[@http-equiv='Content-Security-Policy']")
    )
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_secrets_of_a_uri_are_not_shown() -> None:
    source = "s3://key:secret@bucket/journals?endpoint_override=host:9000"
    page = render_report(replace(sample(["a"]), source=source, out="s3://other:word@bucket/x"))
    assert "From s3://bucket/journals into s3://bucket/x" in texts(parsed(page), ".//p[@class='from']")[0]
    shown_text = page.replace(STYLE, "")
    for secret in ("secret", "key:", "9000", "word@"):
        assert secret not in shown_text


def test_elements_escape_all_but_markup() -> None:
    made = element("p", "a < b & c", Markup("<b>d</b>"), ["e", Markup("f")], class_='"x"', data_y=1.50, z=None)
    assert made == '<p class="&quot;x&quot;" data-y="1.5">a &lt; b &amp; c<b>d</b>ef</p>'
    assert element("rect", width=3.14159) == '<rect width="3.14"/>'
    assert shown("abcdefgh", 5) == "ab…gh"
    assert label("<i>") == "<bdi>&lt;i&gt;</bdi>"


# --- units ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (units.whole(1234567), "1,234,567"),
        (units.short(950), "950"),
        (units.short(999.6), "1 k"),
        (units.short(1234), "1.23 k"),
        (units.short(35_000_000), "35 M"),
        (units.size(0), "0 B"),
        (units.size(1536), "1.5 KiB"),
        (units.size(1 << 63), "8 EiB"),
        (units.counted(1, "journal"), "1 journal"),
        (units.counted(2000, "journal"), "2,000 journals"),
        (units.share(1, 3), "33 %"),
        (units.share(1, 10**6), "< 0.1 %"),
        (units.share(0, 0), "0 %"),
        (units.duration(0.42), "0.4 s"),
        (units.duration(9.99), "10 s"),
        (units.duration(3600), "1 h"),
        (units.duration(90_061), "1 d 1 h"),
        (units.moment(0), "1970-01-01 00:00"),
        (units.moment(-1), "1969-12-31 23:59"),
        (units.moment(10**13), "year 318857"),
        (plots.width_in_words(60), "minute"),
        (plots.width_in_words(7 * 86400), "7 days"),
    ],
)
def test_numbers_are_formatted_for_people(made: str, words: str) -> None:
    assert made == words


def test_ticks_of_time_are_round_few_and_within() -> None:
    dice = random.Random("ticks")
    for _ in range(500):
        start = dice.randrange(-(10**11), 10**11) // 60 * 60
        end = start + int(10 ** dice.uniform(2, 11)) // 60 * 60 + 60
        ticks = units.time_ticks(start, end, 9)
        places = [at for at, _, _ in ticks]
        assert len(ticks) <= 11
        assert places == sorted(set(places))
        assert all(start <= at <= end for at in places)
        assert all(words for _, words, _ in ticks)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (0, 3600, ["1 Jan", "00:10", "00:20", "00:30", "00:40", "00:50", "01:00"]),
        (0, 3 * 86400, ["1 Jan", "12:00", "2 Jan", "12:00", "3 Jan", "12:00", "4 Jan"]),
        (1704067200, 1704067200 + 40 * 86400, ["2024", "8 Jan", "15 Jan", "22 Jan", "29 Jan", "5 Feb"]),
        (1704067200, 1704067200 + 366 * 86400, ["2024", "Mar", "May", "Jul", "Sep", "Nov", "2025"]),
        (0, 1_790_000_000, ["1970", "1980", "1990", "2000", "2010", "2020"]),
    ],
)
def test_ticks_of_time_are_natural_units(start: int, end: int, words: list[str]) -> None:
    assert [text for _, text, _ in units.time_ticks(start, end, 9)] == words


@pytest.mark.parametrize("binary", [False, True])
def test_ticks_of_numbers_reach_the_highest_in_even_steps(binary: bool) -> None:
    dice = random.Random("numbers")
    for _ in range(500):
        highest = int(10 ** dice.uniform(0, 15))
        ticks = units.number_ticks(highest, 5, binary=binary)
        assert ticks[0] == 0
        assert ticks[-2] < highest <= ticks[-1] * 1.000001
        assert 2 <= len(ticks) <= 7
        assert all(tick == pytest.approx(ticks[1] * number) for number, tick in enumerate(ticks))
    assert units.number_ticks(0, 5) == [0, 1]


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("an older one")
    page: Any = sample(["naïve"])
    size = write_report(path, page)
    assert path.read_text(encoding="utf-8") == render_report(page)
    assert path.stat().st_size == size
    assert list(tmp_path.iterdir()) == [path]
