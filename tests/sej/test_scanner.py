"""The scanner: its beginning, waiting and following, and its reports of damage, gaps and truncation."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.format import Located
from logwright.core.io.disk import REAL_DISK
from logwright.core.io.watch import PollingWatch
from logwright.errors import Closed, DamagedJournal, Gap, NotFound, Truncated, WrongUse
from logwright.sej.bytes import codec
from logwright.sej.bytes.layout import segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.reader import Reader
from logwright.sej.files.scanner import DEFAULT_TIMEOUT_SECONDS, Scanner
from logwright.sej.files.writer import Writer
from logwright.sej.model.retention import clean
from tests.sej.samples import (
    GOLDEN,
    MESSAGE_BYTES,
    golden_case,
    golden_lines,
    make_journal,
    offsets_of,
    value_of,
)
from tests.support.children import Child
from tests.support.damage import flip_bits
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS

JOURNAL = Path("/journal")


@pytest.fixture
def journal(journal_directory: Path) -> Path:
    """A journal of 25 messages in segments of 10, with the timestamps 0 to 24."""
    return make_journal(journal_directory, 25)


def scan(journal: Path, offset: int | None = None, **options: Any) -> list[Message | Damage]:
    """The results of a scanner that never waits."""
    with Scanner(journal, offset, **{"timeout": 0, **options}) as scanner:
        return list(scanner)


def segment_path(journal: Path, first_offset: int) -> Path:
    return journal / "jnl" / segment_name(first_offset)


# --- where it begins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [None, 0, 1, 9, 10, 11, 19, 20, 24])
def test_scanner_starts_at_the_given_offset(journal: Path, offset: int | None) -> None:
    assert offsets_of(scan(journal, offset)) == list(range(offset or 0, 25))


@pytest.mark.parametrize("offset", [None, 0, 3, 9, 10])
def test_offset_before_the_first_starts_at_the_first(journal: Path, offset: int | None) -> None:
    segment_path(journal, 0).unlink()
    with Scanner(journal, offset, timeout=0) as scanner:
        assert scanner.offset == 10
        assert offsets_of(scanner) == list(range(10, 25))


@pytest.mark.parametrize("beyond", [25, 26, 40])
def test_offset_after_the_end_is_waited_for(journal: Path, beyond: int) -> None:
    with Scanner(journal, beyond, timeout=0) as scanner:
        assert scanner.offset == beyond
        assert list(scanner) == []
        for _ in range(3):
            make_journal(journal, 6)
            assert scanner.offset >= beyond
        assert offsets_of(scanner) == list(range(beyond, 43))
        assert scanner.offset == 43


def test_offset_of_a_scanner_is_that_of_the_next_message(journal: Path) -> None:
    with Scanner(journal, 7, timeout=0) as scanner:
        for offset in range(7, 25):
            assert scanner.offset == offset
            assert offsets_of([next(scanner)]) == [offset]
        assert scanner.offset == 25


def test_scanner_starts_within_a_large_segment_with_and_without_an_index(journal_directory: Path) -> None:
    with Writer(journal_directory) as writer:
        for number in range(3000):
            writer.append(bytes(1000), key=str(number).encode())
    index = next((journal_directory / "idx").iterdir())
    for _ in range(2):
        for offset in (0, 1, 1499, 2048, 2999):
            with Scanner(journal_directory, offset, timeout=0) as scanner:
                message = next(scanner)
                assert isinstance(message, Message)
                assert (message.offset, message.key) == (offset, str(offset).encode())
                assert len(list(scanner)) == 2999 - offset
        index.unlink(missing_ok=True)


def test_journal_without_segments_is_waited_for(journal_directory: Path) -> None:
    (journal_directory / "jnl").mkdir()
    with Scanner(journal_directory, timeout=0) as scanner:
        assert list(scanner) == []
        make_journal(journal_directory, 3)
        assert offsets_of(scanner) == [0, 1, 2]


def test_missing_journal_cannot_be_scanned(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Scanner(tmp_path / "nowhere")
    with pytest.raises(NotFound):
        Scanner(tmp_path)


@pytest.mark.parametrize(
    "name", ["empty", "one", "fifty", "types256", "zero_timestamp", "multi", "multi_exact", "reopened", "first_deleted"]
)
def test_messages_of_the_original_are_returned(name: str) -> None:
    expected = golden_lines(name)
    found = scan(GOLDEN / name / golden_case(name)["sej_dir"])
    assert [(m.offset, m.timestamp, m.type) for m in found if isinstance(m, Message)] == [
        (line["offset"], line["timestamp_ns"], line["type"]) for line in expected
    ]


# --- how it waits ---------------------------------------------------------------------------------------------------


def test_default_timeout_is_one_second(journal: Path) -> None:
    with Scanner(journal) as scanner:
        assert scanner.timeout == DEFAULT_TIMEOUT_SECONDS == 1.0


class CountingWatch:
    """Counts the waits and their total time, without waiting."""

    def __init__(self, when_waited: Callable[[int], None] = lambda count: None) -> None:
        self.waits = 0
        self._when_waited = when_waited

    def wait(self, timeout_seconds: float) -> bool:
        assert timeout_seconds > 0
        self.waits += 1
        self._when_waited(self.waits)
        return True

    def descriptor(self) -> int | None:
        return None

    def drain(self) -> None: ...

    def add(self, path: Path) -> None: ...

    def close(self) -> None: ...


def test_zero_timeout_never_waits(journal: Path) -> None:
    watch = CountingWatch()
    with Scanner(journal, timeout=0, watch=watch) as scanner:
        assert len(list(scanner)) == 25
        assert list(scanner) == []
    assert watch.waits == 0


def test_iteration_ends_after_the_timeout_and_another_continues(journal: Path) -> None:
    watch = CountingWatch()
    with Scanner(journal, timeout=0.2, watch=watch) as scanner:
        assert len(list(scanner)) == 25
        assert watch.waits > 0
        make_journal(journal, 2)
        assert offsets_of(scanner) == [25, 26]


def test_timeout_none_waits_indefinitely(journal: Path) -> None:
    def append_after_waits(waits: int) -> None:
        if waits == 50:
            make_journal(journal, 1)

    watch = CountingWatch(append_after_waits)
    with Scanner(journal, 25, timeout=None, watch=watch) as scanner:
        assert offsets_of([next(scanner)]) == [25]
    assert watch.waits == 50


def test_message_within_the_timeout_restarts_it(journal: Path) -> None:
    def append(waits: int) -> None:
        if waits <= 5:
            make_journal(journal, 1)

    with Scanner(journal, 25, timeout=0.5, watch=CountingWatch(append)) as scanner:
        assert offsets_of(scanner) == [25, 26, 27, 28, 29]


@pytest.mark.parametrize("watched", [True, False])
def test_writer_wakes_an_indefinitely_waiting_thread(journal: Path, watched: bool) -> None:
    found: list[int] = []
    waiting = threading.Event()

    def follow() -> None:
        watch = None if watched else PollingWatch()
        with Scanner(journal, timeout=None, watch=watch) as scanner:
            for message in scanner:
                assert isinstance(message, Message)
                found.append(message.offset)
                if message.offset == 24:
                    waiting.set()
                if message.value == b"stop":
                    return

    thread = threading.Thread(target=follow)
    thread.start()
    assert waiting.wait(DEADLINE_SECONDS)
    with Writer(journal, sync="always") as writer:
        for value in (b"a", b"b", b"stop"):
            writer.append(value)
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    assert found == list(range(28))


# --- following ------------------------------------------------------------------------------------------------------


def random_journal(chance: random.Random, count: int) -> list[list[bytes]]:
    """The encoded messages of some segments, which end at random."""
    segments: list[list[bytes]] = [[]]
    for offset in range(count):
        key, value = chance.randbytes(chance.randrange(20)), chance.randbytes(chance.choice((0, 3, 50, 400)))
        segments[-1].append(codec.encode(Message(offset, offset, offset % 256, key, value)))
        if chance.random() < 0.2:
            segments.append([])
    return segments


def grow(journal: Path, segments: list[list[bytes]], chance: random.Random) -> Iterator[int]:
    """Write segments piece by piece, cut anywhere; after each piece the number of complete messages."""
    (journal / "jnl").mkdir(parents=True)
    first_offset = whole = 0
    for messages in segments:
        path = segment_path(journal, first_offset)
        path.write_bytes(b"")
        yield whole
        data = b"".join(messages)
        ends = [sum(map(len, messages[: number + 1])) for number in range(len(messages))]
        at = 0
        while at < len(data):
            size = chance.choice((1, 7, 26, chance.randrange(1, 900)))
            with path.open("ab") as file:
                file.write(data[at : at + size])
            at += size
            yield first_offset + sum(end <= at for end in ends)
        first_offset += len(messages)
        whole = first_offset


@pytest.mark.parametrize("seed", range(12))
def test_each_message_is_read_once_in_order_however_the_bytes_arrive(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    segments = random_journal(chance, 40)
    growing = grow(tmp_path, segments, chance)
    assert next(growing) == 0
    found: list[Message | Damage] = []
    with Scanner(tmp_path, timeout=0) as scanner:
        for whole in growing:
            if chance.random() < 0.7:
                found.extend(scanner)
                assert len(found) == whole, "all that is whole, and not a message more"
        found.extend(scanner)
    assert offsets_of(found) == list(range(40))
    assert [codec.encode(message) for message in found if isinstance(message, Message)] == list(chain(*segments))


@pytest.mark.parametrize("seed", range(4))
def test_each_message_is_read_once_in_order_while_a_thread_writes(journal_directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    (journal_directory / "jnl").mkdir()

    def write() -> None:
        for _ in range(3):  # three consecutive writers, each with its own segment size
            with Writer(journal_directory, segment_size=chance.randrange(30, 5000), buffer_bytes=500) as writer:
                for _ in range(300):
                    writer.append(value_of(writer.next_offset), timestamp=None)
                    if chance.random() < 0.2:
                        writer.flush()

    thread = threading.Thread(target=write)
    found: list[Message | Damage] = []
    with Scanner(journal_directory, timeout=DEADLINE_SECONDS) as scanner:
        thread.start()
        for message in scanner:
            found.append(message)
            if len(found) == 900:
                break
    thread.join()
    assert found == [Message(offset, None, 0, b"", value_of(offset)) for offset in range(900)]


WRITE = """
import sys
from logwright import sej

