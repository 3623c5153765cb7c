"""`--key`, `--grep` and `--where` of `dump`, `tail` and `count`: what they choose, what is not read, wrong use."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logwright import kestrel, sej, versioned
from logwright.arrow import selection
from tests.cli.random_journals import FIRST_NS, KEYS, WORDS, WRITERS, write_sej
from tests.cli.support import assert_one_error_line, run, start
from tests.support.threads import DEADLINE_SECONDS

Row = dict[str, Any]
Truth = bool | None
Condition = tuple[str, Callable[[Row], Truth]]
"""SQL, and the same in Python over a row of columns."""


# --- a naive model ----------------------------------------------------------------------------------------------------


def rows_of(record: dict[str, Any]) -> list[Row]:
    """A record of `dump --json` as rows of the table `records`; bytes are bytes, times nanoseconds."""
    if "initialized" in record:
        return []
    row = {**record, "sequence": record.get("offset")}
    for name in ("key", "value", "data"):
        if isinstance(row.get(name), str):
            row[name] = base64.b64decode(row[name])
    if "operations" not in record:
        return [row]
    found = []
    for operation in record["operations"]:
        images = {name: base64.b64decode(operation[name]) for name in ("before", "after") if name in operation}
        found.append({**row, **operation, **images})
    return found


def decoded(row: Row) -> Any:
    if "o" in row:
        return row["o"]
    try:
        return json.loads(row.get("value") or row.get("data") or b"")
    except ValueError:
        return None


def at(row: Row, path: tuple[str, ...]) -> Any:
    found = decoded(row)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def number_at(row: Row, path: tuple[str, ...]) -> float | None:
    found = at(row, path)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def text_at(row: Row, path: tuple[str, ...]) -> str | None:
    found = at(row, path)
    return found if isinstance(found, str) or found is None else json.dumps(found, separators=(",", ":"))


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "<>": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    ">": lambda a, b: bool(a > b),
    "<=": lambda a, b: bool(a <= b),
    ">=": lambda a, b: bool(a >= b),
}


def compared(sql: str, get: Callable[[Row], Any], operator: str, literal: Any, shown: str) -> Condition:
    def holds(row: Row) -> Truth:
        found = get(row)
        return None if found is None else COMPARISONS[operator](found, literal)

    return f"{sql} {operator} {shown}", holds


def both(one: Condition, other: Condition) -> Condition:
    def holds(row: Row) -> Truth:
        truths = one[1](row), other[1](row)
        return False if False in truths else None if None in truths else True

    return f"({one[0]}) AND ({other[0]})", holds


def either(one: Condition, other: Condition) -> Condition:
    def holds(row: Row) -> Truth:
        truths = one[1](row), other[1](row)
        return True if True in truths else None if None in truths else False

    return f"({one[0]}) OR ({other[0]})", holds


def negated(one: Condition) -> Condition:
    def holds(row: Row) -> Truth:
        truth = one[1](row)
        return None if truth is None else not truth

    return f"NOT ({one[0]})", holds


NUMBERS: dict[str, dict[str, range]] = {
    "sej": {"sequence": range(130), "type": range(5), "position": range(2200), "size": range(20, 90)},
    "shards": {"sequence": range(40), "type": range(5), "position": range(2200)},
    "kestrel": {"position": range(3000), "size": range(90), "xid": range(32)},
    "versioned": {"position": range(4096), "size": range(90)},
    "appendfile": {"segment": range(25), "position": range(1000), "current": range(25)},
    "yeltsin": {"page": range(65566, 65566 + 5 * 65536, 65536), "page_offset": range(99), "free_after": range(9)},
}
TEXTS: dict[str, dict[str, tuple[str, ...]]] = {
    "kestrel": {"op": ("addx", "remove", "confirm_remove"), "queue": ("ada", "chen", "none")},
    "shards": {"shard": ("web.2.000", "web.2.001", "none")},
    "versioned": {"k": KEYS},
    "appendfile": {"kind": ("data", "checkpoint")},
    "yeltsin": {"op": ("allocate", "modify", "end"), "outcome": ("completed", "rolled_back")},
}
PAYLOADS = {"sej": "value", "shards": "value", "kestrel": "data", "appendfile": "data", "versioned": "o"}
PATHS = {"price": ("price",), "item": ("item",), '"in stock"': ("in stock",), "nested.deep": ("nested", "deep")}
TIMES = {"sej": "timestamp", "shards": "timestamp", "versioned": "t"}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@st.composite
def simple_conditions(draw: st.DrawFn, format: str) -> Condition:
    operator = draw(st.sampled_from(list(COMPARISONS)))
    kinds = ["number", "text", *(["field number", "field text"] if format in PAYLOADS else []), "time", "key"]
    kind = draw(st.sampled_from(kinds))
    if kind.startswith("field"):
        name = draw(st.sampled_from(list(PATHS)))
        sql, path = f"{PAYLOADS[format]}.{name}", PATHS[name]
        if kind == "field number":
            number = draw(st.integers(-6, 6) | st.integers(-50, 50).map(lambda n: n / 4))
            return compared(sql, lambda row: number_at(row, path), operator, number, str(number))
        text = draw(st.sampled_from([*WORDS, "3", "-1"]))
        return compared(sql, lambda row: text_at(row, path), operator, text, quoted(text))
    if kind == "key" and format in ("sej", "shards"):
        key = draw(st.sampled_from([key for key in KEYS if key.isascii()]))
        return compared("key", lambda row: row["key"], operator, key.encode(), quoted(key))
    if kind == "time" and format in TIMES:
        time = draw(st.integers(FIRST_NS - 10**9, FIRST_NS + 130 * 10**9))
        column, name = {"timestamp": "timestamp_ns"}.get(TIMES[format], TIMES[format]), TIMES[format]
        return compared(column, lambda row: row[name], operator, time, str(time))
    if kind == "text" and format in TEXTS:
        name = draw(st.sampled_from(list(TEXTS[format])))
        text = draw(st.sampled_from(TEXTS[format][name]))
        return compared(name, lambda row: row.get(name), operator, text, quoted(text))
    name = draw(st.sampled_from(list(NUMBERS[format])))
    number = draw(st.sampled_from(NUMBERS[format][name]))
    return compared(name, lambda row: row.get(name), operator, number, str(number))


def conditions(format: str) -> st.SearchStrategy[Condition]:
    return st.recursive(
        simple_conditions(format),
        lambda inner: st.builds(both, inner, inner) | st.builds(either, inner, inner) | inner.map(negated),
        max_leaves=4,
    )


PATTERNS = ("gear", "^ada$", "g.*r", "größe", "[0-9]{2}", "(?i)gear", r"\bbolt\b", "x{40}", "gr..e")
GREPPED = {"sej": ("key", "value"), "shards": ("key", "value"), "yeltsin": ("before", "after")}


def is_found(pattern: str, format: str, row: Row) -> bool:
    """Text is searched by characters, other bytes by bytes."""
    names = {"versioned": ("k", "o")}.get(format, GREPPED.get(format, ("data",)))
    for name in names:
        found = row.get(name)
        if format == "versioned" and name == "o":
            found = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
        if found is None:
            continue
        data = found.encode() if isinstance(found, str) else found
        try:
            if re.search(pattern, data.decode()):
                return True
        except UnicodeDecodeError:
            if re.search(pattern.encode(), data):
                return True
    return False


KEY_COLUMNS = {
    "sej": "key",
    "shards": "key",
    "kestrel": "queue",
    "versioned": "k",
    "appendfile": "segment",
    "yeltsin": "page",
}


def is_of_key(key: str, format: str, row: Row) -> bool:
    found = row.get(KEY_COLUMNS[format])
    return str(found) == key if not isinstance(found, bytes) else found == key.encode()


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One random journal of each format, and its records as `dump --json` prints them."""
    home = tmp_path_factory.mktemp("random")
    for number, (name, write) in enumerate(WRITERS.items()):
        write(home / name, random.Random(number))
    return home


