"""A plan for a range of times skips much, and never a message of these times."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage, Mode
from logwright.core.format import Located
from logwright.core.io.disk import REAL_DISK
from logwright.core.read.splits import Split, Times
from logwright.errors import DamagedJournal, Gap
from logwright.sej import Reader, ShardedReader, ShardedWriter, Writer
from logwright.sej.bytes.layout import INDEX_DIRECTORY, MAX_TIMESTAMP, NO_TIMESTAMP
from logwright.sej.files.index import STRIDE_BYTES, Index, index_path, write_index
from logwright.sej.files.reader import located
from logwright.sej.files.repair import rebuild
from logwright.sej.files.segment import Segment
from logwright.sej.tables.splits import SPLITS
from tests.support.counting_disk import CountingDisk

COUNT = 1500


def read(reader: Reader | ShardedReader, planned: list[Split], mode: Mode = "failfast") -> Iterator[Located | Damage]:
    for split in planned:
        for item in SPLITS.chunks(reader, split, mode):
            yield from [item] if isinstance(item, Damage) else located(item)


def is_in(times: Times, place: Located) -> bool:
    """The times, message by message."""
    return is_meant(times, place.record.timestamp)


def is_meant(times: Times, timestamp: int | None) -> bool:
    if timestamp is None:
        return False
    return (times.earliest is None or times.earliest <= timestamp) and (
        times.latest is None or timestamp <= times.latest
    )


def assert_complete(reader: Reader, everything: list[Located], planned: list[Split], times: Times) -> None:
    """All messages of these times are returned, once and in order; any others are those of the file at that place."""
    found = [item for item in read(reader, planned) if isinstance(item, Located)]
    assert [place for place in found if is_in(times, place)] == [place for place in everything if is_in(times, place)]
    assert [place.record.offset for place in found] == sorted({place.record.offset for place in found})


# --- clocks -----------------------------------------------------------------------------------------------------------


def steady(dice: random.Random, number: int) -> int | None:
    return number * 1000 + dice.randrange(1000)


def back_and_forth(dice: random.Random, number: int) -> int | None:
    """Mostly increasing, with lasting and temporary jumps back, and messages without a time."""
    if dice.random() < 0.05:
        return None
    lag = 300_000 if 600 < number < 800 else 0
    return number * 1000 - lag - (dice.randrange(900_000) if dice.random() < 0.01 else 0)


def in_blocks(dice: random.Random, number: int) -> int | None:
    """Times repeat, long ranges have none, and the extreme times are among them."""
    block = number // 200
    if block % 3 == 2:
        return None
    return dice.choice([NO_TIMESTAMP + 1, MAX_TIMESTAMP]) if dice.random() < 0.002 else block % 2 * 700_000 + block


CLOCKS = {"steady": steady, "back and forth": back_and_forth, "in blocks": in_blocks}


def make(directory: Path, stamp: Callable[[int], int | None], *, segment_size: int = 1 << 30) -> Reader:
    dice = random.Random(COUNT)
    with Writer(directory, segment_size=segment_size) as writer:
        for number in range(COUNT):
            writer.append(bytes(dice.randrange(4000)), b"%d" % number, timestamp=stamp(number))
    return Reader(directory)


def some_times(dice: random.Random, count: int) -> Iterator[Times]:
    bounds = [None, NO_TIMESTAMP, NO_TIMESTAMP + 1, -1, 0, 1_000, 699_999, 700_003, 2**62, MAX_TIMESTAMP]
    for _ in range(count):
        low, high = (dice.choice([*bounds, *(dice.randrange(1_500_000) for _ in range(10))]) for _ in range(2))
        if low is not None and high is not None and low > high and dice.random() < 0.8:
            low, high = high, low
        yield Times(low, high)


# --- nothing is missed ------------------------------------------------------------------------------------------------


def as_written(reader: Reader) -> None: ...


def remove_all(reader: Reader) -> None:
    shutil.rmtree(reader.path / INDEX_DIRECTORY)


def remove_some(reader: Reader) -> None:
    for segment in reader.segments()[::2]:
        index_path(segment).unlink()


def cut_short(reader: Reader) -> None:
    for segment in reader.segments():
        path = index_path(segment)
        path.write_bytes(path.read_bytes()[: 16 + 2 * 48 + 7])


def make_again(reader: Reader) -> None:
    remove_all(reader)
    assert rebuild(reader.path)


def overwrite_some(reader: Reader) -> None:
    for segment in reader.segments():
        path = index_path(segment)
        data = bytearray(path.read_bytes())
        if len(data) > 16 + 48:
            data[16 + 48 + 30] ^= 0xFF
        path.write_bytes(data)


def of_another(reader: Reader) -> None:
    """Messages of the same sizes, at other times."""
    sizes = [segment.path.stat().st_size for segment in reader.segments()]
    directory = reader.path.parent / "another"
    make(directory, lambda number: 1_600_000 - number * 1000, segment_size=1 << 30 if len(sizes) == 1 else 900_000)
    assert [segment.path.stat().st_size for segment in Reader(directory).segments()] == sizes
    remove_all(reader)
    shutil.copytree(directory / INDEX_DIRECTORY, reader.path / INDEX_DIRECTORY)


INDEXES: dict[str, Callable[[Reader], None]] = {
    "as written": as_written,
    "missing": remove_all,
    "some are missing": remove_some,
    "cut short": cut_short,
    "made again": make_again,
    "damaged": overwrite_some,
    "of another journal": of_another,
}


@pytest.mark.parametrize("change", INDEXES.values(), ids=INDEXES)
@pytest.mark.parametrize("segment_size", [1 << 30, 900_000], ids=["one segment", "several"])
@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
def test_plan_equals_a_filtered_full_read(
    tmp_path: Path,
    clock: Callable[[random.Random, int], int | None],
    segment_size: int,
    change: Callable[[Reader], None],
) -> None:
    reader = make(tmp_path / "journal", partial(clock, random.Random(1)), segment_size=segment_size)
    change(reader)
    everything = [place for place in reader.scan() if isinstance(place, Located)]
    dice = random.Random(2)
    for times in some_times(dice, 12):
        target_bytes = dice.choice([1, 400_000, 1 << 30])
        assert_complete(reader, everything, SPLITS.plan(reader, target_bytes, times=times), times)
        start, stop = sorted(dice.sample(range(COUNT + 1), 2))
        planned = SPLITS.plan(reader, target_bytes, start, stop, times=times)
        assert_complete(reader, everything[start:stop], planned, times)


def test_entries_added_to_an_older_index_are_used(tmp_path: Path) -> None:
    """Sessions of a writer, each with its own clock, and sometimes a torn tail in between."""
    dice = random.Random(3)
    for session in range(12):
        with Writer(tmp_path / "journal", segment_size=7_000_000) as writer:
            base = dice.randrange(1_000_000)
            for number in range(dice.randrange(100, 900)):
                writer.append(bytes(dice.randrange(3000)), timestamp=base + number)
        if session % 3 == 0:
            with Reader(tmp_path / "journal").segments()[-1].path.open("ab") as file:
                file.write(b"\0" * dice.randrange(1, 30))
    reader = Reader(tmp_path / "journal")
    assert len(reader.segments()) == 2
    everything = [place for place in reader.scan() if isinstance(place, Located)]
    for times in some_times(dice, 20):
        assert_complete(reader, everything, SPLITS.plan(reader, times=times), times)


def test_messages_after_damage_met_by_a_writer_are_in_every_plan(tmp_path: Path) -> None:
    """A writer that continues after damage does not know the times that it hides, and so stores none."""
    make(tmp_path / "journal", lambda number: number)
    reader = Reader(tmp_path / "journal")
    places = [place for place in reader.scan() if isinstance(place, Located)]
    path = tmp_path / "journal" / places[0].file
    data = bytearray(path.read_bytes())
    data[places[-40].span.start : places[-40].span.start + 20] = b"\xff" * 20
    path.write_bytes(data)
    index_path(reader.segments()[0]).unlink()
    with Writer(tmp_path / "journal") as writer:
        for number in range(COUNT, COUNT + 400):
            writer.append(bytes(4000), timestamp=number)
    for timestamp in (COUNT - 41, COUNT - 39, COUNT - 1, COUNT, COUNT + 399):
        planned = SPLITS.plan(reader, times=Times(timestamp, timestamp))
        found = [item.record.offset for item in read(reader, planned, "dropmalformed") if isinstance(item, Located)]
        assert timestamp in found


def test_shards_are_planned_by_time_one_by_one(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", bit=1) as writer:
        for number in range(COUNT):
            writer.append(bytes(2000), b"%d" % number, timestamp=number)
    reader = ShardedReader(tmp_path / "root")
    planned = SPLITS.plan(reader, times=Times(700, 720))
    assert {split.part for split in planned} == {"1.000", "1.001"}
    assert sum(split.bytes for split in planned) < 6 * STRIDE_BYTES
    stamps = [item.record.timestamp for item in read(reader, planned) if isinstance(item, Located)]
    assert set(range(700, 721)) <= set(stamps)


# --- much is left out -------------------------------------------------------------------------------------------------


def late_now_and_then(number: int) -> int | None:
    return None if number % 7 == 0 else number * 1000 - (20_000 if number % 100 == 0 else 0)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 segments of a megabyte, where every 100th message is late."""
    directory = tmp_path_factory.mktemp("large") / "journal"
    with Writer(directory, segment_size=1_000_000) as writer:
        for number in range(24_000):
            writer.append(bytes(974), timestamp=late_now_and_then(number))
    return directory


