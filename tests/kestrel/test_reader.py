"""Reading the journal of a queue: in order, from any place, past damage, and as a queue."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from logwright import detect
from logwright import open as open_journal
from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, HistoryUnavailable, NotFound, UnknownFormat, WrongUse
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files.cursor import READ_BYTES
from logwright.kestrel.files.queues import QueuesReader
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.format import looks_like, open_reader
from logwright.kestrel.model.queue import Queue
from tests.kestrel.samples import ADDED, REMOVE, RESERVE, addx, confirm, encoded, reserve_as, unremove, write
from tests.support.damage import flip_bit

A, B, C, D = (addx(name) for name in (b"A", b"B", b"C", b"D"))
SIZE = 22
"""The bytes of each operation."""


@pytest.fixture
def cars(tmp_path: Path) -> Path:
    """Three files: A B remove, C, D."""
    write(tmp_path / "cars.50", A, B, REMOVE)
    write(tmp_path / "cars.100", C)
    return write(tmp_path / "cars", D)


def test_files_are_read_as_one_journal(cars: Path) -> None:
    assert list(Reader(cars)) == [A, B, REMOVE, C, D]
    assert [(item.file, item.span.start, item.span.end) for item in Reader(cars).scan()] == [
        ("cars.50", 0, 22),
        ("cars.50", 22, 44),
        ("cars.50", 44, 45),
        ("cars.100", 0, 22),
        ("cars", 0, 22),
    ]


def test_missing_newest_file_is_no_error(cars: Path) -> None:
    cars.unlink()
    assert list(Reader(cars)) == [A, B, REMOVE, C]
    assert Reader(cars).next == 100 << 64


def test_path_of_one_file_reads_only_that_file(cars: Path) -> None:
    assert list(Reader(cars.with_name("cars.100"))) == [C]
    other = write(cars.with_name("copy.bin"), A)
    assert list(Reader(other)) == [A]
    with pytest.raises(NotFound, match="no journal of a queue is here"):
        Reader(cars.with_name("bikes"))


def test_reading_is_limited_by_numbers(cars: Path) -> None:
    reader = Reader(cars)
    assert list(reader.operations(22)) == [B, REMOVE, C, D]
    assert list(reader.operations(23)) == [REMOVE, C, D]
    assert list(reader.operations(1 << 64)) == [C, D], "numbers between files are of the next one"
    assert list(reader.operations(50 << 64, 100 << 64)) == [C]
    assert list(reader.operations(None, 44)) == [A, B]
    assert list(reader.operations(reader.next)) == []
    assert reader.count(22, (100 << 64) + 1) == 4


def test_position_is_a_file_and_an_offset(cars: Path) -> None:
    reader = Reader(cars)
    assert reader.find_place("cars.100@5") == (50 << 64) + 5
    assert reader.find_place("cars @ 22") == (100 << 64) + 22
    assert reader.find_place("22") == 22
    with pytest.raises(NotFound, match=r"cars\.7"):
        reader.find_place("cars.7@0")
    with pytest.raises(WrongUse, match="not a place: write FILE@POSITION"):
        reader.find_place("cars@first")


def test_last_operations_are_returned_oldest_first(cars: Path) -> None:
    reader = Reader(cars)
    assert [item.record for item in reader.last(3)] == [REMOVE, C, D]
    assert [item.record for item in reader.last(99)] == [A, B, REMOVE, C, D]
    assert reader.last(0) == []
    with pytest.raises(WrongUse):
        reader.last(-1)


def test_time_is_found_by_the_items(tmp_path: Path) -> None:
    early, late, earlier = (addx(b"", added=ADDED + add) for add in (1, 5, 3))
    path = write(tmp_path / "cars", REMOVE, early, late, earlier)
    reader = Reader(path)
    assert reader.find_time(ADDED * 10**6) == 1
    assert reader.find_time((ADDED + 1) * 10**6 + 1) == 22, "a nanosecond later is not the same millisecond"
    assert reader.find_time((ADDED + 9) * 10**6) == reader.next == 64


# --- damage ---------------------------------------------------------------------------------------------------------


def test_damage_is_raised_returned_or_skipped(cars: Path) -> None:
    (cars.with_name("cars.100")).write_bytes(b"\x7f\x01\x01" + encoded([C]))
    with pytest.raises(DamagedJournal) as raised:
        list(Reader(cars))
    assert (raised.value.file, raised.value.position) == ("cars.100", 0)
    damage = Damage("cars.100", 0, 3, "there is no operation 127")
    assert list(Reader(cars).operations(mode="permissive")) == [A, B, REMOVE, damage, C, D]
    assert list(Reader(cars).operations(mode="dropmalformed")) == [A, B, REMOVE, C, D]


def test_reading_continues_at_an_item_and_invents_no_removal(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, tail=b"\x7f" + encoded([REMOVE, confirm(1), B, REMOVE]))
    found = list(Reader(path).operations(mode="permissive"))
    assert found == [A, Damage("cars", 22, 29, "there is no operation 127"), B, REMOVE]


def test_old_item_is_accepted_if_all_the_rest_is_readable(tmp_path: Path) -> None:
    old = addx(b"old", added=5)
    path = write(tmp_path / "cars", A, tail=b"\x7f" + encoded([old, REMOVE]))
    assert list(Reader(path).operations(mode="dropmalformed")) == [A, old, REMOVE]
    path = write(tmp_path / "bikes", A, tail=b"\x7f" + encoded([old]) + b"\x7f")
    assert list(Reader(path).operations(mode="dropmalformed")) == [A]


@pytest.mark.parametrize(
    "tail", [b"\x7f", b"\x02\x10", encoded([B])[:-1], bytes(40), b"\x06\x01", b"\x7f" * 30 + b"\x01"]
)
def test_bad_bytes_without_a_following_item_are_a_torn_tail_of_the_newest_file(tail: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, tail=tail)
    reader = Reader(path)
    assert list(reader) == [A]
    assert reader.torn_tail is not None
    assert (reader.torn_tail.start, reader.torn_tail.end) == (22, 22 + len(tail))
    assert reader.torn_tail.kind == "torn_tail"


@pytest.mark.parametrize("bit", [0, 4, 5, 6, 7])
def test_bad_bit_among_removals_is_not_a_torn_tail(bit: int, tmp_path: Path) -> None:
    whole = encoded([addx(b"item")] * 60 + [REMOVE] * 60)
    for position in range(
        len(whole) - 60, len(whole) - (9 if bit == 0 else 2)
    ):  # hardly anything follows the last ones
        path = tmp_path / "cars"
        path.write_bytes(flip_bit(whole, 8 * position + bit))
        damage = [item for item in Reader(path).operations(mode="permissive") if isinstance(item, Damage)]
        assert [(item.start, item.kind) for item in damage] == [(position, "malformed")]
        with pytest.raises(DamagedJournal, match="nothing was changed"):
            Writer(path)
        with pytest.raises(DamagedJournal, match="nothing was changed"):
            Queue(tmp_path, "cars")


@pytest.mark.parametrize("bad", [bytes(200), b"some text that was put here\n" * 10], ids=["zeros", "text"])
def test_queue_overwritten_from_its_beginning_is_not_a_torn_tail(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(bad)
    (problem,) = Reader(path).verify().problems
    assert (problem.position, problem.kind) == (0, "malformed")
    with pytest.raises(DamagedJournal):
        list(Reader(path))
    for opener in (Writer, lambda path: Queue(path.parent, path.name)):
        with pytest.raises(DamagedJournal, match="nothing was changed"):
            opener(path)
    assert path.read_bytes() == bad


def test_incomplete_end_of_a_rotated_file_is_damage(cars: Path) -> None:
    cars.with_name("cars.100").write_bytes(encoded([C])[:-1])
    found = [item for item in Reader(cars).operations(mode="permissive") if isinstance(item, Damage)]
    assert [(item.file, item.start, item.kind) for item in found] == [("cars.100", 0, "malformed")]


def test_item_larger_than_the_buffer_is_read_and_skipped(tmp_path: Path) -> None:
    large = addx(bytes(range(256)) * (READ_BYTES // 128))
    path = write(tmp_path / "cars", A, large, B, REMOVE)
    assert list(Reader(path)) == [A, large, B, REMOVE]
    assert Reader(path).count() == 4
    assert [item.data for item in Reader(path).queue_state().items] == [large.data, b"B"]
    assert [item.record for item in Reader(path).last(3)] == [large, B, REMOVE]
    assert Reader(path).summary().records == 4


def test_size_beyond_the_file_takes_no_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, tail=struct.pack("<Biqq", 2, 2**31 - 1, ADDED, 0))
    assert Reader(path).count() == 1


# --- during writes --------------------------------------------------------------------------------------------------


def test_files_rotated_and_packed_during_a_read_are_read_unchanged(tmp_path: Path) -> None:
    with Writer(tmp_path / "cars") as writer:
        for number in range(3):
            for item in range(20_000):
                writer.addx(b"%d" % (20_000 * number + item), added=ADDED)
            writer.rotate()
        reading: Iterator[object] = iter(Reader(tmp_path / "cars"))
        found = [next(reading) for _ in range(10)]
        writer.rewrite()
        writer.addx(b"after that")
        found += list(reading)
    assert [int(operation.data) for operation in found] == list(range(60_000))  # type: ignore[attr-defined]


# --- the state of the queue -----------------------------------------------------------------------------------------


def test_state_is_that_of_the_queue(cars: Path) -> None:
    write(cars, RESERVE, D, RESERVE, unremove(1), confirm(2), addx(b"E", expires=ADDED + 5))
    assert Reader(cars).state() == {
        "items": [
            {"data": "Qg==", "added": ADDED, "expires": None, "xid": 0},
            {"data": "RA==", "added": ADDED, "expires": None, "xid": 0},
            {"data": "RQ==", "added": ADDED, "expires": ADDED + 5, "xid": 0},
        ],
        "open": [],
        "xid": 2,
    }


def test_item_of_starling_has_no_time(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", Operation("add", expires=60_000, data=b"x"))
    assert Reader(path).state()["items"] == [{"data": "eA==", "added": None, "expires": 60_000, "xid": 0}]


def test_state_before_an_operation(cars: Path) -> None:
    reader = Reader(cars)

    def items(at: int) -> list[bytes]:
        return [item.data for item in reader.queue_state(at).items]

    assert items(0) == []
    assert items(44) == [b"A", b"B"]
    assert items(50 << 64) == [b"B"]
    assert items(reader.next) == [b"B", b"C", b"D"]
    with pytest.raises(WrongUse, match="the next one gets"):
        reader.state(reader.next + 1)
    with pytest.raises(HistoryUnavailable, match="was packed"):
        reader.state(7 << 64)


def test_differences_list_the_positions_of_items(cars: Path) -> None:
    write(cars, RESERVE, D)
    reader = Reader(cars)
    changes = reader.diff(44, reader.next)
    assert sorted(changes["added"]) == ["cars.100@0", "cars@1"]
    assert list(changes["removed"]) == ["cars.50@0"]
    moved = changes["changed"]["cars.50@22"]
    assert (moved["before"]["state"], moved["after"]["state"], moved["after"]["xid"]) == ("queued", "open", 1)


def test_history_of_an_item(cars: Path) -> None:
    write(cars, RESERVE, unremove(1), reserve_as(9), confirm(9))
    history = Reader(cars).history("cars.50@22")
    assert [(change["file"], change["position"], change["event"]) for change in history] == [
        ("cars.50", 22, "added"),
        ("cars", 0, "reserved"),
        ("cars", 1, "put_back"),
        ("cars", 6, "reserved"),
        ("cars", 11, "finished"),
    ]
    assert [change.get("value", {}).get("xid") for change in history] == [0, 1, 0, 9, None]
    assert history[-1]["deleted"] is True
    assert history[1]["t"] == 100 << 64
    with pytest.raises(NotFound, match="no item was added here"):
        Reader(cars).history("cars.50@44")


def test_replay_continues_after_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, tail=b"\x7f" + encoded([B, REMOVE]))
    assert [item.data for item in Reader(path).queue_state().items] == [b"B"]
    with pytest.raises(DamagedJournal):
        Reader(path).queue_state(mode="failfast")


# --- several queues -------------------------------------------------------------------------------------------------


def test_directory_of_queues_is_read_queue_by_queue(cars: Path) -> None:
    write(cars.with_name("bikes"), A, REMOVE)
    write(cars.with_name("bikes~~7"), B)
    (cars.parent / "sub").mkdir()
    reader = open_reader(cars.parent)
    assert isinstance(reader, QueuesReader)
    assert [reader.as_json(item)["queue"] for item in reader.scan()] == ["bikes"] * 2 + ["cars"] * 5
    assert reader.count() == 7
    assert list(reader.state()["queues"]) == ["bikes", "cars"]
    assert [item.record for item in reader.last(3)] == [REMOVE, C, D]
    assert reader.verify().sound
    assert reader.find_time(ADDED * 10**6) == {"bikes": 0, "cars": 0}
    assert list(reader.operations({"bikes": 22, "cars": 100 << 64})) == [REMOVE, D]
    assert reader.summary().details["queues"]["cars"]["records"] == 5


def test_directory_of_one_queue_is_that_queue(cars: Path) -> None:
    reader = open_reader(cars.parent)
    assert isinstance(reader, Reader)
    assert "queue" not in reader.as_json(reader.last(1)[0])
    assert reader.state()["xid"] == 0


# --- recognising ----------------------------------------------------------------------------------------------------


def test_queues_are_recognised_by_names_and_bytes(cars: Path) -> None:
    assert detect(cars.parent).name == "kestrel"
    assert detect(cars).name == "kestrel"
    assert detect(cars.with_name("cars.100")).name == "kestrel"
    assert list(open_journal(cars).scan())
    evidence = looks_like(REAL_DISK, cars.parent)
    assert evidence is not None
    assert evidence.score == 3


def test_empty_file_is_a_queue_only_beside_other_queues(tmp_path: Path) -> None:
    (tmp_path / "cars").touch()
    with pytest.raises(UnknownFormat):
        detect(tmp_path / "cars")
    write(tmp_path / "cars.50")
    assert detect(tmp_path / "cars").name == "kestrel"
    with Writer(tmp_path / "other" / "bikes"):
        pass
    assert detect(tmp_path / "other").name == "kestrel"


@pytest.mark.parametrize("data", [b"PAR1", b"# text\n", bytes(100), b"\x01\x01\x7f", b"\xff"])
def test_other_files_are_not_queues(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    assert looks_like(REAL_DISK, tmp_path / "file") is None
    assert looks_like(REAL_DISK, tmp_path) is None


def test_one_damaged_queue_among_others_does_not_hide_them(cars: Path) -> None:
    cars.with_name("bikes").write_bytes(b"\x7f\x7f")
    assert detect(cars.parent).name == "kestrel"