with sej.Writer(sys.argv[1], segment_size=int(sys.argv[2])) as writer:
    for number in range(int(sys.argv[3])):
        writer.append(b"%d" % number)
        if number % 7 == 0:
            writer.flush()
print("done", flush=True)
"""


def test_another_process_is_followed(journal_directory: Path) -> None:
    (journal_directory / "jnl").mkdir()
    with (
        Scanner(journal_directory, timeout=DEADLINE_SECONDS) as scanner,
        Child(WRITE, journal_directory, 500, 2000) as child,
    ):
        found = [next(scanner) for _ in range(2000)]
        assert child.line() == "done"
        scanner.timeout = 0
        assert list(scanner) == []
    assert offsets_of(found) == list(range(2000))


def test_positions_are_returned_while_following(journal: Path) -> None:
    with Scanner(journal, 8, timeout=0) as scanner:
        places = list(scanner.located())
    assert [(p.file, p.span.start, p.record.offset) for p in places if isinstance(p, Located)] == [
        (f"jnl/{segment_name(offset // 10 * 10)}", offset % 10 * MESSAGE_BYTES, offset) for offset in range(8, 25)
    ]


def test_message_larger_than_the_buffer_is_followed(journal_directory: Path) -> None:
    large = random.Random(1).randbytes(1_000_000)
    data = codec.encode(Message(0, 1, 2, b"k", large)) + codec.encode(Message(1, 1, 2, b"k", b"small"))
    (journal_directory / "jnl").mkdir()
    path = segment_path(journal_directory, 0)
    path.write_bytes(data[:300_000])
    with Scanner(journal_directory, timeout=0) as scanner:
        assert list(scanner) == []
        path.write_bytes(data[: len(large)])
        assert list(scanner) == []
        path.write_bytes(data)
        assert [message.value for message in scanner] == [large, b"small"]


# --- tails that are not whole ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [1, 3, 4, 5, MESSAGE_BYTES - 1])
def test_incomplete_last_message_is_waited_for_and_then_returned(journal: Path, missing: int) -> None:
    path = segment_path(journal, 20)
    whole = path.read_bytes()
    path.write_bytes(whole[:-missing])
    with Scanner(journal, 20, timeout=0.001) as scanner:
        assert offsets_of(scanner) == [20, 21, 22, 23]
        assert list(scanner) == []
        with path.open("r+b") as file:
            file.seek(0, 2)
            file.write(whole[-missing:])
        assert offsets_of(scanner) == [24]


@pytest.mark.parametrize("tail", [b"\0" * 30, b"\xff" * 30, b"noise" * 20, b"\0" * 7])
@pytest.mark.parametrize("timeout", [0, 0.001])
def test_torn_tail_is_waited_for_until_a_writer_cuts_it(journal: Path, tail: bytes, timeout: float) -> None:
    with segment_path(journal, 20).open("ab") as file:
        file.write(tail)
    with Scanner(journal, 20, timeout=timeout) as scanner:
        assert offsets_of(scanner) == list(range(20, 25))
        assert list(scanner) == []
        with Writer(journal) as writer:
            assert writer.recovered is not None
            writer.append(b"next")
        (message,) = scanner
        assert message == Reader(journal).last(1)[0].record


def test_torn_tail_is_replaced_by_another_message(journal: Path) -> None:
    path = segment_path(journal, 20)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with Scanner(journal, 20, timeout=0) as scanner:
        assert offsets_of(scanner) == [20, 21, 22, 23]
        with Writer(journal) as writer:
            assert writer.append(b"another message with the offset 24") == 24
        (message,) = scanner
        assert isinstance(message, Message)
        assert (message.offset, message.value) == (24, b"another message with the offset 24")


@pytest.mark.parametrize("timeout", [0, 0.001, None])
def test_copy_of_earlier_messages_at_the_end_is_damage(journal: Path, timeout: float | None) -> None:
    path = segment_path(journal, 20)
    path.write_bytes(path.read_bytes() + b"noise" + path.read_bytes()[: 3 * MESSAGE_BYTES])
    with Scanner(journal, 20, timeout=timeout) as scanner:
        assert offsets_of(next(scanner) for _ in range(5)) == list(range(20, 25))
        with pytest.raises(DamagedJournal, match="a copy of earlier messages follows: from 20 on, at 205"):
            next(scanner)
    (damage,) = (item for item in scan(journal, 20, mode="permissive") if isinstance(item, Damage))
    assert (damage.start, damage.end, damage.kind) == (200, 325, "malformed")


def test_torn_tail_is_a_timeout_in_the_original_and_an_end_here() -> None:
    for name in ("torn_1", "torn_10", "torn_25", "torn_150", "garbage_10"):
        found = scan(GOLDEN / name / "sej")
        assert len(found) == golden_case(name)["surviving"], name


# --- truncation and gaps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, MESSAGE_BYTES, 5 * MESSAGE_BYTES - 1])
@pytest.mark.parametrize("timeout", [0, None])
def test_cut_before_the_scanner_is_a_truncation(journal: Path, left: int, timeout: float | None) -> None:
    path = segment_path(journal, 20)
    with Scanner(journal, timeout=0) as scanner:
        assert len(list(scanner)) == 25
        scanner.timeout = timeout
        path.write_bytes(path.read_bytes()[:left])
        with pytest.raises(Truncated, match=f"was cut to {left} bytes, 200 bytes of it had been read"):
            next(scanner)


def test_cut_ahead_of_the_scanner_is_not_a_truncation(journal: Path) -> None:
    path = segment_path(journal, 20)
    with Scanner(journal, 20, timeout=0) as scanner:
        assert list(scanner) != []
        with path.open("ab") as file:
            file.write(b"torn")
        assert list(scanner) == []
        path.write_bytes(path.read_bytes()[:-4])
        assert list(scanner) == []


def test_gap_between_segments_names_both_offsets(journal: Path) -> None:
    segment_path(journal, 10).unlink()
    with Scanner(journal, timeout=0) as scanner:
        assert offsets_of(next(scanner) for _ in range(10)) == list(range(10))
        with pytest.raises(Gap, match=r"jnl/0000000000000014\.jnl @ 0: .*offset 20 where 10 was expected"):
            next(scanner)
    found = scan(journal, mode="permissive")
    assert [(d.kind, d.file) for d in found if isinstance(d, Damage)] == [("gap", "jnl/0000000000000014.jnl")]
    assert offsets_of(item for item in found if isinstance(item, Message)) == [*range(10), *range(20, 25)]
    assert offsets_of(scan(journal, mode="dropmalformed")) == [*range(10), *range(20, 25)]


def test_gap_within_a_segment_names_both_offsets(journal: Path) -> None:
    path = segment_path(journal, 10)
    data = path.read_bytes()
    path.write_bytes(data[: 3 * MESSAGE_BYTES] + data[5 * MESSAGE_BYTES :])
    with Scanner(journal, 10, timeout=0) as scanner:
        assert offsets_of(next(scanner) for _ in range(3)) == [10, 11, 12]
        with pytest.raises(DamagedJournal, match="offset is 15 where 13 was expected"):
            next(scanner)
    assert offsets_of(scan(journal, 10, mode="dropmalformed")) == [10, 11, 12, *range(15, 25)]


def test_segments_removed_by_retention_are_a_gap(journal: Path) -> None:
    with Scanner(journal, 5, timeout=0) as scanner:
        assert offsets_of([next(scanner)]) == [5]
        clean(journal, max_bytes=0)
        assert offsets_of(next(scanner) for _ in range(4)) == [6, 7, 8, 9], "what is open stays readable"
        with pytest.raises(Gap, match="offset 20 where 10 was expected"):
            next(scanner)


class VanishingDisk:
    """The real disk, on which a segment is removed between being listed and being opened."""

    def __init__(self, journal: Path, first_offset: int) -> None:
        self._journal = journal
        self._path = segment_path(journal, first_offset)

    def open(self, path: Path, mode: Any) -> Any:
        if path == self._path and path.exists():
            clean(self._journal, max_bytes=0)
        return REAL_DISK.open(path, mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)


def test_segment_removed_between_listing_and_opening_is_ignored(journal: Path) -> None:
    disk = VanishingDisk(journal, 0)
    assert offsets_of(scan(journal, disk=disk)) == [20, 21, 22, 23, 24]


@pytest.mark.parametrize("mode", ["failfast", "permissive"])
def test_next_segment_removed_at_the_same_time_is_a_gap(journal: Path, mode: Any) -> None:
    disk: Any = VanishingDisk(journal, 10)
    with Scanner(journal, timeout=0, mode=mode, disk=disk) as scanner:
        assert offsets_of(next(scanner) for _ in range(10)) == list(range(10))
        if mode == "failfast":
            with pytest.raises(Gap, match="offset 20 where 10 was expected"):
                next(scanner)
        else:
            damage, *messages = scanner
            assert isinstance(damage, Damage)
            assert damage.kind == "gap"
            assert offsets_of(messages) == [20, 21, 22, 23, 24]


# --- damage ---------------------------------------------------------------------------------------------------------


def damage_at(journal: Path, offset: int) -> Damage:
    """Make a message's trailing size wrong; the expected reason."""
    first = offset // 10 * 10
    path = segment_path(journal, first)
    end = (offset - first + 1) * MESSAGE_BYTES
    path.write_bytes(flip_bits(path.read_bytes(), end - 1, 0x01))
    return Damage(f"jnl/{path.name}", end - MESSAGE_BYTES, end, "", "malformed")


