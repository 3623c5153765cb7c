"""Misuse of a store: wrong types, times at the edge, odd names, huge and endless values, bombs.

Any misuse raises one of our errors (or a `TypeError`, where a dictionary would raise one), and the store is unchanged
and stays usable.
"""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import CapacityExceeded, LogwrightError, WrongUse
from logwright.versioned.bytes.layout import MAX_TIMESTAMP
from logwright.versioned.bytes.records import Entry
from logwright.versioned.files.files import archive_name
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.retention import Retention
from logwright.versioned.model.store import VersionedKVStore
from tests.versioned.samples import START, journal, with_position
from tests.versioned.stores import Clock, content_of, journals_of


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def opened(path: Path, **options: Any) -> VersionedKVStore:
    return VersionedKVStore(path, "cars", **options)


def _kind(value: object) -> str:
    """The name of a test: nothing that differs between two processes."""
    return type(value).__name__


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        *({"capacity": value} for value in ("1000", 1.5, None, True, -1, 0, 127, 2**70)),
        *({"max_capacity": value} for value in ("1000", 1.5, True, 0, 2**70)),
        *({"high_water_mark": value} for value in ("1", None, float("nan"), -1, 0)),
        *({"sync": value} for value in (5, None, b"none", "interval(0)", "interval(x)")),
        *({"retention": value} for value in (5, None, "all", Retention)),
        *({"clock": value} for value in (5, "now")),
    ],
    ids=str,
)
def test_option_of_a_wrong_type_is_refused_and_nothing_is_created(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(WrongUse):
        opened(tmp_path, **options)
    assert not list(tmp_path.glob("*.jrn*"))
    opened(tmp_path).close()


@pytest.mark.parametrize("time", [-1, 2**64, 1.5, "now", None, True])
def test_clock_that_returns_no_time_is_refused_and_nothing_is_created(tmp_path: Path, time: Any) -> None:
    with pytest.raises(WrongUse, match="clock"):
        opened(tmp_path, clock=lambda: time)
    assert not list(tmp_path.glob("*.jrn*"))
    opened(tmp_path).close()


@pytest.mark.parametrize("limit", ["max_age_seconds", "max_archives", "max_bytes", "window_seconds"])
@pytest.mark.parametrize("value", ["1", -1, float("inf"), float("nan"), True, [1]], ids=repr)
def test_limit_of_a_wrong_type_is_refused(limit: str, value: Any) -> None:
    with pytest.raises(WrongUse, match=limit):
        Retention(**{limit: value})


def test_archive_and_byte_limits_are_integers_and_the_window_is_never_none() -> None:
    for options in ({"max_archives": 1.5}, {"max_bytes": 10.0}, {"window_seconds": None}):
        with pytest.raises(WrongUse):
            Retention(**options)


@pytest.mark.parametrize("name", [5, None, b"cars", "\ud800", "a/\ud800", "x" * 300])
def test_invalid_file_name_is_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(LogwrightError):
        VersionedKVStore(tmp_path, name)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "name", ["a\nb", "ü𝄞", "\udcff", " ", "a.jrn.old", "a.jrn.t5.zz", "-", "a" * 200, "%s"], ids=ascii
)
def test_name_with_odd_characters_is_a_name(tmp_path: Path, name: str) -> None:
    with VersionedKVStore(tmp_path, name) as store, VersionedKVStore(tmp_path, "a") as other:
        store.insert("k", 1)
        other.insert("k", "of another")
        t = store.rotate()
        other.rotate()
        store.insert("k", 2)
    with VersionedKVStore(tmp_path, name) as store:
        assert dict(store.items()) == {"k": 2}
        recovery = VersionedRecovery.load(tmp_path, store=name)
        assert [recovery.recover_at(t), recovery.recover_current()] == [{"k": 1}, {"k": 2}]


# --- keys and values --------------------------------------------------------------------------------------------------


def nested(kind: Callable[[Any], Any], depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = kind(value)
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(nested(lambda inner: [inner], 100_000), id="lists within lists"),
        pytest.param(nested(lambda inner: {"a": inner}, 100_000), id="objects within objects"),
        pytest.param(endless(), id="a list within itself"),
        *(2**64, -(2**63) - 1, 10**400, float("inf"), b"x", {1: 2}, {"\ud800": 1}, ["\ud800"], object, 1j, iter([])),
        {None: 1},
        {("a",): 1},
    ],
    ids=_kind,
)
def test_unsupported_value_changes_nothing(tmp_path: Path, value: Any) -> None:
    with opened(tmp_path) as store:
        store.insert("k", 1)
        position = store.position
        for key in ("k", "other"):
            with pytest.raises(WrongUse):
                store.insert(key, value)
        assert (store.position, dict(store.items())) == (position, {"k": 1})
        store.insert("k", 2)
    with opened(tmp_path) as store:
        assert dict(store.items()) == {"k": 2}


@pytest.mark.parametrize("key", [[], {}, set(), 5, None, b"k", 1.5, object(), "\ud800", "a\udcffb"], ids=_kind)
def test_invalid_key_is_never_found(tmp_path: Path, key: Any) -> None:
    with opened(tmp_path) as store:
        store.insert("k", 1)
        with pytest.raises(WrongUse):
            store.insert(key, 1)
        questions: list[Callable[[Any], object]] = [
            store.get,
            store.get_with_timestamp,
            store.remove,
            store.__contains__,
        ]
        for ask in questions:
            if isinstance(key, list | dict | set):
                with pytest.raises(TypeError, match="unhashable"):
                    ask(key)
            else:
                assert not ask(key)
        assert dict(store.items()) == {"k": 1}


