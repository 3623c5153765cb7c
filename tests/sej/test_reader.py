"""Reader: ranges, modes, times, the last messages, and reading while a writer appends."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, Gap, NotFound, WrongUse
from logwright.sej.bytes import codec
from logwright.sej.bytes.layout import segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.reader import Reader
from logwright.sej.files.writer import Writer
from tests.sej.samples import MESSAGE_BYTES, make_journal, offsets_of
from tests.support.damage import drop, insert, overwrite
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree

RANGES = [
    (None, None),
    (0, 0),
    (0, 1),
    (0, 100),
    (3, 7),
    (9, 11),
    (10, 20),
    (19, None),
    (24, 25),
    (25, None),
    (1000, None),
    (None, 5),
    (7, 3),
    (20, 10),
    (0, 2**64),
    (2**64 - 1, 2**70),
]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """25 messages in segments of 10."""
    return make_journal(tmp_path / "journal", 25)


def wanted(start: int | None, stop: int | None, first: int = 0, end: int = 25) -> list[int]:
    return [n for n in range(first, end) if (start is None or n >= start) and (stop is None or n < stop)]


# --- ranges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "stop"), RANGES)
def test_range_of_offsets_is_read_by_every_verb(journal: Path, start: int | None, stop: int | None) -> None:
    reader = Reader(journal)
    assert offsets_of(reader.messages(start, stop)) == wanted(start, stop)
    assert [item.record.offset for item in reader.scan(start, stop) if not isinstance(item, Damage)] == wanted(
        start, stop
    )
    assert reader.count(start, stop) == len(wanted(start, stop))


def test_range_that_ends_before_it_begins_is_empty_with_an_index(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        for _ in range(2000):
            writer.append(bytes(1000))
    reader = Reader(tmp_path)
    assert offsets_of(reader.messages(1900, 5)) == []
    assert offsets_of(reader.messages(1900, 1903)) == [1900, 1901, 1902]
    assert reader.count(1000, 900) == 0


def test_range_that_ends_within_damage_does_not_continue_after_it(journal: Path) -> None:
    path = journal / "jnl" / segment_name(0)
    path.write_bytes(overwrite(path.read_bytes(), 3 * MESSAGE_BYTES, bytes(3 * MESSAGE_BYTES)))
    items = list(Reader(journal).messages(0, 5, mode="permissive"))
    assert offsets_of(item for item in items if isinstance(item, Message)) == [0, 1, 2]
    assert offsets_of(Reader(journal).messages(0, 8, mode="dropmalformed")) == [0, 1, 2, 6, 7]


def test_position_is_relative_to_the_journals_directory(journal: Path) -> None:
    places = [(item.file, item.span.start) for item in Reader(journal).scan(9, 12) if not isinstance(item, Damage)]
    assert places == [
        (f"jnl/{segment_name(0)}", 9 * MESSAGE_BYTES),
        (f"jnl/{segment_name(10)}", 0),
        (f"jnl/{segment_name(10)}", MESSAGE_BYTES),
    ]


def test_one_segment_file_can_be_read_alone(journal: Path) -> None:
    reader = Reader(journal / "jnl" / segment_name(10))
    assert offsets_of(reader) == list(range(10, 20))
    assert (reader.first, reader.next) == (10, 20)
    assert reader.directory == journal
    assert [item.file for item in reader.last(1)] == [segment_name(10)]


def test_progress_runs_from_zero_to_all_bytes(journal: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert Reader(journal).count(progress=lambda done, total: seen.append((done, total))) == 25
    assert [total for _, total in seen] == [25 * MESSAGE_BYTES] * len(seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == 25 * MESSAGE_BYTES


# --- what is not there ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nothing", "nothing/0000000000000000.jnl"])
def test_missing_path_is_reported_as_not_found(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound):
        list(Reader(tmp_path / name))


def test_directory_that_is_not_a_journal_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Reader(tmp_path)


def test_file_that_is_not_a_segment_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotFound, match="no sej journal is here"):
        Reader(tmp_path / "notes.txt")


def test_journal_without_segments_is_empty(tmp_path: Path) -> None:
    (tmp_path / "jnl").mkdir()
    reader = Reader(tmp_path)
    assert list(reader) == []
    assert (reader.first, reader.next, reader.count(), reader.last(5)) == (0, 0, 0, [])


def test_unknown_mode_is_wrong_use(journal: Path) -> None:
    with pytest.raises(WrongUse, match="mode 'lenient' is none of failfast, permissive, dropmalformed"):
        list(Reader(journal).messages(mode="lenient"))  # type: ignore[call-overload]


def test_reading_changes_nothing(journal: Path) -> None:
    before = read_tree(REAL_DISK, journal)
    reader = Reader(journal)
    list(reader)
    reader.last(3)
    reader.find_time(5)
    reader.count()
    assert (reader.first, reader.next) == (0, 25)
    assert read_tree(REAL_DISK, journal) == before


# --- damage ---------------------------------------------------------------------------------------------------------


def damaged_middle(journal: Path, data: bytes) -> Reader:
    (journal / "jnl" / segment_name(10)).write_bytes(data)
    return Reader(journal)


def test_bytes_inserted_into_a_segment_are_skipped(journal: Path) -> None:
    data = (journal / "jnl" / segment_name(10)).read_bytes()
    reader = damaged_middle(journal, insert(data, 4 * MESSAGE_BYTES, b"these bytes do not belong here"))
    items = list(reader.messages(mode="permissive"))
    (damage,) = [item for item in items if isinstance(item, Damage)]
    assert (damage.start, damage.size) == (4 * MESSAGE_BYTES, 30)
    assert offsets_of(item for item in items if isinstance(item, Message)) == list(range(25))


def test_messages_that_are_missing_within_a_segment_are_a_gap(journal: Path) -> None:
    data = (journal / "jnl" / segment_name(10)).read_bytes()
    reader = damaged_middle(journal, drop(data, 4 * MESSAGE_BYTES, 6 * MESSAGE_BYTES))
    with pytest.raises(DamagedJournal, match="the offset is 16 where 14 was expected"):
        list(reader)
    items = list(reader.messages(mode="permissive"))
    (damage,) = [item for item in items if isinstance(item, Damage)]
    assert (damage.kind, damage.start, damage.size) == ("gap", 4 * MESSAGE_BYTES, 0)
    assert offsets_of(item for item in items if isinstance(item, Message)) == [*range(14), *range(16, 25)]


def test_segment_of_noise_in_the_middle_is_one_damage(journal: Path) -> None:
    noise = random.Random(4).randbytes(10 * MESSAGE_BYTES)
    reader = damaged_middle(journal, noise)
    items = list(reader.messages(mode="permissive"))
    (damage,) = [item for item in items if isinstance(item, Damage)]
    assert (damage.file, damage.start, damage.end) == (f"jnl/{segment_name(10)}", 0, len(noise))
    assert damage.kind == "malformed"
    assert offsets_of(item for item in items if isinstance(item, Message)) == [*range(10), *range(20, 25)]
    assert reader.torn_tail is None


def test_empty_segment_in_the_middle_is_a_gap(journal: Path) -> None:
    reader = damaged_middle(journal, b"")
    with pytest.raises(Gap, match="begins with offset 20 where 10 was expected"):
        list(reader)
    assert offsets_of(reader.messages(mode="dropmalformed")) == [*range(10), *range(20, 25)]


def test_several_damages_are_reported_one_by_one(journal: Path) -> None:
    path = journal / "jnl" / segment_name(0)
    data = path.read_bytes()
    for number in (1, 4, 8):
        data = overwrite(data, number * MESSAGE_BYTES + 17, b"\x80")
    path.write_bytes(data)
    reported: list[Damage] = []
    assert Reader(journal).count(on_damage=reported.append) == 22
    assert [(damage.start, damage.size) for damage in reported] == [
        (number * MESSAGE_BYTES, MESSAGE_BYTES) for number in (1, 4, 8)
    ]


def test_torn_tail_is_known_after_reading_and_forgotten_by_the_next_read(journal: Path) -> None:
    path = journal / "jnl" / segment_name(20)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    reader = Reader(journal)
    assert offsets_of(reader) == list(range(24))
    assert reader.torn_tail is not None
    assert reader.next == 24
    path.write_bytes(whole)
    assert offsets_of(reader) == list(range(25))
    assert reader.torn_tail is None


# --- the last messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5, 6, 15, 16, 25, 26, 1000])
def test_last_messages_are_read_from_the_back(journal: Path, count: int) -> None:
    assert [item.record.offset for item in Reader(journal).last(count)] == list(range(25))[25 - min(count, 25) :]


def test_last_messages_are_those_before_a_torn_tail(journal: Path) -> None:
    path = journal / "jnl" / segment_name(20)
    path.write_bytes(path.read_bytes()[:-7])
    reader = Reader(journal)
    assert [item.record.offset for item in reader.last(3)] == [21, 22, 23]
    assert reader.torn_tail is not None


def test_negative_number_of_messages_is_wrong_use(journal: Path) -> None:
    with pytest.raises(WrongUse, match="the last -1 messages"):
        Reader(journal).last(-1)


def test_reading_the_last_messages_reports_damage(journal: Path) -> None:
    path = journal / "jnl" / segment_name(20)
    path.write_bytes(overwrite(path.read_bytes(), 17, b"\x80"))
    reader = Reader(journal)
    assert [item.record.offset for item in reader.last(4)] == [21, 22, 23, 24]
    with pytest.raises(DamagedJournal, match="no message with offset 20 ends here"):
        reader.last(5)


# --- times ----------------------------------------------------------------------------------------------------------


def test_first_message_not_earlier_than_a_time_is_found(journal: Path) -> None:
    reader = Reader(journal)
    for timestamp in (-5, 0, 1, 9, 10, 11, 19, 20, 24):
        assert reader.find_time(timestamp) == max(0, timestamp)
    assert reader.find_time(25) == 25
    assert reader.find_time(2**63 - 1) == 25


@pytest.mark.parametrize("per_segment", [3, 10, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_times_are_found_with_decreasing_and_missing_times(tmp_path: Path, seed: int, per_segment: int) -> None:
    chance = random.Random(seed)
    stamps = [chance.choice((None, chance.randrange(50))) for _ in range(60)]
    make_journal(tmp_path, 60, per_segment=per_segment, timestamps=stamps)
    reader = Reader(tmp_path)
    for timestamp in range(-1, 52):
        later = [offset for offset, stamp in enumerate(stamps) if stamp is not None and stamp >= timestamp]
        assert reader.find_time(timestamp) == (later[0] if later else 60)


def test_times_in_order_are_found_without_any_index(tmp_path: Path) -> None:
    make_journal(tmp_path, 60, timestamps=[3 * n for n in range(60)])
    for path in (tmp_path / "idx").iterdir():
        path.unlink()
    reader = Reader(tmp_path)
    for timestamp in range(-1, 180):
        assert reader.find_time(timestamp) == min(60, max(0, -(-timestamp // 3)))


def test_time_is_found_after_the_first_segments_were_removed(journal: Path) -> None:
    (journal / "jnl" / segment_name(0)).unlink()
    reader = Reader(journal)
    assert (reader.first, reader.find_time(0), reader.find_time(17)) == (10, 10, 17)


# --- while a writer appends -----------------------------------------------------------------------------------------


def test_reader_sees_flushed_messages(tmp_path: Path) -> None:
    with Writer(tmp_path, segment_size=200) as writer:
        reader = Reader(tmp_path)
        for number in range(30):
            writer.append(b"%d" % number)
            writer.flush()
            assert [message.value for message in reader] == [b"%d" % n for n in range(number + 1)]
            assert reader.next == number + 1
            assert reader.last(1)[0].record.offset == number


def test_message_that_is_being_written_is_left_for_later(simulated_disk: SimulatedDisk) -> None:
    home = Path("/journal")
    with Writer(home, disk=simulated_disk) as writer:
        writer.append(b"a")
        writer.append(b"b" * 600)
    for state in simulated_disk.process_kills(format=""):
        if state.is_directory(home / "jnl"):
            found = [message.value for message in Reader(home, disk=state)]
            assert found in ([], [b"a"], [b"a", b"b" * 600])


# --- as JSON --------------------------------------------------------------------------------------------------------


def test_message_as_json_has_its_position_and_its_bytes_in_base64(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.append(b"value", key=b"\xff", type=9, timestamp=None)
    reader = Reader(tmp_path)
    (located,) = reader.last(1)
    assert reader.as_json(located) == {
        "file": "jnl/0000000000000000.jnl",
        "position": 0,
        "size": 32,
        "offset": 0,
        "timestamp": None,
        "type": 9,
        "key": "/w==",
        "value": "dmFsdWU=",
    }


def test_chunks_contain_consecutive_whole_messages(journal: Path) -> None:
    expected = 0
    for chunk in Reader(journal).chunks():
        assert not isinstance(chunk, Damage)
        assert chunk.first_offset == expected
        found = codec.messages(chunk.data, chunk.start, chunk.stop, chunk.count)
        assert [message.offset for message in found] == list(range(expected, expected + chunk.count))
        expected += chunk.count
    assert expected == 25