def same_place(one: Damage, other: Damage) -> bool:
    return (one.file, one.start, one.end, one.kind) == (other.file, other.start, other.end, other.kind)


@pytest.mark.parametrize("offset", [0, 9, 10, 14, 19, 20, 22])
def test_damage_is_raised_returned_or_skipped_by_mode(journal: Path, offset: int) -> None:
    expected = damage_at(journal, offset)
    with Scanner(journal, timeout=0) as scanner:
        assert offsets_of(next(scanner) for _ in range(offset)) == list(range(offset))
        for _ in range(2):
            with pytest.raises(DamagedJournal) as raised:
                next(scanner)
            assert (raised.value.file, raised.value.position) == (expected.file, expected.start)
    found = scan(journal, mode="permissive")
    assert isinstance(found[offset], Damage)
    assert same_place(found[offset], expected)  # type: ignore[arg-type]
    others = [*range(offset), *range(offset + 1, 25)]
    assert offsets_of(item for item in found if isinstance(item, Message)) == others
    assert offsets_of(scan(journal, mode="dropmalformed")) == others


def test_damaged_last_message_is_a_torn_tail_until_messages_follow(journal: Path) -> None:
    expected = damage_at(journal, 24)
    with Scanner(journal, 20, timeout=0, mode="permissive") as scanner:
        assert offsets_of(scanner) == [20, 21, 22, 23]
        with segment_path(journal, 20).open("ab") as file:
            file.write(b"".join(codec.encode(Message(offset, 1, 1, b"", b"more")) for offset in (25, 26)))
        damage, *messages = scanner
        assert isinstance(damage, Damage)
        assert same_place(damage, expected)
        assert offsets_of(messages) == [25, 26]