@pytest.mark.parametrize(
    "times",
    [
        Times(12_000_000, 12_240_000),
        Times(None, 240_000),
        Times(23_760_000, None),
        Times(100_000_000, None),
        Times(None, -100_000_000),
        Times(12_000_500, 12_000_600),
    ],
    ids=["in the middle", "early", "late", "later than all", "earlier than all", "between two messages"],
)
def test_plan_reads_little_more_than_the_requested_messages(large: Path, times: Times) -> None:
    disk = CountingDisk()
    reader = Reader(large, disk=disk)
    planned = SPLITS.plan(reader, times=times)
    found = [item.record.offset for item in read(reader, planned) if isinstance(item, Located) and is_in(times, item)]
    stamps = [late_now_and_then(number) for number in range(24_000)]
    wanted = [number for number in range(24_000) if is_meant(times, stamps[number])]
    assert found == wanted
    assert len(wanted) in (0, *range(200, 210)), "one percent; a seventh has no time"
    assert disk.bytes_read < 0.05 * 24_000_000


def test_adjacent_ranges_are_one_split_of_limited_size(large: Path) -> None:
    reader = Reader(large)
    times = Times(2_500_000, 7_500_000)
    planned = SPLITS.plan(reader, times=times)
    assert len({split.file for split in planned}) == len(planned) == 6
    assert 5_000_000 < sum(split.bytes for split in planned) < 5_600_000
    small = SPLITS.plan(reader, 300_000, times=times)
    assert len(small) == 12
    assert sum(split.bytes for split in small) == sum(split.bytes for split in planned)