@pytest.mark.parametrize("format", list(WRITERS))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_random_filters_agree_with_a_naive_filter(journals: Path, format: str, data: st.DataObject) -> None:
    path = journals / format
    decode = ["--decode", "json"] if format in ("sej", "shards", "kestrel", "appendfile") else []
    everything = run("dump", path, "--json", *decode).objects
    arguments: list[object] = []
    tests: list[Callable[[Row], Truth]] = []
    if data.draw(st.booleans(), label="where"):
        sql, holds = data.draw(conditions(format))
        arguments += ["--where", sql]
        tests.append(holds)
    if data.draw(st.integers(0, 3)) == 0:
        keys = {"appendfile": ("1", "2", "99"), "yeltsin": ("65566", "1")}.get(format, KEYS)
        key = data.draw(st.sampled_from(keys), label="key")
        arguments += ["--key", key]
        tests.append(lambda row: is_of_key(key, format, row))
    if data.draw(st.integers(0, 3)) == 0:
        pattern = data.draw(st.sampled_from(PATTERNS), label="grep")
        arguments += ["--grep", pattern]
        tests.append(lambda row: is_found(pattern, format, row))
    expected = [
        record for record in everything if not tests or any(all(test(row) for test in tests) for row in rows_of(record))
    ]

    dumped = run("dump", path, "--json", *decode, *arguments)
    assert (dumped.code, dumped.objects) == (0, expected)
    limited = run("dump", path, "--json", *decode, *arguments, "-n", 3)
    assert limited.objects == expected[:3]
    if tests:
        assert run("count", path, *decode, *arguments).out == f"{len(expected)}\n"
        tailed = run("tail", path, "--json", *decode, *arguments, "-n", 5)
        assert tailed.code == 0
        assert all(record in expected for record in tailed.objects)
        if format in ("sej", "appendfile", "yeltsin"):  # one journal, without copies: the last ones are the last ones
            assert tailed.objects == expected[-5:]
        if format != "versioned":
            assert len(tailed.objects) == min(5, len(expected))