def test_oversized_damaged_record_is_detected_after_the_wait(journal: Path) -> None:
    path = segment_path(journal, 20)
    value_size_at = MESSAGE_BYTES + 18
    path.write_bytes(flip_bits(path.read_bytes(), value_size_at, 0x40))  # 21 claims to be a gigabyte
    with Scanner(journal, 20, timeout=0.001, mode="permissive") as scanner:
        found = list(scanner)
    (damage,) = [item for item in found if isinstance(item, Damage)]
    assert (damage.start, damage.end) == (MESSAGE_BYTES, 2 * MESSAGE_BYTES)
    assert offsets_of(item for item in found if isinstance(item, Message)) == [20, 22, 23, 24]


def test_unknown_mode_is_refused(journal: Path) -> None:
    with pytest.raises(WrongUse, match="mode 'lenient' is none of"):
        Scanner(journal, mode="lenient")  # type: ignore[call-overload]


# --- by time --------------------------------------------------------------------------------------------------------

TIMES: dict[str, list[int | None]] = {
    "rising": list(range(100, 145)),
    "equal": [*[100] * 15, *[200] * 15, *[300] * 15],
    "all equal": [500] * 45,
    "none": [None] * 45,
    "some none": [None if n % 3 else 100 + n for n in range(45)],
    "first of each segment none": [None if n % 10 == 0 else 100 + n for n in range(45)],
    "negative": list(range(-22, 23)),
    "extreme": [-(2**63) + 1, *range(43), 2**63 - 1],
    "back within a segment": [*range(100, 105), *range(50, 55), *range(110, 145)],
    "back between segments": [*range(100, 110), *range(50, 60), *range(200, 225)],
    "falling": list(range(145, 100, -1)),
}
LIMIT = 2**63


