"""The files of a store: rotation, archives, the remains of a crash, and recovery from them."""

from __future__ import annotations

import logging
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import DamagedJournal, StorageFailed, WrongUse
from logwright.versioned.files import archiving
from logwright.versioned.files.buffer import MARK, Mark
from logwright.versioned.files.files import MAX_STORE_NAME_BYTES
from logwright.versioned.files.reader import Reader
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.retention import Retention, choose
from logwright.versioned.model.store import VersionedKVStore
from tests.support.threads import DEADLINE_SECONDS
from tests.versioned.stores import Clock, content_of, decode_journal, journal, journals_of, state_of

ENTRIES = [(1001, "a", "first"), (1002, "b", [1, 2]), (1003, "a", "second"), (1004, "c", 3), (1004, "b", None)]
STATE = {"a": ("second", 1003), "c": (3, 1004)}
NEXT = [(1003, "a", "second"), (1004, "c", 3), (1004, "d", "new")]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def opened(path: Path, **options: Any) -> VersionedKVStore:
    return VersionedKVStore(path, "cars", **options)


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if file.is_file())


def kept(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted((path / ".logwright" / "cut").glob("*"))]


# --- rotation ---------------------------------------------------------------------------------------------------------


def test_rotation_leaves_an_archive_that_ends_where_the_new_journal_begins(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.insert("a", 1)
        t = store.insert("b", [2])
        last = store.insert("a", "one")
        assert store.rotate() == last
        assert names(tmp_path) == ["cars.jrn", f"cars.jrn.t{last}.zz"]
        store.insert("c", 3)
    (_, before), (initialized, after) = journals_of(tmp_path, "cars")
    assert [(entry.k, entry.o) for entry in before] == [("a", 1), ("b", [2]), ("a", "one")]
    assert initialized == last
    assert [(entry.t, entry.k, entry.o) for entry in after[:2]] == [(t, "b", [2]), (last, "a", "one")]


def test_archive_is_zlib_and_ends_with_its_last_entry(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=4096) as store:
        store.insert("a", "x" * 100)
        size = store.position
        t = store.rotate()
    data = zlib.decompress((tmp_path / f"cars.jrn.t{t}.zz").read_bytes())
    assert len(data) == size


def test_taken_name_advances_the_time_and_the_clock(tmp_path: Path) -> None:
    clock = Clock(times=[1000, 1001, 1001, 1001, 1001])
    with opened(tmp_path, clock=clock) as store:
        store.insert("a", 1)
        for taken in (1001, 1002):
            (tmp_path / f"cars.jrn.t{taken}.zz").write_bytes(b"somebody's")
        assert store.rotate() == 1003
        assert (tmp_path / "cars.jrn.t1001.zz").read_bytes() == b"somebody's"
        assert store.insert("b", 2) == 1003
        assert store.rotate() == 1004
        assert store.insert("c", 3) == 1004
    assert decode_journal((tmp_path / "cars.jrn").read_bytes())[0] == 1004


def test_journal_without_changes_can_be_rotated_repeatedly(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        times = [store.rotate() for _ in range(3)]
        assert times == sorted({*times})
    assert [initialized for initialized, _ in journals_of(tmp_path, "cars")[1:]] == times


def test_journal_is_rotated_at_its_high_water_mark(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=4096, high_water_mark=0.5, background=False) as store:
        while store.position <= 2048 - 200:
            store.insert("a", "x" * 100)
            assert names(tmp_path) == ["cars.jrn"]
        for _ in range(3):
            store.insert("a", "x" * 100)
        assert len(names(tmp_path)) == 2
        assert store.capacity == 4096
    assert all(len(entries) >= 1 for _, entries in journals_of(tmp_path, "cars"))


def test_buffer_grows_and_shrinks_with_the_state(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=1024, background=False) as store:
        for number in range(100):
            store.insert(str(number), "x" * 100)
        assert store.capacity >= 16384
        assert len(store) == 100
        for number in range(99):
            store.remove(str(number))
        store.rotate()
        assert store.capacity == 1024
        assert dict(store.items()) == {"99": "x" * 100}
        store.insert("huge", "y" * 50_000)
        assert store.capacity >= 65536
    with opened(tmp_path, capacity=1024) as store:
        assert dict(store.items()) == {"99": "x" * 100, "huge": "y" * 50_000}


def test_writers_do_not_wait_for_an_archive_and_the_buffer_grows_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_continue = threading.Event()
    real = archiving.write_archive

    def slow(*arguments: Any) -> None:
        assert may_continue.wait(DEADLINE_SECONDS)
        real(*arguments)

    monkeypatch.setattr(archiving, "write_archive", slow)
    with opened(tmp_path, capacity=2048) as store:
        for number in range(200):
            store.insert("a", f"{number:0100}")
        assert names(tmp_path) == ["cars.jrn", "cars.jrn.old"]
        assert store.capacity >= 16384
        assert store.get("a") == f"{199:0100}"
        may_continue.set()
        store.rotate()
        assert store.capacity == 2048
    changes = [entry.o for _, entries in journals_of(tmp_path, "cars") for entry in entries]
    assert list(dict.fromkeys(changes)) == [f"{number:0100}" for number in range(200)]
    assert "cars.jrn.old" not in names(tmp_path)


def test_failed_archive_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise StorageFailed("write", "archive", OSError(28, "No space left on device"))

    with opened(tmp_path) as store:
        store.insert("a", 1)
        with monkeypatch.context() as context:
            context.setattr(archiving, "write_archive", fails)
            first = store.rotate()
            assert names(tmp_path) == ["cars.jrn", "cars.jrn.old"]
            with pytest.raises(StorageFailed):
                store.rotate()
        store.insert("a", 2)
        second = store.rotate()
        assert names(tmp_path) == ["cars.jrn", f"cars.jrn.t{first}.zz", f"cars.jrn.t{second}.zz"]


def test_archive_that_reads_back_differently_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Liar:
        def compress(self, data: bytes) -> bytes:
            return b""

        def flush(self) -> bytes:
            return zlib.compress(b"something else")

    monkeypatch.setattr(archiving, "new_compressor", Liar)
    monkeypatch.setattr(archiving, "bulky_compressor", Liar)
    with opened(tmp_path) as store:
        store.insert("a", 1)
        store.rotate()
    assert names(tmp_path) == ["cars.jrn", "cars.jrn.old"]
    monkeypatch.undo()
    with opened(tmp_path) as store:
        assert store.get("a") == 1
    assert [name.endswith((".jrn", ".zz")) for name in names(tmp_path)] == [True, True]


def test_highly_compressible_state_makes_a_readable_archive(tmp_path: Path) -> None:
    zeros = "0" * (6 << 20)
    with opened(tmp_path, capacity=64 << 20) as store:
        times = [store.insert(key, zeros) for key in "abc"]
        archive = tmp_path / f"cars.jrn.t{store.rotate()}.zz"
    assert 8 * archive.stat().st_size < 3 * len(zeros) * 1.2
    recovery = VersionedRecovery.load(tmp_path)
    assert [set(recovery.recover_at(t)) for t in times] == [{"a"}, {"a", "b"}, {"a", "b", "c"}]


# --- what is left after a crash ---------------------------------------------------------------------------------------

WHOLE = journal(ENTRIES, 1000, 4096)
AFTER = journal(NEXT, 1004, 4096)
FOUND = {**STATE, "d": ("new", 1004)}


def write(path: Path, **files: bytes | None) -> None:
    endings = {"active": "", "old": ".old", "tmp": ".tmp", "archive": ".t1004.zz", "half": ".t1004.zz.tmp"}
    for name, data in files.items():
        if data is not None:
            (path / f"cars.jrn{endings[name]}").write_bytes(data)


@pytest.mark.parametrize("half", [None, zlib.compress(WHOLE)[:40]], ids=["", "half an archive"])
@pytest.mark.parametrize("temporary", [None, b"", AFTER], ids=["", "an empty .tmp", "a whole .tmp"])
@pytest.mark.parametrize(
    ("active", "old", "archive", "expected"),
    [
        pytest.param(WHOLE, None, None, STATE, id="active"),
        pytest.param(None, WHOLE, None, STATE, id="old"),
        pytest.param(AFTER, WHOLE, None, FOUND, id="active and old"),
        pytest.param(AFTER, WHOLE, zlib.compress(WHOLE), FOUND, id="active and old and its archive"),
        pytest.param(AFTER, WHOLE, zlib.compress(WHOLE[:100]), FOUND, id="active and old and another archive"),
        pytest.param(AFTER, WHOLE, b"no archive", FOUND, id="active and old and no archive of its name"),
        pytest.param(AFTER, None, zlib.compress(WHOLE), FOUND, id="active and archive"),
        pytest.param(b"", WHOLE, None, STATE, id="empty active and old"),
        pytest.param(bytes(4096), WHOLE, None, STATE, id="active of zeros and old"),
        pytest.param(AFTER[:30], WHOLE, None, STATE, id="cut active and old"),
        pytest.param(AFTER[:80] + bytes(4016), WHOLE, None, STATE, id="active without all of the state and old"),
        pytest.param(AFTER, WHOLE[:100], None, FOUND, id="active and cut old"),
    ],
)
def test_any_leftovers_become_a_store_without_loss(
    tmp_path: Path,
    active: bytes | None,
    old: bytes | None,
    archive: bytes | None,
    expected: dict[str, Any],
    temporary: bytes | None,
    half: bytes | None,
) -> None:
    write(tmp_path, active=active, old=old, archive=archive, tmp=temporary, half=half)
    with opened(tmp_path) as store:
        assert content_of(store) == expected
        store.insert("more", 1)
    with opened(tmp_path) as store:
        assert {key: value for key, value in content_of(store).items() if key != "more"} == expected
    assert all(name.endswith((".jrn", ".zz")) for name in names(tmp_path))
    archives = [(tmp_path / name).read_bytes() for name in names(tmp_path) if name.endswith(".zz")]
    if archive is not None:
        assert archive in archives
    if expected == FOUND and old == WHOLE:
        assert sum(_begins(data, WHOLE) for data in archives) == 1
    if active is not None and expected == STATE and active.strip(b"\0") and old is not None:
        assert kept(tmp_path) == [active.rstrip(b"\0")]


def _begins(archive: bytes, data: bytes) -> bool:
    position = int.from_bytes(data[8:16], "little")
    try:
        return zlib.decompress(archive)[:position] == data[:position]
    except zlib.error:
        return False


def test_archive_that_a_crash_left_beside_its_journal_is_not_made_twice(tmp_path: Path) -> None:
    write(tmp_path, active=AFTER, old=WHOLE, archive=zlib.compress(WHOLE))
    opened(tmp_path).close()
    assert names(tmp_path) == ["cars.jrn", "cars.jrn.t1004.zz"]
    write(tmp_path, old=WHOLE, archive=zlib.compress(b"of somebody else"))
    opened(tmp_path).close()
    assert names(tmp_path) == ["cars.jrn", "cars.jrn.t1004.zz", "cars.jrn.t1005.zz"]
    assert zlib.decompress((tmp_path / "cars.jrn.t1005.zz").read_bytes()) == journal(ENTRIES, 1000)


def test_archives_without_a_journal_are_not_an_empty_store(tmp_path: Path) -> None:
    write(tmp_path, archive=zlib.compress(WHOLE))
    with pytest.raises(DamagedJournal, match="no active journal"):
        opened(tmp_path)
    write(tmp_path, active=b"")
    with pytest.raises(DamagedJournal):
        opened(tmp_path)
    assert names(tmp_path) == ["cars.jrn", "cars.jrn.t1004.zz"]


@pytest.mark.parametrize(
    "data",
    [b"not a journal at all, but long enough", b"\3" + WHOLE[1:], AFTER[:30]],
    ids=["text", "another version", "cut metadata"],
)
def test_file_that_is_not_a_journal_is_not_changed(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, active=data)
    with pytest.raises(DamagedJournal):
        opened(tmp_path)
    assert (tmp_path / "cars.jrn").read_bytes() == data
    (tmp_path / "cars.jrn").unlink()
    opened(tmp_path).close()  # it was not left locked


# --- damage in the journal --------------------------------------------------------------------------------------------


def test_full_journal_of_another_program_is_enlarged(tmp_path: Path) -> None:
    write(tmp_path, active=journal(ENTRIES))
    with opened(tmp_path, capacity=2048) as store:
        assert content_of(store) == STATE
        assert store.capacity == 2048
        assert store.recovered is None
        store.insert("z", 1)
    assert len((tmp_path / "cars.jrn").read_bytes()) == 2048


def test_odd_entries_are_read_and_kept_unchanged(tmp_path: Path) -> None:
    from logwright.versioned.bytes import bonjson, codec
    from logwright.versioned.bytes.records import Metadata

    odd = bonjson.dumps({"note": "?", "o": {"v": 1}, "k": "odd", "t": 1001})
    wide = b"\x9a\x81t\x77" + (1002).to_bytes(8, "little") + b"\x81k\x68\x22\x00wide\x81o\x78\x05\x9b"
    body = codec.encode_metadata(Metadata(1000, extra={"by": "me"})) + odd + wide
    write(tmp_path, active=codec.encode_header(17 + len(body)) + body)
    with opened(tmp_path) as store:
        state = content_of(store)
        assert state["odd"] == ({"v": 1}, 1001)
        assert state["wide"] == (5, 1002)
        store.rotate()
        assert content_of(store) == state
    assert odd in (tmp_path / "cars.jrn").read_bytes()


@pytest.mark.parametrize("size", range(1, 23))
def test_torn_entry_is_cut_kept_and_reported(tmp_path: Path, size: int) -> None:
    whole, more = journal(ENTRIES), journal([*ENTRIES, (1005, "e", "torn away")])
    position = len(more).to_bytes(8, "little")
    data = more[:8] + position + more[16 : len(whole) + size]
    write(tmp_path, active=data.ljust(4096, b"\0"))
    with opened(tmp_path) as store:
        assert content_of(store) == STATE
        assert store.recovered is not None
        assert (store.recovered.start, store.recovered.kind) == (len(whole), "torn_tail")
        assert kept(tmp_path) == [data[len(whole) :].ljust(len(more) - len(whole), b"\0")]
        store.insert("e", "again")
    with opened(tmp_path) as store:
        assert store.recovered is None
        assert store.get("e") == "again"


def test_position_past_the_file_is_damage_and_the_entries_count(tmp_path: Path) -> None:
    write(tmp_path, active=journal(ENTRIES, position=10**6))
    with pytest.raises(DamagedJournal, match="the position is 1000000, and the file ends at 134"):
        opened(tmp_path)
    assert [entry.t for entry in Reader(tmp_path / "cars.jrn").entries(mode="dropmalformed")] == [
        1001,
        1002,
        1003,
        1004,
        1004,
    ]


def test_bytes_after_the_position_are_ignored_and_kept(tmp_path: Path) -> None:
    whole = journal(ENTRIES)
    write(tmp_path, active=(whole + b"from an earlier life").ljust(4096, b"\0"))
    with opened(tmp_path) as store:
        assert content_of(store) == STATE
        assert store.recovered is None
        assert kept(tmp_path) == [b"from an earlier life"]
    mark = Mark(len(whole), is_closed=True).pack((1 << 20) - MARK.size)
    assert (tmp_path / "cars.jrn").read_bytes() == whole.ljust((1 << 20) - MARK.size, b"\0") + mark


def test_damage_followed_by_entries_is_not_cut(tmp_path: Path) -> None:
    data = bytearray(WHOLE)
    data[WHOLE.index(b"second")] = 0xFF
    write(tmp_path, active=bytes(data))
    with pytest.raises(DamagedJournal, match="no torn tail"):
        opened(tmp_path)
    assert (tmp_path / "cars.jrn").read_bytes() == bytes(data)
    assert names(tmp_path) == ["cars.jrn"]


def test_zero_sectors_in_a_journal_without_a_mark_are_values(tmp_path: Path) -> None:
    entries = [(1001, "a", "\0" * 3000), (1002, "b", [0] * 2000), (1003, "c", 1)]
    write(tmp_path, active=journal(entries, size=8192))
    with opened(tmp_path) as store:
        assert content_of(store) == {key: (value, t) for t, key, value in entries}


# --- retention --------------------------------------------------------------------------------------------------------

SECOND = 1_000_000_000
ARCHIVES = [(time * SECOND, 100) for time in (10, 20, 30, 40)]


@pytest.mark.parametrize(
    ("retention", "removed"),
    [
        (Retention(), []),
        (Retention(max_age_seconds=75), [10, 20]),
        (Retention(max_age_seconds=0), [10, 20, 30, 40]),
        (Retention(max_archives=1), [10, 20, 30]),
        (Retention(max_archives=0), [10, 20, 30, 40]),
        (Retention(max_bytes=250), [10, 20]),
        (Retention(max_bytes=0, window_seconds=70), [10, 20, 30]),
        (Retention(max_archives=0, window_seconds=71), [10, 20]),
        (Retention(max_age_seconds=65, window_seconds=1000), []),
    ],
)
def test_limits_select_the_oldest_archives_outside_the_window(retention: Retention, removed: list[int]) -> None:
    assert choose(retention, ARCHIVES, 100 * SECOND) == [time * SECOND for time in removed]


@pytest.mark.parametrize("options", [{"max_archives": -1}, {"max_bytes": -5}, {"window_seconds": float("nan")}])
def test_invalid_limits_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(WrongUse):
        Retention(**options)


def test_rotation_removes_archives_and_earliest_is_the_first_known_time(tmp_path: Path) -> None:
    clock = Clock(start=1000)
    with opened(tmp_path, clock=clock, retention=Retention(max_archives=2)) as store:
        beginning = store.earliest()
        assert beginning == store.initialized
        times = []
        for number in range(5):
            store.insert("a", number)
            times.append(store.rotate())
            assert store.earliest() == (beginning if number < 2 else times[number - 2])
        assert names(tmp_path) == ["cars.jrn", *(f"cars.jrn.t{t}.zz" for t in times[-2:])]


def test_states_at_every_time_since_the_earliest_are_in_one_file(tmp_path: Path) -> None:
    with opened(tmp_path, clock=Clock(start=1000), retention=Retention(max_archives=3)) as store:
        states = {}
        for number in range(40):
            t = store.insert(f"key {number % 5}", number)
            states[t] = content_of(store)
            if number % 7 == 6:
                store.rotate()
        earliest = store.earliest()
    journals = journals_of(tmp_path, "cars")
    assert journals[0][0] == earliest
    for t, state in states.items():
        if t < earliest:
            continue
        entries = [entries for initialized, entries in journals if initialized <= t][-1]
        assert state_of(entry for entry in entries if entry.t <= t) == state


# --- zeros ahead ------------------------------------------------------------------------------------------------------


def test_garbage_far_after_the_position_is_cleared_before_entries_reach_it(tmp_path: Path) -> None:
    data = bytearray(journal(ENTRIES, size=4 << 20))
    data[3 << 20 : (3 << 20) + 5000] = b"g" * 5000
    write(tmp_path, active=bytes(data))
    with opened(tmp_path, capacity=4 << 20, high_water_mark=1.0) as store:
        assert content_of(store) == STATE
        assert kept(tmp_path) == []
        while store.position < (2 << 20) + 4096:
            store.insert("large", "x" * 100_000)
        found = (tmp_path / "cars.jrn").read_bytes()
        assert b"g" * 100 not in found[: store._buffer.zeroed]
        while store.position < (3 << 20) - 4096:
            store.insert("large", "y" * 100_000)
        assert b"ggg" not in (tmp_path / "cars.jrn").read_bytes()
    with opened(tmp_path) as store:
        assert store.get("a") == "second"


def test_entry_larger_than_one_zeroing_step_needs_no_rotation(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=16 << 20) as store:
        store.insert("large", "x" * (3 << 20))
        store.insert("larger", "y" * (5 << 20))
    assert names(tmp_path) == ["cars.jrn"]
    with opened(tmp_path) as store:
        assert {key: len(value) for key, value in store.items()} == {"large": 3 << 20, "larger": 5 << 20}


def test_longest_store_name_leaves_space_for_archive_names(tmp_path: Path) -> None:
    longest = "ü" * (MAX_STORE_NAME_BYTES // 2)
    with VersionedKVStore(tmp_path, longest, clock=lambda: 2**64 - 1, background=False) as store:
        store.insert("a", 1)
        store.rotate()
    assert names(tmp_path) == [f"{longest}.jrn", f"{longest}.jrn.t{2**64 - 1}.zz"]
    with pytest.raises(WrongUse, match=f"{MAX_STORE_NAME_BYTES} bytes is the most"):
        VersionedKVStore(tmp_path, longest + "ü")
