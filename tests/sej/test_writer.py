"""Writer: files, results, refusals. The contract tests cover crashes, failures and full disks."""

from __future__ import annotations

import contextlib
import logging
import mmap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.core.io.disk import REAL_DISK, Disk
from logwright.errors import Closed, DamagedJournal, Locked, Poisoned, StorageFailed, TooLarge, WrongUse
from logwright.sej.bytes import codec
from logwright.sej.bytes.layout import DEFAULT_SEGMENT_BYTES, LOCK_NAME, MAX_OFFSET, segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.reader import Reader
from logwright.sej.files.writer import Writer
from tests.sej.samples import MESSAGE_BYTES, make_journal
from tests.sej.subject import SejSubject
from tests.support.counting_disk import CountingDisk
from tests.support.damage import cut, damage_file, drop, noise, overwrite, zeros_after
from tests.support.faulty_disk import FaultyDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, read_tree, write_file

HOME = Path("/journal")
FIRST = HOME / "jnl" / segment_name(0)
SUBJECT = SejSubject()
DEADLINE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _few_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of tails are cut here."""
    caplog.set_level(logging.ERROR, logger="logwright")


def values(directory: Path, disk: Disk = REAL_DISK) -> list[bytes]:
    return [message.value for message in Reader(directory, disk=disk)]


def segments(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(directory.glob("jnl/*.jnl"))}


# --- creating and appending -----------------------------------------------------------------------------------------


def test_new_journal_has_an_empty_first_segment_and_a_lock(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b" / "journal"
    with Writer(directory) as writer:
        assert writer.next_offset == 0
        assert segments(directory) == {"0000000000000000.jnl": 0}
        assert (directory / LOCK_NAME).read_bytes() == b""
    assert (writer.recovered, writer.kept) == (None, None)


def test_offsets_count_from_zero_and_continue_after_reopening(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        assert [writer.append(b"a"), writer.append(b"b", key=b"k"), writer.append(b"c", type=7)] == [0, 1, 2]
        assert writer.next_offset == 3
    with Writer(tmp_path) as writer:
        assert writer.append(b"d", timestamp=None) == 3
    messages = list(Reader(tmp_path))
    assert [message.offset for message in messages] == [0, 1, 2, 3]
    assert [(message.key, message.type, message.value) for message in messages] == [
        (b"", 0, b"a"),
        (b"k", 0, b"b"),
        (b"", 7, b"c"),
        (b"", 0, b"d"),
    ]
    assert messages[3].timestamp is None
    assert (messages[0].timestamp or 0) <= (messages[1].timestamp or 0) <= (messages[2].timestamp or 0)


def test_without_a_policy_messages_reach_the_file_by_flush(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.append(b"a")
        assert values(tmp_path) == []
        writer.flush()
        assert values(tmp_path) == [b"a"]
        writer.append(b"b")
        assert values(tmp_path) == [b"a"]
    assert values(tmp_path) == [b"a", b"b"]


def test_full_buffer_is_written_automatically(tmp_path: Path) -> None:
    with Writer(tmp_path, buffer_bytes=100) as writer:
        for _ in range(3):
            writer.append(bytes(14))
        assert values(tmp_path) == [bytes(14)] * 3
        writer.append(b"waits")
        assert len(values(tmp_path)) == 3


def test_each_message_is_synced_when_append_returns_with_always(simulated_disk: SimulatedDisk) -> None:
    with Writer(HOME, sync="always", disk=simulated_disk) as writer:
        for number in range(3):
            writer.append(b"%d" % number)
            for state in simulated_disk.crash_states(first=len(simulated_disk.operations), kinds=["order"], format=""):
                assert values(HOME, state) == [b"0", b"1", b"2"][: number + 1]


class SignallingDisk:
    """Passes every call to another disk, and reports each sync of a segment."""

    def __init__(self, inner: Disk) -> None:
        self.inner = inner
        self.synced = threading.Event()
        self.syncs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, path: Path, mode: Any) -> Any:
        file = self.inner.open(path, mode)
        if path.suffix == ".jnl":
            plain_sync = file.sync
            wrapped = type("File", (), {"__getattr__": lambda _, name: getattr(file, name)})()

            def sync() -> None:
                plain_sync()
                self.syncs += 1
                self.synced.set()

            wrapped.sync = sync
            return wrapped
        return file


def test_thread_syncs_appended_messages_with_an_interval(tmp_path: Path) -> None:
    disk = SignallingDisk(REAL_DISK)
    with Writer(tmp_path, sync="interval(1)", disk=disk) as writer:
        disk.synced.clear()
        writer.append(b"a")
        assert disk.synced.wait(DEADLINE_SECONDS)
        disk.synced.clear()
        assert disk.synced.wait(DEADLINE_SECONDS)
        assert values(tmp_path) == [b"a"]
    assert writer._interval is not None
    assert not writer._interval._thread.is_alive()


def test_concurrent_appends_share_syncs_and_lose_nothing(tmp_path: Path) -> None:
    disk = SignallingDisk(REAL_DISK)
    offsets: dict[bytes, int] = {}
    start = threading.Barrier(4)
    with Writer(tmp_path, sync="always", segment_size=4000, disk=disk) as writer:

        def append(name: str) -> None:
            start.wait(DEADLINE_SECONDS)
            for number in range(50):
                value = f"{name} {number}".encode()
                offsets[value] = writer.append(value)

        threads = [threading.Thread(target=append, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
    assert {message.value: message.offset for message in Reader(tmp_path)} == offsets
    assert sorted(offsets.values()) == list(range(200))
    for name in "abcd":
        mine = [offsets[f"{name} {number}".encode()] for number in range(50)]
        assert mine == sorted(mine), "the messages of a thread are in its order"
    assert disk.syncs <= 200 + len(segments(tmp_path)) + 2


# --- segments -------------------------------------------------------------------------------------------------------


def test_segment_ends_after_the_message_that_fills_it(tmp_path: Path) -> None:
    with Writer(tmp_path, segment_size=100) as writer:
        for _ in range(7):
            writer.append(bytes(14))  # 40 bytes each
    assert segments(tmp_path) == {segment_name(0): 120, segment_name(3): 120, segment_name(6): 40}


def test_last_segment_may_be_empty(tmp_path: Path) -> None:
    with Writer(tmp_path, segment_size=80) as writer:
        for _ in range(4):
            writer.append(bytes(14))
    assert segments(tmp_path) == {segment_name(0): 80, segment_name(2): 80, segment_name(4): 0}
    with Writer(tmp_path, segment_size=80) as writer:
        assert writer.append(b"") == 4


def test_message_larger_than_a_segment_has_its_own_segment(tmp_path: Path) -> None:
    with Writer(tmp_path, segment_size=50) as writer:
        for size in (1000, 3, 1000):
            writer.append(bytes(size))
    assert segments(tmp_path) == {segment_name(0): 1026, segment_name(1): 1055, segment_name(3): 0}
    assert [len(value) for value in values(tmp_path)] == [1000, 3, 1000]


def test_segment_that_another_program_filled_ends_with_the_next_message(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        for _ in range(5):
            writer.append(bytes(14))
    with Writer(tmp_path, segment_size=100) as writer:
        writer.append(bytes(14))
        writer.append(bytes(14))
    assert segments(tmp_path) == {segment_name(0): 240, segment_name(6): 40}


def test_message_larger_than_every_buffer_is_written_and_read(tmp_path: Path) -> None:
    value = bytes(range(256)) * 8192
    with Writer(tmp_path, sync="always") as writer:
        writer.append(b"before")
        writer.append(value, key=b"large")
        writer.append(b"after")
    assert values(tmp_path) == [b"before", value, b"after"]
    assert [located.record.value for located in Reader(tmp_path).last(2)] == [value, b"after"]


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"segment_size": 0}, "a segment size of 0 bytes"),
        ({"buffer_bytes": 0}, "a buffer of 0 bytes"),
        ({"sync": "sometimes"}, "sync policy 'sometimes'"),
        ({"sync": "interval(0)"}, "a sync interval of 0"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_created(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(WrongUse, match=says.replace("(", r"\(")):
        Writer(tmp_path / "journal", **options)
    assert not (tmp_path / "journal").exists()


def test_message_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with Writer(tmp_path, sync="always") as writer:
        writer.append(b"a")
        for wrong in ({"key": bytes(128)}, {"type": 256}, {"type": -1}, {"timestamp": 2**63}):
            with pytest.raises(WrongUse):
                writer.append(b"b", **wrong)
        assert writer.append(b"c") == 1
    assert values(tmp_path) == [b"a", b"c"]


@pytest.mark.skipif(not COMPILED, reason="the codec would copy two gibibytes first")
def test_value_whose_message_would_not_fit_its_size_field_is_refused(tmp_path: Path) -> None:
    with mmap.mmap(-1, 2**31 - 26) as value, Writer(tmp_path) as writer:
        with pytest.raises(TooLarge, match="makes a message of more than 2147483647 bytes"):
            writer.append(value)  # type: ignore[arg-type]
        assert writer.append(b"fits") == 0


def test_columns_are_checked_before_any_of_them_is_written(tmp_path: Path) -> None:
    data = b"".join(codec.encode(Message(offset, 5, 1, b"k", b"value")) for offset in range(3))
    good = codec.columns(data, 0, len(data), 3)
    bad = codec.columns(data, 0, len(data), 3)
    bad.values = b""
    with Writer(tmp_path, sync="always") as writer:
        with pytest.raises(WrongUse, match="outside of its data"):
            writer.append_columns([good, bad])
        assert writer.append_columns([good, good]) == 0
        assert writer.next_offset == 6
    assert values(tmp_path) == [b"value"] * 6


def test_journal_without_free_offsets_refuses_messages(simulated_disk: SimulatedDisk) -> None:
    simulated_disk.make_directory(HOME / "jnl")
    last = codec.encode(Message(MAX_OFFSET, 1, 1, b"", b"the last"))
    write_file(simulated_disk, HOME / "jnl" / segment_name(MAX_OFFSET), last)
    assert [message.offset for message in Reader(HOME, disk=simulated_disk)] == [MAX_OFFSET]
    with pytest.raises(TooLarge, match="used up its 64-bit offsets"):
        Writer(HOME, disk=simulated_disk)


# --- one writer at a time -------------------------------------------------------------------------------------------


def test_second_writer_is_refused_at_once(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        with pytest.raises(Locked, match=LOCK_NAME):
            Writer(tmp_path)
        assert writer.append(b"a") == 0
    with Writer(tmp_path) as writer:
        assert writer.append(b"b") == 1


def test_writer_that_fails_to_open_releases_its_lock(simulated_disk: SimulatedDisk) -> None:
    simulated_disk.make_directory(HOME / "jnl")
    first, second = (codec.encode(Message(offset, 1, 1, b"", b"v")) for offset in (0, 1))
    write_file(simulated_disk, FIRST, b"bad bytes" + first + second + b"torn")
    for _ in range(2):
        with pytest.raises(DamagedJournal, match="valid messages follow"):
            Writer(HOME, disk=simulated_disk)


def test_closed_writer_refuses_messages_and_can_be_closed_again(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.append(b"a")
    writer.close()
    writer.close()
    for use in (lambda: writer.append(b"b"), writer.flush, writer.sync):
        with pytest.raises(Closed, match="is closed"):
            use()
    assert values(tmp_path) == [b"a"]


def test_background_failure_is_raised_by_the_next_call(simulated_disk: SimulatedDisk) -> None:
    disk = FaultyDisk(simulated_disk, 0, only=["sync"])
    writer = Writer(HOME, sync="interval(1)", disk=disk)
    disk._fail_at, disk._forever = disk.calls + 1, True
    while not writer.refusing:
        threading.Event().wait(0.001)
    with pytest.raises(Poisoned, match="this writer failed earlier"):
        writer.append(b"a")
    writer.close()


def test_background_failure_is_raised_by_close_if_not_before(simulated_disk: SimulatedDisk) -> None:
    disk = FaultyDisk(simulated_disk, 0, only=["sync"])
    writer = Writer(HOME, sync="interval(1)", disk=disk)
    disk._fail_at, disk._forever = disk.calls + 1, True
    while not writer.refusing:
        threading.Event().wait(0.001)
    with pytest.raises((Poisoned, StorageFailed)):
        writer.close()
    Writer(HOME, disk=simulated_disk).close()


# --- what an earlier writer left ------------------------------------------------------------------------------------


def test_torn_tail_is_cut_kept_reported_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Writer(tmp_path) as writer:
        for value in (b"a", b"b", b"c"):
            writer.append(value)
    path = tmp_path / "jnl" / segment_name(0)
    path.write_bytes(path.read_bytes()[:-5])
    with caplog.at_level(logging.WARNING, logger="logwright.sej"), Writer(tmp_path) as writer:
        assert writer.recovered is not None
        assert (writer.recovered.start, writer.recovered.end, writer.recovered.kind) == (54, 76, "torn_tail")
        assert writer.recovered.reason == "only 22 of the message's 27 bytes are there"
        assert writer.kept is not None
        assert writer.kept.parent == tmp_path / ".logwright" / "cut"
        assert writer.kept.name.startswith(f"{path.name}.@54.")
        assert len(writer.kept.read_bytes()) == 22
        assert writer.append(b"d") == 2
    assert "cut off a torn tail" in caplog.text
    assert values(tmp_path) == [b"a", b"b", b"d"]


def embedded(kind: str, offset: int) -> bytes:
    """The bytes of messages, to be put into a value."""
    inner = [codec.encode(Message(number, 5, 1, b"k", b"inner %d" % number)) for number in range(60)]
    match kind:
        case "the same offset":
            return inner[offset]
        case "the next offset":
            return inner[offset + 1]
        case "the first offset":
            return inner[0]
        case "the next offset, after some bytes":
            return bytes(30) + inner[offset + 1]
        case "a whole segment":
            return b"".join(inner[:6])
        case "a segment that continues":
            return b"".join(inner[offset + 1 : offset + 20])
    raise ValueError(kind)


def torn_with_messages_in_values(kind: str) -> Iterator[tuple[bytes, int]]:
    """Journals of five messages whose values contain messages, the last one torn; and the position of the last."""
    messages = [Message(offset, 7, 0, b"", b"<" + embedded(kind, offset) + b">") for offset in range(5)]
    data = SUBJECT.encode(messages)
    start = SUBJECT.ends(messages)[4]
    for position in range(start, len(data)):
        yield cut(data, position), start
        if zeros_after(data, position) != data:
            yield zeros_after(data, position), start


@pytest.mark.parametrize("kind", ["the same offset", "the first offset"])
def test_message_within_the_value_of_a_torn_one_is_not_a_message(kind: str) -> None:
    for data, start in torn_with_messages_in_values(kind):
        disk = SimulatedDisk()
        SUBJECT.lay_out(disk, HOME, data)
        assert [message.offset for message in Reader(HOME, disk=disk)] == [0, 1, 2, 3]
        with Writer(HOME, disk=disk) as writer:
            assert writer.next_offset == 4
            assert (0 if writer.recovered is None else writer.recovered.size) == len(data) - start


@pytest.mark.parametrize(
    "kind", ["the next offset", "the next offset, after some bytes", "a whole segment", "a segment that continues"]
)
def test_ambiguous_values_are_neither_cut_nor_taken_as_messages(kind: str) -> None:
    refused = 0
    for data, start in torn_with_messages_in_values(kind):
        disk = SimulatedDisk()
        SUBJECT.lay_out(disk, HOME, data)
        before = read_tree(disk, HOME)
        try:
            with Writer(HOME, disk=disk) as writer:
                assert writer.next_offset == 4
                assert (0 if writer.recovered is None else writer.recovered.start) in (0, start)
        except DamagedJournal:
            refused += 1
            assert {name: data for name, data in read_tree(disk, HOME).items() if data} == {
                name: data for name, data in before.items() if data
            }
    assert refused, "otherwise this tries nothing"


@pytest.mark.parametrize("left", [1, 2, 5])
def test_whole_messages_at_the_end_are_never_cut_even_if_preceding_bytes_were_deleted(left: int) -> None:
    messages = [Message(number, number, 0, b"key"[: number % 3], noise(number % 4 * 9, number)) for number in range(10)]
    whole, ends = SUBJECT.encode(messages), SUBJECT.ends(messages)
    for end in range(ends[9 - left] + 1, ends[10 - left] + 1, 2):
        for start in range(end % 5, end, 5):
            disk = SimulatedDisk()
            SUBJECT.lay_out(disk, HOME, drop(whole, start, end))
            assert "torn_tail" not in {problem.kind for problem in Reader(HOME, disk=disk).verify().problems}
            with contextlib.suppress(DamagedJournal), Writer(HOME, disk=disk) as writer:
                assert (writer.next_offset, writer.recovered) == (10, None)
            assert read_file(disk, FIRST).endswith(whole[ends[10 - left] :])


def test_damage_far_from_the_end_does_not_prevent_writing(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        for _ in range(100):
            writer.append(bytes(14))
    path = tmp_path / "jnl" / segment_name(0)
    data = bytearray(path.read_bytes())
    data[400:420] = bytes(20)
    path.write_bytes(data)
    with Writer(tmp_path) as writer:
        assert writer.append(b"next") == 100
    with pytest.raises(DamagedJournal):
        list(Reader(tmp_path))


@pytest.mark.parametrize("with_index", [True, False], ids=["with an index", "without"])
def test_opening_reads_a_small_part_of_a_large_journal(tmp_path: Path, with_index: bool) -> None:
    with Writer(tmp_path) as writer:
        for _ in range(12_000):
            writer.append(bytes(1000))
    if not with_index:
        (tmp_path / "idx" / "0000000000000000.idx").unlink()
    disk = CountingDisk(".jnl")
    with Writer(tmp_path, disk=disk) as writer:
        assert writer.next_offset == 12_000
    assert disk.bytes_read < (1 << 20)


def test_defaults_are_those_of_the_original(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        assert writer._buffer.segment_bytes == DEFAULT_SEGMENT_BYTES == 1 << 30
        assert str(writer.policy) == "none"


@pytest.mark.parametrize("free", [0, 1, 60, 149, 150, 151, 299])
def test_partly_failed_write_leaves_only_whole_messages(simulated_disk: SimulatedDisk, free: int) -> None:
    writer = Writer(HOME, disk=simulated_disk)
    writer.append(bytes(20))
    writer.sync()
    size = simulated_disk.file_size(FIRST)
    message_bytes = size - 20 + 124
    for _ in range(3):
        writer.append(bytes(124))
    used = sum(len(data) for data in read_tree(simulated_disk, HOME).values() if data is not None)
    simulated_disk.capacity_bytes = used + free
    with pytest.raises(StorageFailed, match="No space left"):
        writer.flush()
    with pytest.raises(Poisoned):
        writer.append(b"more")
    writer.close()
    assert simulated_disk.file_size(FIRST) == size + free // message_bytes * message_bytes
    assert len(values(HOME, simulated_disk)) == 1 + free // message_bytes


def test_damage_before_the_end_does_not_prevent_writing_and_is_logged(
    journal_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_journal(journal_directory, 8)
    segment = journal_directory / "jnl" / segment_name(0)
    damage_file(segment, overwrite, 2 * MESSAGE_BYTES, b"\xa5" * 20)
    before = segment.read_bytes()
    with caplog.at_level(logging.WARNING, logger="logwright.sej"), Writer(journal_directory) as writer:
        assert writer.append(b"goes on") == 8
    assert segment.read_bytes().startswith(before)
    (logged,) = [record.getMessage() for record in caplog.records]
    assert logged.startswith("jnl/0000000000000000.jnl @ 80: ")
    assert logged.endswith(": damage before the end of the journal; see logwright verify")
