"""A store: its results, its errors, and its bytes."""

from __future__ import annotations

import enum
import errno
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.core.io.disk import RealFile
from logwright.errors import CapacityExceeded, Closed, Locked, Poisoned, StorageFailed, WrongUse
from logwright.versioned.bytes import bonjson
from logwright.versioned.files.buffer import CLOSED_MAGIC, MARK_MAGIC, mark_at
from logwright.versioned.model.store import VersionedKVStore
from tests.support.faulty_disk import FaultyDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.versioned.stores import HOME, Clock, content_of, decode_journal, journals_of

MAPPED = COMPILED
SYNCS = ["none", "always", "interval(1)"]


def opened(path: Path, **options: Any) -> VersionedKVStore:
    return VersionedKVStore(path, "cars", **options)


@pytest.mark.parametrize("sync", SYNCS)
def test_example_of_the_contract(tmp_path: Path, sync: str) -> None:
    with VersionedKVStore(tmp_path, "my_store", capacity=1 << 20, high_water_mark=0.8, sync=sync) as store:
        t = store.insert("name", {"any": ["json", 1, None]})
        assert store.get("name") == {"any": ["json", 1, None]}
        assert store.get_with_timestamp("name") == ({"any": ["json", 1, None]}, t)
        assert "name" in store
        assert len(store) == 1
        assert list(store.items()) == [("name", {"any": ["json", 1, None]})]
        store.rotate()
        store.sync()
        removed = store.remove("name")
        assert removed is not None
        assert removed >= t
        assert store.get("name") is None
        assert "name" not in store
        assert len(store) == 0
        assert bool(store)
    with VersionedKVStore(tmp_path, "my_store") as store:
        assert list(store.items()) == []