def first_not_earlier(stamps: list[int | None], timestamp: int) -> int:
    return next((n for n, stamp in enumerate(stamps) if stamp is not None and stamp >= timestamp), len(stamps))


@pytest.mark.parametrize("stamps", TIMES.values(), ids=TIMES)
def test_scan_by_time_starts_at_the_first_message_not_earlier(
    simulated_disk: SimulatedDisk, stamps: list[int | None]
) -> None:
    make_journal(JOURNAL, 45, timestamps=stamps, disk=simulated_disk)
    edges = {stamp + step for stamp in stamps if stamp is not None for step in (-1, 0, 1)} | {0, -LIMIT, LIMIT - 1}
    for timestamp in sorted(edge for edge in edges if -LIMIT <= edge < LIMIT):
        expected = first_not_earlier(stamps, timestamp)
        with Scanner.from_time(JOURNAL, timestamp, timeout=0, disk=simulated_disk) as scanner:
            assert scanner.offset == expected
            assert offsets_of(scanner) == list(range(expected, 45))


ORDERED = ["rising", "equal", "all equal", "none", "some none", "first of each segment none", "negative", "extreme"]


@pytest.mark.parametrize("name", [*ORDERED, "back within a segment", "back between segments"])
def test_scan_by_time_works_without_an_index(simulated_disk: SimulatedDisk, name: str) -> None:
    stamps = TIMES[name]
    make_journal(JOURNAL, 45, timestamps=stamps, disk=simulated_disk)
    for index in simulated_disk.list_directory(JOURNAL / "idx"):
        simulated_disk.remove(JOURNAL / "idx" / index)
    for timestamp in sorted({stamp + step for stamp in stamps if stamp is not None for step in (0, 1)} | {0}):
        if timestamp < LIMIT:
            assert Reader(JOURNAL, disk=simulated_disk).find_time(timestamp) == first_not_earlier(stamps, timestamp)


