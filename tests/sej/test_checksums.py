"""Checksums beside the segments: a flipped bit is never read as a message, and no crash makes a sound journal fail."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright import arrow
from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK, Disk
from logwright.errors import DamagedJournal
from logwright.sej.bytes.layout import segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.checksums import (
    BLOCK_BYTES,
    ENTRY,
    HEADER,
    CheckedFile,
    Checksums,
    ChecksumWriter,
    checksum_path,
)
from logwright.sej.files.reader import Reader
from logwright.sej.files.repair import apply, plan
from logwright.sej.files.scanner import Scanner
from logwright.sej.files.writer import Writer
from logwright.sej.model.consumer import Consumer
from logwright.sej.tables.splits import SPLITS
from tests.sej.samples import MESSAGE_BYTES, covered_bytes, offsets_of, value_of
from tests.support.access import guarded
from tests.support.counts import COUNTS
from tests.support.damage import bit_flips, cut, damage_file, drop, flip_bits, insert, noise, overwrite, torn_tails
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree

SMALL_BLOCK_BYTES = 512
FIRST = "jnl/0000000000000000.jnl"
JOURNAL = Path("/journal")


def write(directory: Path, count: int, *, checksums: bool = True, disk: Disk = REAL_DISK, sync: str = "none") -> None:
    """Append messages of `MESSAGE_BYTES`, as `make_journal` does."""
    with Writer(directory, checksums=checksums, disk=disk, sync=sync) as writer:
        for _ in range(count):
            writer.append(value_of(writer.next_offset), timestamp=writer.next_offset)


@pytest.fixture
def journal(journal_directory: Path) -> Path:
    """A journal of 100 messages of 40 bytes, with checksums of blocks of 512 bytes."""
    (journal_directory / "jnl").mkdir()
    path = journal_directory / FIRST
    path.touch()
    ChecksumWriter(REAL_DISK, path, SMALL_BLOCK_BYTES).close()
    write(journal_directory, 100)
    return journal_directory


def permissive(path: Path) -> tuple[list[int], list[Damage]]:
    """The offsets that can be read, whose values must be right, and the damage."""
    offsets, damages = [], []
    for item in Reader(path).messages(mode="permissive"):
        if isinstance(item, Damage):
            damages.append(item)
        else:
            assert item.value == value_of(item.offset)
            offsets.append(item.offset)
    return offsets, damages


# --- writing them ---------------------------------------------------------------------------------------------------


def test_writer_makes_a_side_file_for_each_segment_when_asked(journal_directory: Path) -> None:
    with Writer(journal_directory, checksums=True, segment_size=10 * MESSAGE_BYTES) as writer:
        for offset in range(25):
            writer.append(value_of(offset), timestamp=offset)
    for first, size in ((0, 400), (10, 400), (20, 200)):
        path = journal_directory / "jnl" / segment_name(first)
        sums = Checksums.load(REAL_DISK, checksum_path(path))
        assert sums is not None
        assert (sums.block_bytes, len(sums), covered_bytes(sums, size), sums.notes_at(size)) == (
            BLOCK_BYTES,
            1,
            size,
            [],
        )
    assert Reader(journal_directory).summary().details["checksums"] == 3
    assert Reader(journal_directory).verify().as_json() == {
        "format": "sej", "sound": True, "records": 25, "bytes": 1000, "problems": [], "anomalies": [],
        "losses": [],
    }  # fmt: skip


def test_journal_is_byte_for_byte_the_same_with_and_without_checksums(tmp_path: Path) -> None:
    for name, checksums in (("with", True), ("without", False)):
        write(tmp_path / name, 50, checksums=checksums)
    assert (tmp_path / "with" / FIRST).read_bytes() == (tmp_path / "without" / FIRST).read_bytes()
    assert not checksum_path(tmp_path / "without" / FIRST).exists()


# --- what readers do about a block that does not match --------------------------------------------------------------


def test_failfast_stops_before_the_first_message_in_a_bad_block(journal: Path) -> None:
    damage_file(journal / FIRST, flip_bits, 1225, 1)
    messages = Reader(journal).messages()
    assert [next(messages) for _ in range(25)][-1].offset == 24
    with pytest.raises(DamagedJournal, match="the checksum of the block of 512 bytes at 1024 does not match") as caught:
        next(messages)
    assert (caught.value.file, caught.value.position) == (FIRST, 1000)


def test_other_modes_skip_the_messages_in_a_bad_block(journal: Path) -> None:
    damage_file(journal / FIRST, flip_bits, 1225, 1)
    lost = range(25, 39)  # bytes 1000 to 1560, around the block from 1024 to 1536
    offsets, damages = permissive(journal)
    assert offsets == [offset for offset in range(100) if offset not in lost]
    reason = "the checksum of the block of 512 bytes at 1024 does not match"
    assert damages == [Damage(FIRST, 1000, 1560, reason, "checksum")]
    assert offsets_of(Reader(journal).messages(mode="dropmalformed")) == offsets
    assert Reader(journal).count() == len(offsets)
    assert [message.offset for message in Reader(journal, check_sums=False)] == list(range(100))


def test_every_bad_block_is_skipped_and_reported(journal: Path) -> None:
    for position in (625, 1105, 3025):
        damage_file(journal / FIRST, flip_bits, position, 128)
    offsets, damages = permissive(journal)
    assert [(damage.start, damage.end, damage.kind) for damage in damages] == [
        (480, 1040, "checksum"),
        (1040, 1560, "checksum"),
        (2560, 3080, "checksum"),
    ]
    assert len(offsets) == 100 - 14 - 13 - 13
    report = Reader(journal).verify()
    assert [(problem.position, problem.kind) for problem in report.problems] == [
        (512, "checksum"),
        (1024, "checksum"),
        (2560, "checksum"),
    ]
    assert report.records == 100, "verify counts what has the form of a message"


def test_message_over_many_blocks_is_one_damage(journal_directory: Path) -> None:
    with Writer(journal_directory, checksums=True) as writer:
        for offset in range(5):
            writer.append(noise(300_000, offset) if offset == 2 else value_of(offset))
    for block in (1, 3):
        damage_file(journal_directory / FIRST, flip_bits, block * BLOCK_BYTES + 9, 1)
    items = list(Reader(journal_directory).messages(mode="permissive"))
    assert [item.offset for item in items if isinstance(item, Message)] == [0, 1, 3, 4]
    assert [(item.start, item.end) for item in items if isinstance(item, Damage)] == [(80, 80 + 300_026)]


def test_bad_blocks_across_read_buffers_are_skipped(journal_directory: Path) -> None:
    with Writer(journal_directory, checksums=True) as writer:
        for offset in range(1000):
            writer.append(value_of(offset) * 50, timestamp=offset)
    size = (journal_directory / FIRST).stat().st_size
    blocks = range(0, size, BLOCK_BYTES)
    for block in blocks:
        for other in blocks:
            if other in (block, block + BLOCK_BYTES):
                damage_file(journal_directory / FIRST, flip_bits, other + 5, 2)
        items = list(Reader(journal_directory).messages(mode="permissive"))
        read = {item.offset for item in items if isinstance(item, Message)}
        each = size // 1000
        bad = {offset for offset in range(1000) if _touches(offset * each, each, block, 2 * BLOCK_BYTES)}
        assert read == set(range(1000)) - bad
        for other in blocks:
            if other in (block, block + BLOCK_BYTES):
                damage_file(journal_directory / FIRST, flip_bits, other + 5, 2)
    assert offsets_of(Reader(journal_directory)) == list(range(1000))


def _touches(start: int, size: int, block: int, block_bytes: int) -> bool:
    return start < block + block_bytes and start + size > block


def test_bad_block_before_the_requested_messages_is_ignored(journal: Path) -> None:
    damage_file(journal / FIRST, flip_bits, 1225, 1)
    assert offsets_of(Reader(journal).messages(39)) == list(range(39, 100))
    assert offsets_of(Reader(journal).messages(5, 25)) == list(range(5, 25))
    with pytest.raises(DamagedJournal):
        list(Reader(journal).messages(38))
    with Scanner(journal, 39, timeout=0) as scanner:
        assert offsets_of(scanner) == list(range(39, 100))


def test_last_messages_are_checked(journal: Path) -> None:
    damage_file(journal / FIRST, flip_bits, 3425, 1)
    assert [located.record.offset for located in Reader(journal).last(10)] == list(range(90, 100))
    assert [located.record.offset for located in Reader(journal, check_sums=False).last(20)] == list(range(80, 100))
    with pytest.raises(DamagedJournal, match="block of 512 bytes at 3072") as caught:
        Reader(journal).last(20)
    assert caught.value.position == 3560


def test_times_are_found_past_a_bad_block_and_bad_bytes(journal: Path) -> None:
    damage_file(journal / FIRST, flip_bits, 1225, 1)
    assert Reader(journal).find_time(60) == 60
    damage_file(journal / FIRST, overwrite, 1200, noise(100, 1))
    assert Reader(journal).find_time(60) == 60
    assert Reader(journal).find_time(31) == 33


def test_scanner_stops_or_continues_according_to_its_mode(journal: Path) -> None:
    damage_file(journal / FIRST, flip_bits, 625, 1)
    damage_file(journal / FIRST, flip_bits, 3025, 1)
    left = [*range(12), *range(26, 64), *range(77, 100)]
    with Scanner(journal, timeout=0, mode="dropmalformed") as scanner:
        assert offsets_of(scanner) == left
    with Scanner(journal, timeout=0, mode="permissive") as scanner:
        items = list(scanner)
    assert [item.offset for item in items if isinstance(item, Message)] == left
    assert [(item.start, item.end) for item in items if isinstance(item, Damage)] == [(480, 1040), (2560, 3080)]
    with Scanner(journal, timeout=0) as scanner, pytest.raises(DamagedJournal, match="checksum"):
        list(scanner)


def test_scanner_skips_bad_blocks_in_a_segment_with_a_successor(journal_directory: Path) -> None:
    with Writer(journal_directory, checksums=True, segment_size=400) as writer:
        for offset in range(25):
            writer.append(value_of(offset), timestamp=offset)
    damage_file(journal_directory / "jnl" / segment_name(10), flip_bits, 50, 1)
    with Scanner(journal_directory, timeout=0, mode="dropmalformed") as scanner:
        assert offsets_of(scanner) == [*range(10), *range(20, 25)]
    report = Reader(journal_directory).verify()
    assert [(problem.file, problem.position) for problem in report.problems] == [("jnl/000000000000000a.jnl", 0)]


def test_value_of_a_bad_block_is_not_read_at_the_damaged_end_of_a_finished_segment(journal_directory: Path) -> None:
    with Writer(journal_directory, checksums=True, segment_size=400) as writer:
        for offset in range(25):
            writer.append(value_of(offset), timestamp=offset)
    path = journal_directory / "jnl" / segment_name(10)
    damage_file(path, flip_bits, MESSAGE_BYTES + 30, 1)
    damage_file(path, overwrite, 10 * MESSAGE_BYTES - 4, b"\0\0\0\x01")
    left = [*range(10), *range(20, 25)]
    offsets, damages = permissive(journal_directory)
    assert offsets == left
    assert {(damage.file, damage.kind) for damage in damages} == {(f"jnl/{path.name}", "checksum")}
    assert (damages[0].start, damages[-1].end) == (0, 10 * MESSAGE_BYTES)
    with pytest.raises(DamagedJournal, match="the checksum of the block of 400 bytes at 0 does not match"):
        list(Reader(journal_directory).messages(10))
    with Scanner(journal_directory, timeout=0, mode="dropmalformed") as scanner:
        assert offsets_of(scanner) == left
    with pytest.raises(DamagedJournal, match="checksum"):
        list(Reader(path))


def test_structural_damage_in_a_bad_block_is_within_the_skipped_range(journal: Path) -> None:
    damage_file(journal / FIRST, overwrite, 1200, noise(100, 3))
    offsets, damages = permissive(journal)
    assert offsets == [offset for offset in range(100) if offset not in range(25, 39)]
    assert [(damage.start, damage.end, damage.kind) for damage in damages] == [(1000, 1560, "checksum")]
    assert [(problem.position, problem.kind) for problem in Reader(journal).verify().problems] == [
        (1200, "malformed"),
        (1024, "checksum"),
    ]


def test_no_flipped_bit_is_ever_read_as_a_message(journal: Path) -> None:
    path = journal / FIRST
    data = path.read_bytes()
    path.write_bytes(data)
    unnoticed = 0
    for number, flip in enumerate(bit_flips(data)):
        if number % 37:
            continue
        path.write_bytes(flip.data)
        offsets, damages = permissive(journal)  # which compares the values
        block = flip.position - flip.position % SMALL_BLOCK_BYTES
        lost = sorted(set(range(100)) - set(offsets))
        assert lost
        assert all(_touches(offset * MESSAGE_BYTES, MESSAGE_BYTES, block, SMALL_BLOCK_BYTES) for offset in lost)
        assert damages
        unnoticed += Reader(journal).verify().sound
    COUNTS.add("bit flips", len(data) * 8 // 37, "sej")
    assert unnoticed == 0


def test_flipped_bit_of_a_side_file_loses_at_most_one_block(journal: Path) -> None:
    path = checksum_path(journal / FIRST)
    for flip in bit_flips(path.read_bytes()):
        path.write_bytes(flip.data)
        offsets, damages = permissive(journal)
        if flip.position < HEADER.size:
            assert (len(offsets), damages) == (100, [])
        else:
            assert len(offsets) >= 100 - 14
            assert {damage.kind for damage in damages} in (set(), {"checksum"}, {"truncated"})


def test_flipped_bit_of_the_covered_bytes_is_not_mistaken_for_a_truncated_end(journal: Path) -> None:
    side = checksum_path(journal / FIRST)
    whole, at = side.read_bytes(), HEADER.size + 7 * ENTRY.size
    crc, covered = ENTRY.unpack(whole[at:])
    assert covered == 4000 - 7 * SMALL_BLOCK_BYTES
    larger = [covered ^ 1 << bit for bit in range(9) if covered ^ 1 << bit > covered]
    for claimed in larger:
        side.write_bytes(whole[:at] + ENTRY.pack(crc, claimed))
        assert permissive(journal) == (list(range(100)), [])
        report = Reader(journal).verify()
        message = f"the entry claims to cover {claimed} bytes, but its checksum is that of the first {covered}"
        assert (report.sound, [(note.position, note.message) for note in report.anomalies]) == (True, [(at, message)])
        with Scanner(journal, 99, timeout=0) as scanner:
            assert offsets_of(scanner) == [99]
    damage_file(journal / FIRST, overwrite, 3985, bytes(15))
    found = plan(journal)
    apply(journal, found)
    assert [(loss.at_least, loss.fields["first"]) for loss in found.losses if loss.kind == "lost"] == [(1, 99)]
    assert Reader(journal).verify().sound
    write(journal, 1)
    assert offsets_of(Reader(journal)) == list(range(100))


# --- crashes --------------------------------------------------------------------------------------------------------


def test_side_file_that_lags_leaves_the_rest_uncovered(journal: Path) -> None:
    side = checksum_path(journal / FIRST)
    entries = side.read_bytes()
    for size in range(len(entries)):
        side.write_bytes(entries[:size])
        assert offsets_of(Reader(journal)) == list(range(100))
        assert Reader(journal).verify().sound


def test_end_synced_with_its_checksums_is_never_a_torn_tail(journal: Path) -> None:
    data = (journal / FIRST).read_bytes()
    for torn in torn_tails(data, start=len(data) - 3 * MESSAGE_BYTES):
        (journal / FIRST).write_bytes(torn.data)
        whole = torn.position // MESSAGE_BYTES
        report = Reader(journal).verify()
        assert report.problems[0].kind in ("malformed", "truncated")
        assert {problem.kind for problem in report.problems[1:]} <= {"checksum"}
        assert f"it was synced up to {len(data)}" in report.problems[0].message
        assert report.problems[0].position == whole * MESSAGE_BYTES
        with pytest.raises(DamagedJournal):
            list(Reader(journal))
        with pytest.raises(DamagedJournal, match="it was synced up to 4000"):
            Writer(journal)
        assert Reader(journal).summary().damaged
        assert (journal / FIRST).read_bytes() == torn.data
        COUNTS.add("torn tails", 1, "sej")


@pytest.mark.parametrize("left", [0, 1, 2401, 2430, 2439, 2440])
def test_every_reader_reports_a_truncated_end(journal: Path, left: int) -> None:
    damage_file(journal / FIRST, cut, left)
    reader, whole = Reader(journal), left // MESSAGE_BYTES
    offsets, damages = permissive(journal)
    assert offsets == list(range(whole))
    (damage,) = damages
    assert (damage.start, damage.end) == (whole * MESSAGE_BYTES, left)
    reason = "it was synced up to 4000"
    for target_bytes in (1, 1000, 1 << 30):
        splits = SPLITS.plan(reader, target_bytes)
        found = [item for split in splits for item in SPLITS.chunks(reader, split, "permissive")]
        assert [item for item in found if isinstance(item, Damage)] == damages
        with pytest.raises(DamagedJournal, match=reason):
            [item for split in splits for item in SPLITS.chunks(reader, split)]
    with Scanner(journal, timeout=0, mode="permissive") as followed:
        assert [item if isinstance(item, Damage) else item.offset for item in followed] == [*offsets, damage]
        assert list(followed) == [], "once"
    with Scanner(journal, timeout=0) as stopped:
        for _ in range(whole):
            next(stopped)
        for _ in range(2):
            with pytest.raises(DamagedJournal, match=reason):
                next(stopped)
        apply(journal, plan(journal))
        assert list(stopped) == []
        write(journal, 1)
        assert offsets_of(stopped) == [whole]


def test_consumer_stops_at_a_truncated_end(journal: Path) -> None:
    damage_file(journal / FIRST, cut, 60 * MESSAGE_BYTES)
    handled: list[Message] = []
    with (
        Consumer(journal, "billing", handled.append, timeout=None) as consumer,
        pytest.raises(DamagedJournal, match="@ 2400: the file ends here; it was synced up to 4000"),
    ):
        consumer.run()
    assert (len(handled), consumer.committed) == (60, 60)


def test_follower_of_an_active_writer_never_mistakes_the_end_for_truncated(journal: Path) -> None:
    with Writer(journal, checksums=True, sync="always") as writer, Scanner(journal, 100, timeout=0) as early:
        for offset in range(100, 160):
            writer.append(value_of(offset), timestamp=offset)
            with Scanner(journal, offset, timeout=0) as late:
                assert offsets_of(late) == [offset]
                assert list(late) == []
            assert offsets_of(early) == [offset]


@pytest.mark.parametrize("left", [0, 1, 30, 39])
def test_repair_accounts_for_the_end_of_a_truncated_segment(journal: Path, left: int) -> None:
    damage_file(journal / FIRST, cut, 60 * MESSAGE_BYTES + left)
    found = plan(journal)
    apply(journal, found)
    loss, unproven = found.losses
    assert (loss.position, loss.bytes, loss.at_least, loss.at_most) == (60 * MESSAGE_BYTES, left, 1, None)
    assert (loss.what, loss.fields) == ("whatever there was from message 60 on", {"first": 60, "next": None})
    assert (unproven.kind, unproven.position, unproven.bytes) == ("restored", 2048, 352 + left)
    assert unproven.what == "messages 51 to 59, kept as they are, without a checksum"
    assert unproven.fields == {"first": 51, "next": 60, "proven": False}
    report = Reader(journal).verify()
    assert (report.problems, report.anomalies, len(report.losses)) == ([], [], 2)
    write(journal, 30)
    assert offsets_of(Reader(journal)) == list(range(90))


@pytest.mark.parametrize("deleted", [3, 25, 30, 410])
def test_bytes_deleted_before_the_end_do_not_make_the_end_missing(journal: Path, deleted: int) -> None:
    start = 50 * MESSAGE_BYTES + 5
    damage_file(journal / FIRST, drop, start, start + deleted)
    found = plan(journal)
    first, *more = [loss for loss in found.losses if loss.kind == "lost"]
    assert (first.fields["first"], first.fields["next"]) == (50, 51 + (5 + deleted - 1) // MESSAGE_BYTES)
    doubt = "whatever there was from message 100 on, unless the missing bytes were deleted before"
    expected = [(doubt, 0, None)] if deleted >= 26 else []
    assert [(loss.what, loss.at_least, loss.at_most) for loss in more] == expected
    apply(journal, found)
    assert Reader(journal).verify().problems == []


def test_emptied_segment_is_not_sound(journal: Path) -> None:
    (journal / FIRST).write_bytes(b"")
    assert [problem.kind for problem in Reader(journal).verify().problems] == ["truncated"]
    with pytest.raises(DamagedJournal):
        Writer(journal)
    apply(journal, plan(journal))
    write(journal, 3)
    assert [loss.at_least for loss in Reader(journal).verify().losses] == [1]


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("rest", [b"\0", bytes(30), bytes(600), noise(39, 1)])
def test_cutting_a_torn_tail_keeps_the_coverage_of_checksums(journal: Path, checksums: bool, rest: bytes) -> None:
    damage_file(journal / FIRST, lambda data: data + rest)
    assert offsets_of(Reader(journal)) == list(range(100))
    assert [problem.kind for problem in Reader(journal).verify().problems] == ["torn_tail"]
    write(journal, 28, checksums=checksums)
    assert offsets_of(Reader(journal)) == list(range(128))
    report = Reader(journal).verify()
    assert (report.sound, report.anomalies, report.records) == (True, [], 128)
    sums = Checksums.load(REAL_DISK, checksum_path(journal / FIRST))
    assert sums is not None
    assert covered_bytes(sums, 5120) == (5120 if checksums else 4000)


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize(
    ("damage", "start", "reason"),
    [
        ((insert, 95 * MESSAGE_BYTES + 5, b"\x99" * 60), 3584, "the checksum of the block of 416 bytes at 3584 "),
        ((flip_bits, 3990, 3), 3584, "the checksum of the block of 416 bytes at 3584 does not match"),
        ((drop, 3805, 3810), 3800, "the offset is "),
    ],
    ids=["inserted", "flipped", "deleted"],
)
def test_writer_refuses_a_last_block_that_does_not_match(
    journal: Path, checksums: bool, damage: tuple[Any, ...], start: int, reason: str
) -> None:
    damage_file(journal / FIRST, *damage)
    before, offsets = read_tree(REAL_DISK, journal), permissive(journal)[0]
    with pytest.raises(DamagedJournal) as raised:
        Writer(journal, checksums=checksums)
    assert raised.value.position == start
    assert raised.value.reason.startswith(reason)
    assert raised.value.reason.endswith("nothing is cut off (see logwright repair)")
    assert read_tree(REAL_DISK, journal) == before
    assert Reader(journal).summary().damaged
    apply(journal, plan(journal, accept_checksums=True))
    assert Reader(journal).verify().problems == []
    next_offset = Reader(journal).next
    with Writer(journal, checksums=checksums) as writer:
        assert writer.append(value_of(next_offset)) == next_offset
    assert set(offsets) | {next_offset} <= set(offsets_of(Reader(journal)))


def test_writer_refuses_a_bad_last_block_before_a_torn_tail(journal: Path) -> None:
    damage_file(journal / FIRST, flip_bits, 3990, 3)
    damage_file(journal / FIRST, lambda data: data + bytes(7))
    before = read_tree(REAL_DISK, journal)
    with pytest.raises(DamagedJournal, match="the checksum of the block of 416 bytes at 3584 does not match"):
        Writer(journal)
    assert read_tree(REAL_DISK, journal) == before


def test_writer_continues_after_an_earlier_bad_block(journal: Path) -> None:
    damage_file(journal / FIRST, flip_bits, 3000, 3)
    offsets = permissive(journal)[0]
    write(journal, 20)
    assert permissive(journal)[0] == [*offsets, *range(100, 120)]


def test_writer_continues_after_a_bad_block_that_ends_with_the_file(journal: Path) -> None:
    write(journal, 28)
    assert (journal / FIRST).stat().st_size == 10 * SMALL_BLOCK_BYTES
    damage_file(journal / FIRST, flip_bits, 5110, 3)
    offsets = permissive(journal)[0]
    write(journal, 2)
    assert permissive(journal)[0] == [*offsets, 128, 129]


def test_old_side_file_does_not_apply_to_a_new_segment_of_its_name(journal_directory: Path) -> None:
    with Writer(journal_directory, segment_size=10 * MESSAGE_BYTES) as writer:
        old = journal_directory / "jnl" / segment_name(10)
        old.write_bytes(noise(400, 1))
        file = REAL_DISK.open(old, "read")
        ChecksumWriter.open_at(REAL_DISK, file, 400).close()
        file.close()
        old.unlink()
        for offset in range(25):
            writer.append(value_of(offset), timestamp=offset)
    assert offsets_of(Reader(journal_directory)) == list(range(25))
    assert Reader(journal_directory).verify().sound


def test_bytes_of_a_program_without_checksums_are_not_covered(journal: Path) -> None:
    write(journal, 50, checksums=False)
    assert offsets_of(Reader(journal)) == list(range(150))
    damage_file(journal / FIRST, flip_bits, 130 * MESSAGE_BYTES + 30, 1)
    assert [item.offset for item in Reader(journal) if item.value != value_of(item.offset)] == [130]
    write(journal, 1)
    assert Reader(journal).verify().sound


@pytest.mark.parametrize("is_directory", [False, True])
def test_side_file_that_cannot_be_read_is_logged_once(
    journal: Path, is_directory: bool, caplog: pytest.LogCaptureFixture
) -> None:
    side = checksum_path(journal / FIRST)
    disk = REAL_DISK if is_directory else guarded(side)
    if is_directory:
        side.unlink()
        side.mkdir()

    def by_splits(reader: Reader) -> int:
        chunks = [item for split in SPLITS.plan(reader, 1000) for item in SPLITS.chunks(reader, split)]
        return sum(chunk.count for chunk in chunks if not isinstance(chunk, Damage))

    def by_arrow(reader: Reader) -> int:
        return sum(batch.num_rows for batch in arrow.batches(reader))

    def by_scanner(reader: Reader) -> int:
        with Scanner(journal, timeout=0, disk=disk) as scanner:
            return len(list(scanner))

    ways: list[Callable[[Reader], int]] = [Reader.count, lambda reader: len(reader.last(100))]
    for count in [*ways, by_splits, by_arrow, by_scanner]:
        caplog.clear()
        assert count(Reader(journal, disk=disk)) == 100
        (message,) = caplog.messages
        assert message.startswith(f"{journal / FIRST} is read without its checksums: ")
    caplog.clear()
    assert [problem.kind for problem in Reader(journal, disk=disk).verify().problems] == ["unreadable"]
    assert caplog.messages == []


def test_foreign_side_file_is_reported_and_covers_nothing(journal: Path) -> None:
    checksum_path(journal / FIRST).write_bytes(b"what is this?" * 20)
    assert offsets_of(Reader(journal)) == list(range(100))
    report = Reader(journal).verify()
    assert report.sound
    assert [(anomaly.file, anomaly.kind, anomaly.message) for anomaly in report.anomalies] == [
        (f"{FIRST}.crc", "checksum_file", "this is not a file of checksums")
    ]


@pytest.mark.parametrize(("last", "covered"), [((1, 2), 10 * 512 + 2), ((1, 600), 8 * 512 + 2), ((0, 0), 8 * 512 + 2)])
def test_entries_beyond_the_file_are_reported_and_show_the_loss(
    journal: Path, last: tuple[int, int], covered: int
) -> None:
    side = checksum_path(journal / FIRST)
    side.write_bytes(side.read_bytes() + ENTRY.pack(1, 2) * 2 + ENTRY.pack(*last))
    report = Reader(journal).verify()
    (problem,) = report.problems
    assert (problem.kind, problem.position) == ("truncated", 4000)
    assert f"it was synced up to {covered};" in problem.message
    (anomaly,) = report.anomalies
    assert (anomaly.kind, anomaly.position) == ("checksum_file", HEADER.size + 8 * ENTRY.size)
    assert anomaly.message.startswith("3 entries from here on are for blocks after the end of the file at 4000")


def test_checksums_of_a_segment_are_durable_when_it_is_finished_and_when_the_writer_is_closed(
    simulated_disk: SimulatedDisk,
) -> None:
    def unsynced_checksums() -> list[str]:
        return [what for what in simulated_disk.unsynced() if what.endswith(".crc")]

    with Writer(JOURNAL, segment_size=3 * MESSAGE_BYTES, checksums=True, disk=simulated_disk) as writer:
        for number in range(4):
            writer.append(value_of(number), timestamp=number)
        writer.flush()
        second = f"{JOURNAL / 'jnl' / segment_name(3)}.crc"
        assert unsynced_checksums() == [f"contents of {second}", f"name {second}"]
    assert unsynced_checksums() == []


@pytest.mark.parametrize("sync", ["none", "always"])
def test_power_cut_never_leaves_bytes_that_fail_their_checksums(simulated_disk: SimulatedDisk, sync: str) -> None:
    disk = simulated_disk
    write(JOURNAL, 3, disk=disk, sync=sync)
    write(JOURNAL, 3, disk=disk, sync=sync)
    for state in disk.crash_states(most=12, format="sej"):
        if not state.is_directory(JOURNAL / "jnl"):
            continue
        for item in Reader(JOURNAL, disk=state).messages(mode="permissive"):
            assert not isinstance(item, Damage) or item.kind != "checksum"
        write(JOURNAL, 2, disk=state, sync=sync)
        assert Reader(JOURNAL, disk=state).verify().sound


def test_follower_is_not_misled_by_checksums_that_change_under_it(journal: Path) -> None:
    damage_file(journal / FIRST, lambda data: data + bytes(50))
    with Scanner(journal, timeout=0) as scanner:
        assert offsets_of(scanner) == list(range(100))
        write(journal, 30)
        assert offsets_of(scanner) == list(range(100, 130))


# --- the block as a whole -------------------------------------------------------------------------------------------


def test_plain_read_of_a_checked_file_reports_the_bad_block(journal: Path) -> None:
    damage_file(journal / FIRST, flip_bits, 700, 1)
    reader = Reader(journal)
    file = reader.open_file(reader.segments()[0])
    assert isinstance(file, CheckedFile)
    buffer = memoryview(bytearray(2000))
    count, bad = file.read_and_check(0, buffer)
    assert (count, bad and (bad.start, bad.end)) == (2000, (512, 1024))
    assert file.read_and_check(1024, buffer[:900]) == (900, None)
    file.close()


def test_random_damage_is_skipped_in_whole_blocks(journal: Path) -> None:
    path = journal / FIRST
    data, chance = path.read_bytes(), random.Random(5)
    for _ in range(60):
        changed = bytearray(data)
        positions = sorted(chance.sample(range(len(data) - 3 * MESSAGE_BYTES), 3))
        for position in positions:
            struct.pack_into("B", changed, position, changed[position] ^ chance.randrange(1, 256))
        path.write_bytes(changed)
        offsets, _ = permissive(journal)
        blocks = {position // SMALL_BLOCK_BYTES for position in positions}
        bad = {
            offset
            for offset in range(100)
            for block in blocks
            if _touches(offset * MESSAGE_BYTES, MESSAGE_BYTES, block * SMALL_BLOCK_BYTES, SMALL_BLOCK_BYTES)
        }
        assert set(offsets) == set(range(100)) - bad


def test_messages_that_are_synced_while_the_end_is_looked_for_are_not_missing(
    journal_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Checksums.load
    with Writer(journal_directory, checksums=True) as writer:
        writer.append(b"one")
        writer.sync()

        def load_later(disk: Disk, path: Path) -> Checksums | None:
            writer.append(b"value")
            writer.sync()
            return load(disk, path)

        monkeypatch.setattr(Checksums, "load", load_later)
        reader = Reader(journal_directory)
        assert reader.last(1)[0].record.value == b"value"
        assert not reader.damages