VALUES: list[Any] = [
    *(0, 1, -1, 100, 101, -101, 2**63, 2**64 - 1, -(2**63), 0.0, -0.0, 1.5, 1e300, True, False),
    *("", "x", "ü€𝄞", "\0", "a" * 15, "a" * 16, "a" * 5000, "\0" * 3000),
    *([], {}, [[]], [None], {"": ""}, {"a": {"b": [1, 2.5, "c", None, True]}}, [0] * 3000, ["x", ["y", ["z"]]]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_every_json_value_round_trips_also_after_opening_and_rotation(tmp_path: Path, value: Any) -> None:
    with opened(tmp_path) as store:
        store.insert("k", value)
        assert repr(store.get("k")) == repr(value)
    with opened(tmp_path) as store:
        assert repr(store.get("k")) == repr(value)
        store.rotate()
        assert repr(store.get("k")) == repr(value)
    with opened(tmp_path) as store:
        store.rotate()
        assert repr(store.get("k")) == repr(value)


@pytest.mark.parametrize("key", ["", "k", "a" * 15, "a" * 16, "ü" * 100, "\0", "𝄞", "x" * 3000])
def test_every_string_is_a_key(tmp_path: Path, key: str) -> None:
    with opened(tmp_path) as store:
        store.insert(key, 1)
        assert store.get(key) == 1
        store.insert("other", key)
    with opened(tmp_path) as store:
        assert dict(store.items()) == {key: 1, "other": key}
        assert store.remove(key) is not None
    with opened(tmp_path) as store:
        assert dict(store.items()) == {"other": key}


def test_other_json_types_become_their_decoded_form(tmp_path: Path) -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Number(int):
        pass

    class Record(dict[str, Any]):
        pass

    values = {"tuple": (1, (2, 3)), "enum": Colour.RED, "number": Number(7), "record": Record(a=[Number(1)])}
    with opened(tmp_path) as store:
        for key, value in values.items():
            store.insert(key, value)
        found = dict(store.items())
        assert found == {"tuple": [1, [2, 3]], "enum": "red", "number": 7, "record": {"a": [1]}}
        assert [type(found["enum"]), type(found["number"]), type(found["record"])] == [str, int, dict]
        store.insert(Colour.RED, 1)
        assert [type(key) for key, value in store.items() if value == 1] == [str]
    with opened(tmp_path) as store:
        assert dict(store.items()) == {**found, "red": 1}


def test_none_is_refused_with_advice(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(WrongUse, match="use remove"):
            store.insert("k", None)
        assert len(store) == 0


@pytest.mark.parametrize("key", [1, None, b"k", ("k",)])
def test_key_that_is_not_a_string_is_refused(tmp_path: Path, key: Any) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(WrongUse, match="a key is a string"):
            store.insert(key, 1)
        assert store.get(key) is None
        assert store.remove(key) is None


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, b"bytes", {"a": {1, 2}}, 2**64, "\ud800", object()])
def test_value_that_is_not_json_is_refused_and_changes_nothing(tmp_path: Path, value: Any) -> None:
    with opened(tmp_path) as store:
        store.insert("k", 1)
        position = store.position
        with pytest.raises(bonjson.EncodeError):
            store.insert("k", value)
        with pytest.raises(WrongUse):
            store.insert("\ud800", 1)
        assert store.get("k") == 1
        assert store.position == position


def test_later_changes_of_a_value_do_not_reach_the_store(tmp_path: Path) -> None:
    value = {"a": [1, {"b": 2}]}
    with opened(tmp_path) as store:
        store.insert("k", value)
        value["a"].append(3)
        value["a"][1]["b"] = 9  # type: ignore[index]
        assert store.get("k") == {"a": [1, {"b": 2}]}
        store.rotate()
        assert store.get("k") == {"a": [1, {"b": 2}]}
    with opened(tmp_path) as store:
        assert store.get("k") == {"a": [1, {"b": 2}]}


def test_changes_of_a_returned_value_never_reach_the_journal(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.insert("k", [1])
        store.get("k").append(2)
        store.rotate()
    with opened(tmp_path) as store:
        assert store.get("k") == [1]


def test_get_has_a_default(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert store.get("k") is None
        assert store.get("k", 5) == 5
        assert store.get_with_timestamp("k") is None
        assert store.remove("k") is None


def test_removing_a_missing_key_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        position = store.position
        assert store.remove("k") is None
        assert store.position == position


def test_times_never_decrease_when_the_clock_does(tmp_path: Path) -> None:
    clock = Clock(times=[1000, 2000, 1500, 1500, 3000, 10])
    with opened(tmp_path, clock=clock) as store:
        assert store.initialized == 1000
        assert [store.insert(key, 1) for key in "abcde"] == [2000, 2000, 2000, 3000, 3000]
    with opened(tmp_path, clock=Clock(times=[5, 6])) as store:
        assert store.insert("f", 1) == 3000
        assert store.rotate() == 3000
    with opened(tmp_path, clock=Clock(times=[7, 8])) as store:
        assert store.insert("g", 1) == 3000


def test_journal_bytes_match_the_contract(tmp_path: Path) -> None:
    with opened(tmp_path, clock=Clock(times=[1000, 1001, 1002]), capacity=256) as store:
        store.insert("key1", "value1")
        store.remove("key1")
    data = (tmp_path / "cars.jrn").read_bytes()
    objects = [{"initialized": 1000, "format_version": 2}, {"t": 1001, "k": "key1", "o": "value1"}]
    body = b"".join(map(bonjson.dumps, [*objects, {"t": 1002, "k": "key1", "o": None}]))
    end = (17 + len(body)).to_bytes(8, "little")
    mark = b"lw-close" + end[:6] + (240 // 16).to_bytes(2, "little")  # the position, and its own place
    assert data == (b"\2" + bytes(7) + end + b"\x99" + body).ljust(240, b"\0") + mark


def test_open_and_closed_stores_have_different_marks(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=1024) as store:
        store.insert("k", 1)
        assert (tmp_path / "cars.jrn").read_bytes()[mark_at(1024) :].startswith(MARK_MAGIC)
    assert (tmp_path / "cars.jrn").read_bytes()[mark_at(1024) :].startswith(CLOSED_MAGIC)


def test_change_is_written_when_the_call_returns(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for number in range(100):
            t = store.insert("k", number)
            entry = decode_journal((tmp_path / "cars.jrn").read_bytes())[1][-1]
            assert (entry.t, entry.k, entry.o) == (t, "k", number)


def test_durable_change_is_two_writes_and_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, int]] = []
    write_at, sync = RealFile.write_at, RealFile.sync

    def write(file: RealFile, position: int, data: bytes) -> int:
        calls.append(("write", position, len(data)))
        return write_at(file, position, data)

    def make_durable(file: RealFile) -> None:
        calls.append(("sync", 0, 0))
        sync(file)

    with opened(tmp_path, sync="always") as store:
        store.insert("k", 1)
        monkeypatch.setattr(RealFile, "write_at", write)
        monkeypatch.setattr(RealFile, "sync", make_durable)
        before = store.position
        store.insert("k", "value")
        written = [("write", before, store.position - before), ("write", 8, 8), ("sync", 0, 0)]
        assert calls == written
        assert decode_journal((tmp_path / "cars.jrn").read_bytes())[1][-1].o == "value"
        before = store.position
        store.remove("k")
        assert calls == [*written, ("write", before, store.position - before), ("write", 8, 8), ("sync", 0, 0)]


def test_only_one_process_has_the_store_open(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(Locked):
            opened(tmp_path)
        VersionedKVStore(tmp_path, "bikes").close()
        store.insert("k", 1)
    opened(tmp_path).close()


def test_closed_store_refuses_every_call(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.insert("k", 1)
    store.close()
    store.close()
    for call in (
        lambda: store.get("k"),
        lambda: store.get_with_timestamp("k"),
        lambda: "k" in store,
        lambda: len(store),
        lambda: list(store.items()),
        lambda: store.insert("k", 2),
        lambda: store.remove("k"),
        store.rotate,
        store.sync,
        store.earliest,
    ):
        with pytest.raises(Closed):
            call()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a\0b", "../x"])
def test_name_outside_the_directory_is_not_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongUse):
        VersionedKVStore(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 10},
        {"capacity": 4096, "max_capacity": 1024},
        {"high_water_mark": 0},
        {"high_water_mark": 1.5},
        {"sync": "sometimes"},
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(WrongUse):
        opened(tmp_path, **options)


def test_stores_in_one_directory_are_independent(tmp_path: Path) -> None:
    with opened(tmp_path) as cars, VersionedKVStore(tmp_path, "cars.jrn") as other:
        cars.insert("k", "cars")
        other.insert("k", "other")
        cars.rotate()
        other.rotate()
        assert cars.get("k") == "cars"
        assert other.get("k") == "other"


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def on_a_disk(disk: Any, **options: Any) -> VersionedKVStore:
    return VersionedKVStore(HOME, "cars", disk=disk, background=False, **options)


def a_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    return disk


def fill(store: VersionedKVStore) -> None:
    """Insert until there is no more space."""
    for number in range(1000):
        store.insert(f"key {number}", "x" * 50)


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_failed_write_or_sync_is_final_and_reading_continues(kind: str) -> None:
    inner = a_disk()
    on_a_disk(inner).close()
    disk = FaultyDisk(inner, 0, errno.EIO, only=[kind])
    store = on_a_disk(disk, sync="always")
    store.insert("a", 1)
    disk._fail_at = disk.calls + 1
    with pytest.raises(StorageFailed):
        store.insert("b", 2)
    for _ in range(2):
        with pytest.raises(Poisoned):
            store.insert("c", 3)
        with pytest.raises(Poisoned):
            store.rotate()
    assert store.get("a") == 1
    assert "c" not in store
    store.close()
    with on_a_disk(inner) as store:
        assert store.get("a") == 1
        assert store.get("c") is None


@pytest.mark.usefixtures("_quiet")
def test_full_disk_refuses_changes_and_leaves_the_store_unchanged() -> None:
    disk = a_disk()
    disk.capacity_bytes = 3000
    with on_a_disk(disk, capacity=1024, sync="always") as store:
        with pytest.raises(StorageFailed, match="No space left"):
            fill(store)
        before = content_of(store)
        assert len(before) > 10
        for _ in range(2):
            with pytest.raises(StorageFailed, match="No space left"):
                store.insert("larger", "x" * 300)
        assert content_of(store) == before
        assert store.remove("key 0") is not None
        disk.capacity_bytes = None
        store.insert("larger", "x" * 300)
        assert store.get("larger") == "x" * 300
    with on_a_disk(disk) as store:
        assert len(store) == len(before)
    assert not [name for name in disk.list_directory(HOME) if name.endswith((".tmp", ".old"))]


@pytest.mark.usefixtures("_quiet")
def test_store_on_a_full_disk_can_be_opened_and_read() -> None:
    disk = a_disk()
    with on_a_disk(disk, capacity=1024) as store:
        store.insert("a", 1)
    disk.capacity_bytes = 3000
    with on_a_disk(disk, capacity=1 << 20) as store:
        assert (store.get("a"), store.capacity) == (1, 1024)
        store.insert("b", 2)
    disk.capacity_bytes = None
    with on_a_disk(disk, capacity=1 << 20) as store:
        assert (dict(store.items()), store.capacity) == ({"a": 1, "b": 2}, 1 << 20)


def test_limit_refuses_changes_and_removing_frees_space(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=1024, max_capacity=4096) as store:
        with pytest.raises(CapacityExceeded, match="max_capacity"):
            fill(store)
        before = content_of(store)
        assert store.capacity == 4096
        assert 30 < len(before) < 60
        with pytest.raises(CapacityExceeded):
            store.insert("one", "y" * 5000)
        assert content_of(store) == before
        for key in before:
            assert store.remove(key) is not None
        assert len(store) == 0
        store.insert("one", "y" * 1000)
    with opened(tmp_path) as store:
        assert dict(store.items()) == {"one": "y" * 1000}


def test_store_at_its_limit_can_be_changed_indefinitely(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=1024, max_capacity=2048, background=False) as store:
        for key in "abcdefghijklmnopqr":
            store.insert(key, "x" * 50)
        for number in range(300):
            store.insert("abcdefghijklmnopqr"[number % 18], f"{number:050}")
        assert len(store) == 18
        assert store.get("a") == f"{288:050}"
    # Each rotation frees half of the space that the state leaves, so it is not done for every change.
    assert 10 < len(journals_of(tmp_path, "cars")) < 150


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", SYNCS)
def test_concurrent_writers_lose_nothing(tmp_path: Path, sync: str) -> None:
    each = 300 if sync != "always" else 40
    times: list[list[int]] = [[] for _ in range(8)]

    def work(number: int, store: VersionedKVStore) -> None:
        for count in range(each):
            times[number].append(store.insert(f"{number}/{count % 7}", {"number": number, "count": count}))
            if count % 50 == 49:
                store.remove(f"{number}/{count % 7}")
            assert len(store) <= 8 * 7
            dict(store.items())

    with opened(tmp_path, capacity=8192, sync=sync) as store:
        threads = [threading.Thread(target=work, args=(number, store)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        state = content_of(store)
    made = {(t, number, count) for number in range(8) for count, t in enumerate(times[number])}
    journals = journals_of(tmp_path, "cars")
    entries = [entry for _, entries in journals for entry in entries]
    assert {(entry.t, entry.o["number"], entry.o["count"]) for entry in entries if entry.o} == made
    assert all(mine == sorted(mine) for mine in times)
    for _, found in journals:
        assert [entry.t for entry in found] == sorted(entry.t for entry in found)
    with opened(tmp_path) as store:
        assert content_of(store) == state


class SlowSync:
    """A file whose first sync waits until it may continue."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.begun = threading.Event()
        self.may_continue = threading.Event()
        self.closed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def sync(self) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.may_continue.wait(60)
        self.file.sync()

    def close(self) -> None:
        self.closed.set()
        self.file.close()


def test_rotation_closes_the_old_file_after_its_last_sync(tmp_path: Path) -> None:
    def rotate() -> None:
        with store._alone():
            store._rotate()

    with opened(tmp_path, sync="always") as store:
        store.insert("k", 1)
        buffer: Any = store._buffer
        slow = buffer.file = SlowSync(buffer.file)
        threads = [threading.Thread(target=store.insert, args=("k", 2)), threading.Thread(target=rotate)]
        threads[0].start()
        assert slow.begun.wait(60)
        threads[1].start()
        assert not slow.closed.wait(0.1)
        slow.may_continue.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert slow.closed.is_set()
        store.insert("k", 3)
    with opened(tmp_path) as store:
        assert store.get("k") == 3


def test_values_are_read_while_the_journal_is_rotated(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=1 << 16) as store:
        for number in range(200):
            store.insert(str(number), [number, "x" * 100])
    done = threading.Event()

    def read(store: VersionedKVStore) -> int:
        rounds = 0
        while not done.is_set():
            for number in range(200):
                assert store.get(str(number))[0] == number
            assert sum(value[0] for _, value in store.items()) == 19900
            rounds += 1
        return rounds

    with opened(tmp_path, capacity=1 << 16) as store:
        readers = [threading.Thread(target=read, args=(store,)) for _ in range(3)]
        for reader in readers:
            reader.start()
        for _ in range(10):
            store.rotate()
            for number in range(200):
                store.insert(str(number), [number, "y" * 100])
        done.set()
        for reader in readers:
            reader.join(60)
            assert not reader.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_cannot_write_to_its_parents_store(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.insert("k", 1)
        child = os.fork()
        if child == 0:
            answer = 1
            try:
                for _ in range(2):  # a refusal does not make the next attempt succeed
                    with pytest.raises(WrongUse):
                        store.insert("k", 2)
                answer = 0 if store.get("k") == 1 else 2
            finally:
                os._exit(answer)
        assert os.waitpid(child, 0)[1] == 0
        assert store.get("k") == 1
        assert decode_journal((tmp_path / "cars.jrn").read_bytes())[1][-1].o == 1
        store.insert("k", 3)
    with opened(tmp_path) as store:
        assert store.get("k") == 3