# --- what is read, and damage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 10, 500, 1000])
def test_ranges_that_a_condition_excludes_are_not_read(tmp_path: Path, position: int) -> None:
    write_sej(tmp_path, random.Random(1))
    segments = sorted((tmp_path / "jnl").glob("*.jnl"))
    first = int(segments[2].stem, 16)
    with segments[0].open("r+b") as file:
        file.seek(position)
        file.write(b"\xff" * 200)

    kept = run("dump", tmp_path, "--where", f"sequence >= {first}", "--json")
    assert (kept.code, [record["offset"] for record in kept.objects]) == (0, list(range(first, 120)))
    assert run("dump", tmp_path, "--where", f"timestamp_ns >= {FIRST_NS + 60 * 10**9}").code == 0

    damaged = run("dump", tmp_path, "--where", "type >= 0", "--json")
    assert damaged.code == 1
    assert damaged.err.startswith("logwright: error: ")


@pytest.mark.parametrize("position", [0, 1900])
def test_damage_that_may_hide_matching_times_is_reported_by_the_mode(tmp_path: Path, position: int) -> None:
    """The index is not trusted if the end of its segment is damaged: any time may have been there."""
    write_sej(tmp_path, random.Random(1))
    segment = min((tmp_path / "jnl").glob("*.jnl"))
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(b"\xff" * (segment.stat().st_size - position))
    condition = ["--where", f"timestamp_ns >= {FIRST_NS + 60 * 10**9}"]

    stopped = run("dump", tmp_path, "--json", *condition)
    assert (stopped.code, stopped.objects) == (1, [])
    assert_one_error_line(stopped, 1, segment.name)
    damage, *shown = run("dump", tmp_path, "--json", *condition, "--mode", "permissive").objects
    assert damage["file"] == f"jnl/{segment.name}"
    skipped = run("dump", tmp_path, "--json", *condition, "--mode", "dropmalformed")
    assert (skipped.code, skipped.objects) == (1, shown)
    assert len(shown) == 54


def test_damage_in_the_range_behaves_by_mode(demo: Path) -> None:
    records = run("dump", demo / "damaged", "--json", "--mode", "permissive").objects
    matching = [record for record in records if record.get("type", 1) == 1]
    shown = run("dump", demo / "damaged", "--json", "--mode", "permissive", "--where", "type = 1")
    assert (shown.code, shown.objects) == (1, matching)
    skipped = run("dump", demo / "damaged", "--json", "--mode", "dropmalformed", "--where", "type = 1")
    assert (skipped.code, skipped.objects) == (1, [record for record in matching if "damage" not in record])
    stopped = run("dump", demo / "damaged", "--json", "--where", "type = 1")
    assert (stopped.code, stopped.objects) == (
        1,
        matching[: [*map(bool, (r.get("damage") for r in matching))].index(True)],
    )
    counted = run("count", demo / "damaged", "--where", "type = 1")
    assert (counted.code, counted.out) == (1, f"{len(matching) - 1}\n")