def test_huge_key_and_value_are_stored_or_refused_completely(tmp_path: Path) -> None:
    with opened(tmp_path, max_capacity=4 << 20) as store:
        store.insert("k" * 1_000_000, "v" * 500_000)
        with pytest.raises(CapacityExceeded):
            store.insert("k" * 3_000_000, "v" * 3_000_000)
        with pytest.raises(CapacityExceeded):
            store.insert("small", [0] * 5_000_000)
        store.insert("small", 1)
        assert len(store) == 2
        store.rotate()
    with opened(tmp_path) as store:
        assert {len(key): value if value == 1 else len(value) for key, value in store.items()} == {
            1_000_000: 500_000,
            5: 1,
        }


# --- times at the edge ------------------------------------------------------------------------------------------------


def at_the_edge(times: Iterable[int]) -> Clock:
    return Clock(start=MAX_TIMESTAMP - 1, times=itertools.chain(times, itertools.repeat(MAX_TIMESTAMP)))


def test_store_at_the_largest_time_rotates_once_more_and_then_grows(tmp_path: Path) -> None:
    clock = at_the_edge([MAX_TIMESTAMP - 1, MAX_TIMESTAMP - 1])
    with opened(tmp_path, capacity=512, max_capacity=1 << 16, clock=clock, background=False) as store:
        assert store.insert("k", "first") == MAX_TIMESTAMP - 1
        assert store.insert("k", "second") == MAX_TIMESTAMP
        assert store.rotate() == MAX_TIMESTAMP
        with pytest.raises(LogwrightError, match="no later time"):
            store.rotate()
        for number in range(100):
            assert store.insert("k", f"{number:040}") == MAX_TIMESTAMP
        assert store.capacity > 4096
        assert store.earliest() == MAX_TIMESTAMP - 1
    with opened(tmp_path, capacity=512, clock=clock) as store:
        assert store.get_with_timestamp("k") == (f"{99:040}", MAX_TIMESTAMP)
        assert store.remove("k") == MAX_TIMESTAMP
    recovery = VersionedRecovery.load(tmp_path)
    assert recovery.recover_at(MAX_TIMESTAMP - 1) == {"k": "first"}
    assert recovery.recover_at(MAX_TIMESTAMP) == recovery.recover_at(MAX_TIMESTAMP + 5) == {}
    assert len(recovery.history("k")) == 103


def test_foreign_archive_of_the_largest_time_does_not_prevent_opening(tmp_path: Path) -> None:
    archive = tmp_path / archive_name("cars", MAX_TIMESTAMP)
    with opened(tmp_path, capacity=512, background=False) as store:
        archive.write_bytes(b"somebody's")
        for number in range(50):
            store.insert("k", f"{number:040}")
    assert archive.read_bytes() == b"somebody's"
    with opened(tmp_path) as store:
        assert store.get("k") == f"{49:040}"


def test_failing_clock_changes_nothing_and_the_store_stays_usable(tmp_path: Path) -> None:
    times: list[Any] = [1000, 1001, "noon", -5, 2**64, 1002]

    def tick() -> Any:
        return times.pop(0) if times else 1003

    with opened(tmp_path, clock=tick) as store:
        store.insert("k", 1)
        for _ in range(3):
            with pytest.raises(WrongUse, match="clock"):
                store.insert("k", 2)
        assert content_of(store) == {"k": (1, 1001)}
        assert store.insert("k", 3) == 1002
    assert [(entry.t, entry.o) for _, entries in journals_of(tmp_path, "cars") for entry in entries] == [
        (1001, 1),
        (1002, 3),
    ]


# --- bombs ------------------------------------------------------------------------------------------------------------

READING = """
import resource, sys
from logwright.errors import DamagedJournal
from logwright.versioned import Reader, VersionedKVStore, VersionedRecovery
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
refused = 0
recovery = VersionedRecovery.load(sys.argv[1])
for ask in (
    recovery.recover_current,
    lambda: recovery.recover_at(int(sys.argv[3])),
    lambda: recovery.history("a"),
    lambda: list(Reader(recovery.files()[0])),
):
    try:
        ask()
    except DamagedJournal as error:
        refused += "250-fold" in str(error)
print(refused, Reader(recovery.files()[0]).verify().sound)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits how much memory is mapped")
@pytest.mark.parametrize("kind", ["a value", "entries", "zeros after the position"])
def test_decompression_bomb_is_refused_with_little_memory(tmp_path: Path, kind: str) -> None:
    head = journal(START, [Entry(START + 1, "a", 1)])
    pieces = zlib.compressobj(9)
    size, piece = 1 << 30, bytes(1 << 20)
    if kind == "a value":
        data = with_position(journal(START, [Entry(START + 1, "a", "x" * 2000)]), 2**33)
        data = data[: data.index(b"x" * 2000)]
        data = data[:-2] + b"\x00" + (2 * size).to_bytes(8, "little")
        piece = b"x" * (1 << 20)
    elif kind == "entries":
        data, entry = with_position(head, 2**33), journal(START, [Entry(START + 1, "a", "x" * 900)])[56:]
        piece = entry * ((1 << 20) // len(entry))
    else:
        data = head
    begun = pieces.compress(data) + pieces.flush(zlib.Z_FULL_FLUSH)
    block = pieces.compress(piece) + pieces.flush(zlib.Z_FULL_FLUSH)  # can be repeated any number of times
    archive = tmp_path / archive_name("cars", START + 9)
    archive.write_bytes(begun + 1100 * block)
    assert archive.stat().st_size < 6 << 20
    limit = 700 << 20  # the interpreter and its libraries are mapped as well
    done = subprocess.run(
        [sys.executable, "-c", READING, archive, str(limit), str(START + 5)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["4", "False"], done.stderr