def test_split_is_read_up_to_its_end_and_no_further(large: Path) -> None:
    for split in SPLITS.plan(Reader(large), 250_000)[:8]:
        disk = CountingDisk(".jnl")
        assert sum(isinstance(item, Located) for item in read(Reader(large, disk=disk), [split])) > 0
        assert split.bytes <= disk.bytes_read < split.bytes + 1000


def test_range_after_the_last_entry_is_known_from_the_walk_to_the_end(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", lambda number: number)
    last = Index.load(REAL_DISK, reader.segments()[0], 1 << 40)
    assert last is not None
    assert not last.entries[-1].is_end
    times = Times(100, 200)
    assert SPLITS.plan(reader, times=times)[-1].stop < last.entries[-1].offset
    with Writer(tmp_path / "journal") as writer:
        writer.append(b"late", timestamp=150)
    assert SPLITS.plan(reader, times=times)[-1].stop == COUNT + 1


def test_plan_without_times_reads_nothing(large: Path) -> None:
    assert SPLITS.plan(Reader(large), times=Times(5, 4)) == []
    assert SPLITS.plan(Reader(large), times=None) == SPLITS.plan(Reader(large))


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_inconsistent_index_is_ignored(tmp_path: Path) -> None:
    """Every entry is confirmed by the file, but a range between two of them is missing."""
    reader = make(tmp_path / "journal", lambda number: number)
    (segment,) = reader.segments()
    index = Index.load(REAL_DISK, segment, 1 << 40)
    assert index is not None
    path = index_path(segment)
    data = path.read_bytes()
    path.write_bytes(data[: 16 + 3 * 48] + data[16 + 4 * 48 :])
    missing = range(index.entries[2].offset, index.entries[3].offset)
    found = read(reader, SPLITS.plan(reader, times=Times(missing[5], missing[6])))
    assert set(missing[5:7]) <= {item.record.offset for item in found if isinstance(item, Located)}


def test_unconfirmed_entry_selects_the_whole_segment(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", lambda number: number)
    (segment,) = reader.segments()
    index = Index.load(REAL_DISK, segment, 1 << 40)
    assert index is not None
    entries = index.entries
    times = Times(entries[4].offset + 1, entries[4].offset + 2)
    assert SPLITS.plan(reader, times=times)[0].start == entries[4].offset
    for number in (4, 5, len(entries) - 1):
        changed = [entry._replace(timestamp=entry.timestamp + (at == number)) for at, entry in enumerate(entries)]
        write_index(REAL_DISK, segment, changed)
        assert [(split.start, split.stop) for split in SPLITS.plan(reader, times=times)] == [(0, COUNT)]


def damaged_at(directory: Path, number: int) -> Reader:
    reader = make(directory, lambda number: number, segment_size=900_000)
    place = [place for place in reader.scan() if isinstance(place, Located)][number]
    path = directory / place.file
    data = bytearray(path.read_bytes())
    data[place.span.start : place.span.start + 20] = b"\xff" * 20
    path.write_bytes(data)
    return reader


def test_damage_is_reported_only_where_it_is_read(tmp_path: Path) -> None:
    reader = damaged_at(tmp_path / "journal", 700)
    elsewhere = SPLITS.plan(reader, times=Times(50, 60))
    assert {item.record.offset for item in read(reader, elsewhere) if isinstance(item, Located)} >= set(range(50, 61))
    here = SPLITS.plan(reader, times=Times(699, 701))
    with pytest.raises(DamagedJournal):
        list(read(reader, here))
    (damage,) = [item for item in read(reader, here, "permissive") if isinstance(item, Damage)]
    assert damage in list(reader.messages(mode="permissive"))


def test_gap_is_reported_by_the_following_segment_if_its_beginning_is_read(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", lambda number: number, segment_size=900_000)
    segments: list[Segment] = reader.segments()
    segments[1].path.unlink()
    following = segments[2].first_offset
    with pytest.raises(Gap):
        list(read(reader, SPLITS.plan(reader, times=Times(following, following))))
    later = Times(COUNT - 2, COUNT - 1)
    assert [item.record.offset for item in read(reader, SPLITS.plan(reader, times=later)) if isinstance(item, Located)]


def test_torn_tail_is_reported_if_the_end_is_read(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", lambda number: number)
    with reader.segments()[0].path.open("ab") as file:
        file.write(b"\0" * 25)
    for times in (Times(COUNT - 1, None), Times(None, 5)):
        found = list(read(reader, SPLITS.plan(reader, times=times), "permissive"))
        assert [item.kind for item in found if isinstance(item, Damage)] == ["torn_tail"]


def test_bad_block_that_hides_requested_messages_is_reported(tmp_path: Path) -> None:
    with Writer(tmp_path / "journal", checksums=True) as writer:
        for number in range(1000):
            writer.append(bytes(1000), timestamp=number)
    reader = Reader(tmp_path / "journal")
    (segment,) = reader.segments()
    index = Index.load(REAL_DISK, segment, 1 << 40)
    assert index is not None
    entry = index.entries[1]
    assert entry.position % 65_536 > 200, "a block reaches over it"
    with segment.path.open("r+b") as file:
        file.seek(entry.position - 100)
        file.write(b"!")
    planned = SPLITS.plan(reader, times=Times(entry.offset, entry.offset + 70))
    assert planned[0].start == entry.offset
    with pytest.raises(DamagedJournal, match="checksum"):
        list(read(reader, planned))
    damages = [item for item in read(reader, planned, "permissive") if isinstance(item, Damage)]
    assert [(damage.start, damage.kind) for damage in damages] == [(entry.position, "checksum")]