@pytest.mark.parametrize(
    "arguments", [["--where", "value.n > 1", "--decode", "json"], ["--key", "b"], ["--grep", "[23]"]]
)
def test_following_prints_only_what_matches(tmp_path: Path, arguments: list[str]) -> None:
    with sej.Writer(tmp_path) as writer:
        writer.append(b'{"n": 0}', key=b"a")
        with start("tail", tmp_path, "-f", "--json", *arguments) as child:
            for number in range(1, 4):
                writer.append(b'{"n": %d}' % number, key=b"a" if number == 1 else b"b", timestamp=number)
            writer.sync()
            found = [json.loads(child.line()) for _ in range(2)]
    assert [record["timestamp"] for record in found] == [2, 3]


def test_following_queues_prints_only_what_matches(tmp_path: Path) -> None:
    with kestrel.Writer(tmp_path / "one") as one, kestrel.Writer(tmp_path / "two") as two:
        one.addx(b"a")
        two.addx(b"b")
        with start("tail", tmp_path, "-f", "--json", "--key", "two", "--grep", "c|d") as child:
            for data in (b"c", b"x", b"d"):
                one.addx(data)
                two.addx(data)
            one.flush()
            two.flush()
            found = [json.loads(child.line()) for _ in range(2)]
    assert [(record["queue"], base64.b64decode(record["data"])) for record in found] == [("two", b"c"), ("two", b"d")]


# --- interrupts -------------------------------------------------------------------------------------------------------

ENDLESS = "(SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE a.range % 7 = b.range) = 1"
"""A condition that DuckDB evaluates for hours."""


