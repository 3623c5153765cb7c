"""Rows of tables become changes of stores: of all stores that the rows name, each store's part of a batch at once."""

from __future__ import annotations

import json
import random
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import CapacityExceeded, WrongUse
from logwright.versioned import Reader, StoresReader, StoresWriter, VersionedKVStore
from logwright.versioned.bytes import kernel
from logwright.versioned.bytes.records import Entry
from logwright.versioned.files.files import list_stores
from tests.versioned.stores import Clock, changes_of, content_of

Row = tuple[str | None, int | None, str, Any]
"""Store, time, key and value; None removes the key."""


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    stores, times, keys, values = zip(*rows, strict=True)
    texts = [None if value is None else json.dumps(value) for value in values]
    columns = [
        pa.array(stores, pa.string()),
        pa.array(times, pa.uint64()),
        pa.array(keys),
        pa.array(texts, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, ["store", "t", "k", "o"])


class CountingStores:
    """A disk that counts how many stores are locked at a time."""

    def __init__(self) -> None:
        self.locked = self.most_locked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)

    def open(self, path: Path, mode: Any) -> Any:
        file = REAL_DISK.open(path, mode)
        if path.suffix != ".lck":
            return file
        self.locked += 1
        self.most_locked = max(self.most_locked, self.locked)
        return _CountedLock(self, file)


class _CountedLock:
    def __init__(self, disk: CountingStores, file: Any) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        self._disk.locked -= 1
        self._file.close()


def test_more_stores_than_open_files_allow_are_written(tmp_path: Path) -> None:
    disk: Any = CountingStores()
    dice = random.Random(1)
    wanted: dict[str, list[Entry]] = {}
    with StoresWriter(tmp_path / "many", "x", most_open=8, gathered_bytes=30_000, disk=disk) as writer:
        for step in range(4):
            rows: list[Row] = []
            for number in range(300):
                name = f"s{(300 * step + number) % 510}"
                entry = Entry(1000 * step + number + 1, dice.choice("ab"), dice.choice([1, "text", [None, {}]]))
                rows.append((name, entry.t, entry.k, entry.o))
                wanted.setdefault(name, []).append(entry)
            assert writer.append_batch(batch_of(rows)) == 300
    assert len(wanted) == 510
    assert disk.most_locked == 8
    assert disk.locked == 0
    reader = StoresReader(tmp_path / "many")
    assert reader.stores() == sorted(wanted)
    for name in dice.sample(sorted(wanted), 100):
        assert list(reader.open(name)) == wanted[name]


def test_rows_are_appended_like_single_inserts_across_rotations(tmp_path: Path) -> None:
    dice = random.Random(2)
    rows: list[Row] = []
    clock = 10**18
    for number in range(4000):
        clock += dice.choice([0, 1, 5])
        value = None if number % 11 == 10 else dice.choice([number, "x" * dice.randrange(2000), {"n": [number]}])
        rows.append((None, clock - dice.choice([0, 0, 0, 3]), f"k{dice.randrange(50)}", value))
    with StoresWriter(tmp_path / "loaded", "cars") as writer:
        for start in range(0, len(rows), 700):
            writer.append_batch(batch_of(rows[start : start + 700]))
    times = accumulate((time or 0 for _, time, _, _ in rows), max)
    expected: list[tuple[int, str, str]] = []
    live: set[str] = set()
    for _, _, key, value in rows:
        expected.append((next(times), key, json.dumps(value)))
        (live.discard if value is None else live.add)(key)
    assert changes_of(tmp_path / "loaded", "cars") == list(dict.fromkeys(expected))
    assert len(list((tmp_path / "loaded").glob("*.zz"))) >= 1, "the journal was rotated on the way"
    assert Reader(tmp_path / "loaded" / "cars.jrn").verify().sound
    with VersionedKVStore(tmp_path / "loaded", "cars") as store:
        assert set(content_of(store)) == live


def test_rows_continue_an_existing_store_and_never_precede_its_last_change(tmp_path: Path) -> None:
    with VersionedKVStore(tmp_path, "cars", clock=Clock(5000), background=False) as store:
        last = store.insert("a", 1)
    with StoresWriter(tmp_path, "cars") as writer:
        writer.append_batch(batch_of([("cars", 10, "b", 2), ("cars", last + 7, "c", 3), ("bikes", 20, "d", 4)]))
    assert [(entry.t, entry.k) for entry in Reader(tmp_path / "cars.jrn")] == [
        (last, "a"),
        (last, "b"),
        (last + 7, "c"),
    ]
    assert [(entry.t, entry.k) for entry in Reader(tmp_path / "bikes.jrn")] == [(20, "d")]


def test_writer_without_rows_leaves_a_store_and_bad_rows_write_none_of_their_batch(tmp_path: Path) -> None:
    with StoresWriter(tmp_path / "none", "cars"):
        pass
    assert list_stores(REAL_DISK, tmp_path / "none") == ["cars"]
    with StoresWriter(tmp_path / "some", "cars") as writer:
        writer.append_batch(batch_of([(None, 1, "a", 1)]))
        bad = batch_of([(None, 2, "b", 2), (None, 3, "c", 3)]).set_column(3, "o", pa.array(["2", "{"]))
        with pytest.raises(WrongUse, match="the value of the key 'c' is no JSON"):
            writer.append_batch(bad)
        with pytest.raises(WrongUse, match="a store cannot be called"):
            writer.append_batch(batch_of([("../up", 2, "b", 2)]))
        early = pa.RecordBatch.from_arrays([pa.array([-5]), pa.array(["a"]), pa.array(["1"])], ["t", "k", "o"])
        with pytest.raises(WrongUse, match="-5"):
            writer.append_batch(early)
    assert [entry.k for entry in Reader(tmp_path / "some" / "cars.jrn")] == ["a"]


def test_invalid_entry_is_not_appended_and_a_full_buffer_keeps_earlier_entries(tmp_path: Path) -> None:
    with VersionedKVStore(tmp_path, "cars", 4096, max_capacity=4096, clock=Clock(1000)) as store:
        good = [kernel.pack_entry(2000 + number, f"k{number}", "v" * 100) for number in range(60)]
        for data, starts in ((b"no entry", [0, 8]), (good[0] + good[1], [0, len(good[0])]), (good[0], [0, 3, 5])):
            with pytest.raises(WrongUse, match="entries to append must be consecutive"):
                store.append_packed(data, starts)
        with pytest.raises(WrongUse, match="entries to append must be consecutive"):
            store.append_packed(kernel.pack_entry(5, "early", 1), [0, len(kernel.pack_entry(5, "early", 1))])
        assert len(store) == 0
        starts = [0]
        for entry in good:
            starts.append(starts[-1] + len(entry))
        with pytest.raises(CapacityExceeded):
            store.append_packed(b"".join(good), starts)
        kept = len(store)
        assert 5 < kept < 60
        assert content_of(store) == {f"k{number}": ("v" * 100, 2000 + number) for number in range(kept)}
    with VersionedKVStore(tmp_path, "cars", 4096, max_capacity=4096) as store:
        assert len(store) == kept