def test_scan_by_time_works_with_empty_segments_gaps_and_a_removed_beginning(journal_directory: Path) -> None:
    make_journal(journal_directory, 20)
    assert segment_path(journal_directory, 20).stat().st_size == 0

    def find(timestamp: int) -> int:
        return Reader(journal_directory).find_time(timestamp)

    assert [find(0), find(19), find(20), find(99)] == [0, 19, 20, 20]
    make_journal(journal_directory, 15)
    segment_path(journal_directory, 10).unlink()
    assert [find(5), find(10), find(19), find(20), find(34), find(35)] == [5, 20, 20, 20, 34, 35]
    segment_path(journal_directory, 0).unlink()
    assert [find(-1), find(5), find(25)] == [20, 20, 25]
    segment_path(journal_directory, 30).write_bytes(b"")
    assert [find(29), find(30)] == [29, 30]


def test_scan_by_time_reads_little_of_a_large_segment(journal_directory: Path) -> None:
    with Writer(journal_directory) as writer:
        for number in range(4000):
            writer.append(bytes(1000), timestamp=number)

    class CountingDisk:
        """The real disk, which counts the bytes that are read of segments."""

        read_bytes = 0

        def open(self, path: Path, mode: Any) -> Any:
            file = REAL_DISK.open(path, mode)
            return CountingFile(self, file) if path.suffix == ".jnl" else file

        def __getattr__(self, name: str) -> Any:
            return getattr(REAL_DISK, name)

    class CountingFile:
        def __init__(self, disk: CountingDisk, inner: Any) -> None:
            self._disk = disk
            self._inner = inner

        def read_at(self, position: int, size: int) -> bytes:
            data: bytes = self._inner.read_at(position, size)
            self._disk.read_bytes += len(data)
            return data

        def read_into(self, position: int, buffer: memoryview) -> int:
            count: int = self._inner.read_into(position, buffer)
            self._disk.read_bytes += count
            return count

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    disk: Any = CountingDisk()
    assert Reader(journal_directory, disk=disk).find_time(3210) == 3210
    assert disk.read_bytes < segment_path(journal_directory, 0).stat().st_size / 4


# --- closing --------------------------------------------------------------------------------------------------------


def test_closed_scanner_returns_nothing_and_holds_no_file(simulated_disk: SimulatedDisk) -> None:
    make_journal(JOURNAL, 25, disk=simulated_disk)
    scanner = Scanner(JOURNAL, timeout=0, disk=simulated_disk)
    assert len(list(scanner)) == 25
    assert simulated_disk.open_files == 1
    scanner.close()
    scanner.close()
    assert simulated_disk.open_files == 0
    with pytest.raises(Closed):
        next(scanner)
    del scanner


def test_scanner_changes_nothing_and_needs_no_lock(journal: Path) -> None:
    with Writer(journal) as writer:
        before = sorted((path, path.stat().st_size) for path in journal.rglob("*"))
        assert len(scan(journal)) == 25
        assert sorted((path, path.stat().st_size) for path in journal.rglob("*")) == before
        writer.append(b"and the writer goes on")