@pytest.mark.parametrize("verb", ["dump", "tail", "count"])
def test_interrupt_ends_a_condition_at_once(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The signal is sent when DuckDB runs, by the processor time of its thread."""
    monkeypatch.chdir(tmp_path)
    clock = time.pthread_getcpuclockid(threading.get_ident())
    begun = threading.Event()
    run_query = selection._Condition._run

    def running(condition: Any, data: Any) -> Any:
        begun.set()
        return run_query(condition, data)

    def interrupt() -> None:
        assert begun.wait(DEADLINE_SECONDS)
        before = time.clock_gettime_ns(clock)
        while time.clock_gettime_ns(clock) < before + 300_000_000:
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(selection._Condition, "_run", running)
    thread = threading.Thread(target=interrupt)
    thread.start()
    outcome = run(verb, samples / "orders", "--where", ENDLESS)
    thread.join()
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")
    assert list(tmp_path.iterdir()) == []


def test_interrupt_ends_dump_while_it_prints(samples: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logwright", "dump", str(samples / "orders"), "--json", "--where", "type >= 0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:  # which waits for its output to be read
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, error) == (130, "")
    assert list(tmp_path.iterdir()) == []


# --- wrong use --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--where", "nothing = 1"], ('"nothing" not found', "the columns are offset, timestamp, timestamp_ns, type")),
        (["--where", "type = "], ("--where: syntax error",)),
        (["--where", ""], ("--where: the condition is empty",)),
        (["--where", "1); SELECT (1"], ("--where: ",)),
        (["--where", "offset > 3"], ("write sequence",)),
        (["--where", "value.price > 1"], ("value is bytes", "--decode json")),
        (["--where", "key.price > 1"], ("Cannot extract field",)),
        (["--where", "sum(type) > 1"], ("--where: WHERE clause cannot contain aggregates",)),
        (["--where", "exists (SELECT 1 FROM read_text('/etc/passwd'))"], ("--where: ",)),
        (["--where", "key LIKE 'a%'"], ("decode(key) is text",)),
        (["--where", "timestamp > '2 hours ago'"], ("write now() - INTERVAL 2 HOURS",)),
        (["--where", "decode(value)::INT > 1"], ("--where: Could not convert",)),
        (["--grep", "(("], ("is not a regular expression",)),
    ],
)
@pytest.mark.parametrize("verb", ["dump", "tail", "count"])
def test_wrong_condition_is_one_line(samples: Path, verb: str, arguments: list[str], words: tuple[str, ...]) -> None:
    assert_one_error_line(run(verb, samples / "orders", *arguments), 2, *words)


@pytest.mark.parametrize("verb", ["dump", "tail", "count", "stats"])
def test_directory_of_journals_names_them(samples: Path, verb: str) -> None:
    words = ("is not a journal, but has journals in it: damaged, events, ", "; give the path of one")
    assert_one_error_line(run(verb, samples), 2, *words)


def test_directory_that_could_be_two_formats_asks_for_one(tmp_path: Path) -> None:
    with kestrel.Writer(tmp_path / "cars") as writer:
        writer.addx(b"a")
    with versioned.VersionedKVStore(tmp_path, "one") as store:
        store.insert("a", 1)
    assert_one_error_line(run("count", tmp_path), 2, "could be several formats: name one with --format")


def test_key_of_a_number_must_be_one(samples: Path) -> None:
    assert_one_error_line(run("dump", samples / "pages", "--key", "x"), 2, "the column page, a number, and not 'x'")


def test_hostile_name_of_a_journal_is_not_sql(tmp_path: Path) -> None:
    name = "'; DROP TABLE records; --"
    with kestrel.Writer(tmp_path / name) as writer:
        writer.addx(b"a")
    outcome = run("dump", tmp_path / name, "--where", "op = 'addx'", "--json")
    assert (outcome.code, outcome.object["file"]) == (0, name)
    chosen = run("count", tmp_path / name, "--key", name)
    assert (chosen.code, chosen.out) == (0, "1\n")


IDS = [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**64 - 1, 10**30 + 1, 10**30, 10**300, 1.5, 7, True, "7"]


@pytest.mark.parametrize("operator", list(COMPARISONS))
def test_whole_numbers_of_fields_compare_exactly(tmp_path: Path, operator: str) -> None:
    numbers = [(each, offset) for offset, each in enumerate(IDS) if not isinstance(each, str | bool)]
    with sej.Writer(tmp_path) as writer:
        for each in IDS:
            writer.append(json.dumps({"id": each}).encode())
    for number in (7, 2**53, 2**53 + 1, -(2**53) - 1, 2**64 - 1, 2**64, 10**30 + 1, 10**45):
        found = run("dump", tmp_path, "--decode", "json", "--where", f"value.id {operator} {number}", "--json").objects
        expected = [offset for each, offset in numbers if COMPARISONS[operator](each, number)]
        assert [record["offset"] for record in found] == expected


@pytest.mark.parametrize(
    ("condition", "offsets"),
    [
        (f"value.id BETWEEN {2**53 + 1} AND {2**53 + 1}", [1]),
        (f"value.id IN (1, {2**53 + 1})", [1]),
        (f"value.id NOT IN (1, {2**53 + 1})", [0, 2]),
        ("value.id = timestamp_ns", [0, 1, 2]),
        ("value.id < value.next", [0, 1]),
        (f"NOT (value.id <= {2**53})", [1]),
        (f"value.id = {2**53 + 1} OR sequence = 0", [0, 1]),
        ("value.id > 1.5", [0, 1, 2]),
    ],
)
def test_whole_numbers_compare_exactly_in_every_comparison(tmp_path: Path, condition: str, offsets: list[int]) -> None:
    with sej.Writer(tmp_path) as writer:
        for number, following in ((2**53, 2**53 + 1), (2**53 + 1, 2**53 + 2), (2**53, 2**53)):
            writer.append(b'{"id": %d, "next": %d}' % (number, following), timestamp=number)
    found = run("dump", tmp_path, "--decode", "json", "--where", condition, "--json").objects
    assert [record["offset"] for record in found] == offsets


def test_fields_are_those_of_other_decodings(tmp_path: Path) -> None:
    import msgpack

    with sej.Writer(tmp_path) as writer:
        for number in range(5):
            writer.append(msgpack.packb({"n": number, "ok": number % 2 == 0}))
    found = run("dump", tmp_path, "--decode", "msgpack", "--where", "value.ok AND value.n >= 2", "--json")
    assert [record["offset"] for record in found.objects] == [2, 4]


def test_a_filter_works_while_a_writer_appends(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        done = threading.Event()

        def append() -> None:
            for number in range(2000):
                writer.append(b"%d" % number, type=number % 2)
            writer.sync()
            done.set()

        thread = threading.Thread(target=append)
        thread.start()
        while not done.is_set():
            offsets = [record["offset"] for record in run("dump", tmp_path, "--where", "type = 1", "--json").objects]
            assert offsets == list(range(1, 2 * len(offsets), 2))
        thread.join()
    assert run("count", tmp_path, "--where", "type = 1").out == "1000\n"
