"""Repairing sej journals: each kind of damage, the restored bytes, the losses, and undo."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK, Disk
from logwright.core.repair.plan import Create, Cut, Patch, Plan, Remove, Rename, list_repairs
from logwright.errors import DamagedJournal, Locked, NotFound, StorageFailed, WrongUse
from logwright.sej.bytes.codec import encode
from logwright.sej.bytes.layout import segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.checksums import Checksums, ChecksumWriter, checksum_path
from logwright.sej.files.index import Index, index_path
from logwright.sej.files.reader import Reader
from logwright.sej.files.repair import apply, plan, rebuild, undo
from logwright.sej.files.segment import list_segments
from logwright.sej.files.shard import ShardedReader, shard_name
from logwright.sej.files.writer import Writer
from logwright.sej.model.offset import Offset
from tests.sej.samples import GOLDEN, MESSAGE_BYTES, covered_bytes, golden_case, make_journal, offsets_of, value_of
from tests.support.counts import COUNTS
from tests.support.damage import (
    cut,
    damage_file,
    drop,
    flip_bits,
    fuzzed,
    hostile_integers,
    increment_byte,
    insert,
    noise,
    overwrite,
    zeros_after,
)
from tests.support.faulty_disk import NEEDS_SPACE, Fault, every_fault
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, differences, load_directory, read_file, read_tree, write_file

FIRST = "jnl/0000000000000000.jnl"
JOURNAL = Path("/journal")


@pytest.fixture
def journal(journal_directory: Path) -> Path:
    """A journal of 25 messages in segments of 10."""
    return make_journal(journal_directory, 25)


def golden(name: str, directory: Path) -> Path:
    """A copy of a journal of the original."""
    shutil.copytree(GOLDEN / name / "sej", directory, dirs_exist_ok=True)
    return directory


def files(path: Path, disk: Disk = REAL_DISK) -> Tree:
    """The files of a journal, without its locks and the kept copies."""
    tree = read_tree(disk, path)
    return {
        name: content
        for name, content in tree.items()
        if content is not None and ".logwright" not in name.split("/") and not name.endswith(".lck")
    }


def repaired(path: Path) -> Plan:
    """Repair a journal, after checking that undo restores every byte; the executed plan."""
    before = files(path)
    found = plan(path)
    assert files(path) == before, "planning changes nothing"
    apply(path, found)
    after = files(path)
    if not found.empty:
        undo(path)
        assert differences(before, files(path)) == []
        assert plan(path) == found
        apply(path, found)
        assert differences(after, files(path)) == []
    assert plan(path).empty, "what can be repaired has been"
    return found


def problems(path: Path) -> list[tuple[str, int, str]]:
    return [(problem.file, problem.position, problem.kind) for problem in Reader(path).verify().problems]


def readable(path: Path) -> list[Message]:
    return [item for item in Reader(path).messages(mode="dropmalformed") if isinstance(item, Message)]


def kinds(plan: Plan) -> list[str]:
    return [type(step).__name__ for step in plan.steps]


def lost(plan: Plan) -> list[tuple[int, int | None]]:
    """The lost offsets of a plan: first and next of each range."""
    return [(loss.fields["first"], loss.fields["next"]) for loss in plan.losses if loss.kind == "lost"]


def restored(plan: Plan) -> list[tuple[int, str]]:
    """The fields that a plan restores, each with the offset of its message."""
    return [(loss.fields["offset"], loss.fields["field"]) for loss in plan.losses if "field" in loss.fields]


# --- what happened to the journals of the original ------------------------------------------------------------------

TORN = [
    "torn_1", "torn_3", "torn_4", "torn_10", "torn_25", "torn_150", "torn_700", "garbage_10", "garbage_40",
    "garbage_zeros", "cut_in_first", "multi_torn_last", "multi_torn_first_of_last",
]  # fmt: skip


@pytest.mark.parametrize("name", TORN)
def test_torn_tail_is_cut_where_the_original_cuts_it_and_kept(name: str, journal_directory: Path) -> None:
    golden(name, journal_directory)
    last = golden_case(name)["go_writer_open"]["segments_after"][-1]
    whole = (journal_directory / "jnl" / last["name"]).read_bytes()
    (step,) = repaired(journal_directory).steps
    assert isinstance(step, Cut)
    assert (step.file, step.start, step.end) == (f"jnl/{last['name']}", last["size"], len(whole))
    assert (journal_directory / step.file).read_bytes() == whole[: last["size"]]
    kept = [path.read_bytes() for path in list_repairs(REAL_DISK, journal_directory)[-1].kept]
    assert kept == [whole[last["size"] :]]
    assert Reader(journal_directory).verify().sound


@pytest.mark.parametrize("name", ["midflip_size", "midflip_key_negative", "midflip_offset"])
def test_wrong_field_is_repaired_to_the_byte(name: str, journal_directory: Path) -> None:
    golden(name, journal_directory)
    assert kinds(repaired(journal_directory)) == ["Patch"]
    assert files(journal_directory) == files(GOLDEN / "types256" / "sej")
    assert Reader(journal_directory).verify().sound


def test_wrong_field_and_a_torn_tail_are_both_repaired(journal_directory: Path) -> None:
    golden("midflip_size_torn", journal_directory)
    assert kinds(repaired(journal_directory)) == ["Patch", "Cut"]
    whole = (GOLDEN / "types256" / "sej" / FIRST).read_bytes()
    assert (journal_directory / FIRST).read_bytes() == whole[:7617]
    assert Reader(journal_directory).verify().records == 255


def test_torn_middle_segment_is_cut_and_leaves_a_gap(journal_directory: Path) -> None:
    golden("multi_torn_middle", journal_directory)
    found = repaired(journal_directory)
    assert kinds(found) == ["Cut"]
    assert found.left == ()
    (loss,) = found.losses
    assert (loss.file, loss.position, loss.bytes) == ("jnl/0000000000000006.jnl", 243, 80)
    assert (loss.at_least, loss.at_most, lost(found)) == (1, 1, [(11, 12)])
    assert loss.reason == "only 80 of the message's 85 bytes are there"
    report = Reader(journal_directory).verify()
    assert (report.sound, [known.what for known in report.losses]) == (True, [loss.what])
    assert offsets_of(readable(journal_directory)) == [*range(11), *range(12, 40)]


@pytest.mark.parametrize("name", ["types256", "multi", "fifty", "offsets", "empty", "midflip_value", "cut_to_zero"])
def test_sound_journal_has_an_empty_plan(name: str, journal_directory: Path) -> None:
    golden(name, journal_directory)
    found = plan(journal_directory)
    assert (found.empty, found.left, found.locks) == (True, (), ("jnl.lck",))
    assert apply(journal_directory, found) is None
    assert not (journal_directory / ".logwright").exists()
    with pytest.raises(NotFound):
        undo(journal_directory)


def test_messages_of_a_missing_file_are_reported_as_lost(journal_directory: Path) -> None:
    golden("gap", journal_directory)
    assert not Reader(journal_directory).verify().sound
    found = repaired(journal_directory)
    assert (found.steps, found.left, lost(found)) == ((), (), [(12, 16)])
    assert found.describe() == [
        "lost 4 records: messages 12 to 15 (jnl/0000000000000010.jnl @ 0: 0 bytes: the segment begins with offset 16 "
        "where 12 was expected: messages 12 to 15 are missing; so is the file that had them, or its end)"
    ]
    assert Reader(journal_directory).verify().sound


# --- one wrong field ------------------------------------------------------------------------------------------------


def varied(count: int, seed: int) -> list[Message]:
    """Messages with keys and values of many lengths, of random bytes."""
    chance = random.Random(seed)
    return [
        Message(
            offset,
            1_700_000_000_000_000_000 + offset,
            chance.randrange(256),
            chance.randbytes(chance.choice((0, 1, 8, 20, 127))),
            chance.randbytes(chance.choice((0, 1, 30, 300))),
        )
        for offset in range(count)
    ]


def write_segments(path: Path, messages: list[Message], per_segment: int) -> None:
    (path / "jnl").mkdir(exist_ok=True)
    for first in range(0, len(messages), per_segment):
        data = b"".join(map(encode, messages[first : first + per_segment]))
        (path / "jnl" / segment_name(messages[first].offset)).write_bytes(data)


def fields_of(message: Message) -> dict[str, tuple[int, int]]:
    """The position and length of each field that can be repaired."""
    key = len(message.key)
    return {"offset": (0, 8), "key_size": (17, 1), "value_size": (18 + key, 4), "size": (message.size - 4, 4)}


@pytest.mark.parametrize("field", ["offset", "value_size", "size"])
def test_one_wrong_byte_of_a_field_is_restored_and_more_are_a_loss(
    simulated_disk: SimulatedDisk, tmp_path: Path, field: str
) -> None:
    messages = varied(24, seed=1)
    write_segments(tmp_path, messages, per_segment=8)
    load_directory(tmp_path, simulated_disk, JOURNAL)
    before = files(JOURNAL, simulated_disk)
    chance = random.Random(2)
    tried = {True: 0, False: 0}
    for number, message in enumerate(messages[:-1]):
        first = number - number % 8
        path = JOURNAL / "jnl" / segment_name(first)
        whole = read_file(simulated_disk, path)
        position, size = fields_of(message)[field]
        position += sum(other.size for other in messages[first:number])
        right = whole[position : position + size]
        for value in _wrong_values(right, chance):
            disk = simulated_disk.copy()
            write_file(disk, path, overwrite(whole, position, value))
            found = plan(JOURNAL, disk=disk)
            apply(JOURNAL, found, disk=disk)
            is_one_byte = sum(one != other for one, other in zip(value, right, strict=True)) == 1
            if is_one_byte:
                assert (kinds(found), restored(found)) == (["Patch"], [(number, field.replace("_", " "))]), value.hex()
                assert differences(before, files(JOURNAL, disk)) == []
            else:
                assert (lost(found), restored(found)) == ([(number, number + 1)], []), value.hex()
                assert _by_offset(disk) == {other.offset: other for other in messages if other is not message}
            tried[is_one_byte] += 1
    COUNTS.add("hostile inputs", sum(tried.values()), "sej")
    assert min(tried.values()) > 50


def _wrong_values(right: bytes, chance: random.Random) -> list[bytes]:
    """Other values of a field: some that break careless code, one at random, and a flipped bit of each byte."""
    values = {*chance.sample(hostile_integers(len(right)), 3), chance.randbytes(len(right))}
    values |= {flip_bits(right, byte, 1 << chance.randrange(8)) for byte in range(len(right))}
    return sorted(values - {right})


def test_key_size_is_restored_only_if_no_value_size_explains_it_too(
    simulated_disk: SimulatedDisk, tmp_path: Path
) -> None:
    messages = varied(24, seed=1)
    write_segments(tmp_path, messages, per_segment=24)
    load_directory(tmp_path, simulated_disk, JOURNAL)
    before = files(JOURNAL, simulated_disk)
    whole = read_file(simulated_disk, JOURNAL / FIRST)
    for number, message in enumerate(messages[:-1]):
        position = sum(other.size for other in messages[:number]) + 17
        for key_size in (0x80 | len(message.key), (len(message.key) + 1) % 128):
            disk = simulated_disk.copy()
            write_file(disk, JOURNAL / FIRST, overwrite(whole, position, bytes([key_size])))
            found = plan(JOURNAL, disk=disk)
            apply(JOURNAL, found, disk=disk)
            is_alone = key_size > 127 or key_size > message.size - 26
            assert (restored(found), lost(found)) == (
                ([(number, "key size")], []) if is_alone else ([], [(number, number + 1)])
            )
            if is_alone:
                assert differences(before, files(JOURNAL, disk)) == []


def test_only_the_last_of_several_wrong_fields_is_followed_by_whole_messages_alone(
    journal_directory: Path,
) -> None:
    messages = varied(20, seed=3)
    write_segments(journal_directory, messages, per_segment=20)
    starts = [sum(message.size for message in messages[:number]) for number in range(20)]
    data = (journal_directory / FIRST).read_bytes()
    for number, field in ((4, "offset"), (6, "value_size"), (12, "offset")):
        data = flip_bits(data, starts[number] + fields_of(messages[number])[field][0], 64)
    (journal_directory / FIRST).write_bytes(data)
    found = repaired(journal_directory)
    assert lost(found) == [(4, 5), (6, 7)]
    assert restored(found) == [(12, "offset")]
    assert readable(journal_directory) == [message for message in messages if message.offset not in (4, 6)]


def test_last_message_of_a_segment_is_repaired_if_another_follows(journal: Path) -> None:
    before = files(journal)
    for position, value in ((9 * MESSAGE_BYTES + 39, b"\x68"), (9 * MESSAGE_BYTES + 17, b"\x80"), (360, b"\x01")):
        damage_file(journal / FIRST, overwrite, position, value)
        assert kinds(repaired(journal)) == ["Patch"]
        assert files(journal) == before


def test_last_message_of_the_journal_is_a_torn_tail(journal: Path) -> None:
    damage_file(journal / "jnl" / segment_name(20), overwrite, 196, b"\0\0\0\0")
    assert kinds(repaired(journal)) == ["Cut"]
    assert offsets_of(Reader(journal)) == list(range(24))


def _with_length_inside(offset: int, key: bytes, size: int) -> Message:
    """A message whose value begins with the length of its rest, as in many programs."""
    return Message(offset, 1, 0, key, struct.pack(">i", size) + noise(size, offset))


def test_value_that_begins_with_its_length_is_not_mistaken_for_a_key(journal_directory: Path) -> None:
    messages = [_with_length_inside(offset, b"key", 50 + offset) for offset in range(5)]
    write_segments(journal_directory, messages, per_segment=5)
    start = messages[0].size + messages[1].size
    damage_file(journal_directory / FIRST, overwrite, start + 18 + 3, b"\0\0\0\x37")
    found = repaired(journal_directory)
    assert (lost(found), restored(found)) == ([(2, 3)], []), "a key of seven bytes explains it as well"
    assert readable(journal_directory) == [message for message in messages if message.offset != 2]


def test_keys_of_zeros_are_not_mistaken_for_sizes(journal_directory: Path) -> None:
    messages = [Message(offset, 1, 0, offset.to_bytes(8, "big"), noise(38, offset)) for offset in range(60)]
    write_segments(journal_directory, messages, per_segment=60)
    whole = (journal_directory / FIRST).read_bytes()
    for number in (3, 42):
        start = number * messages[0].size
        for position, value in ((17, b"\0"), (17, b"\x0c"), (26, b"\0\0\0\x27"), (26, b"\x7f\0\0\0")):
            (journal_directory / FIRST).write_bytes(overwrite(whole, start + position, value))
            found = plan(journal_directory)
            apply(journal_directory, found)
            right = messages if not lost(found) else [message for message in messages if message.offset != number]
            assert readable(journal_directory) == right
            assert lost(found) == [(number, number + 1)] or restored(found) == [(number, "value size")]
            undo(journal_directory)


@pytest.mark.parametrize("field", ["size", "value_size", "key_size"])
def test_messages_within_a_value_are_not_mistaken_for_those_of_the_journal(journal_directory: Path, field: str) -> None:
    inner = b"".join(encode(Message(offset, 1, 0, b"inner", b"inner")) for offset in range(3, 8))
    messages = [Message(offset, 1, 0, b"key", inner if offset == 2 else noise(30, offset)) for offset in range(6)]
    write_segments(journal_directory, messages, per_segment=6)
    whole = (journal_directory / FIRST).read_bytes()
    position, size = fields_of(messages[2])[field]
    position += messages[0].size + messages[1].size
    (journal_directory / FIRST).write_bytes(flip_bits(whole, position, 0x80))
    assert restored(repaired(journal_directory)) == [(2, field.replace("_", " "))]
    assert (journal_directory / FIRST).read_bytes() == whole
    (journal_directory / FIRST).write_bytes(overwrite(whole, position - 2, b"\x11" * (size + 2)))
    assert lost(repaired(journal_directory)) == [(2, 3)]
    assert readable(journal_directory) == [message for message in messages if message.offset != 2]


def test_key_size_or_offset_is_not_restored_if_the_time_beside_it_was_overwritten_too(
    journal_directory: Path,
) -> None:
    moment = 1_760_000_000_000_000_000
    messages = [Message(offset, moment + offset, 1, b"k%d" % offset, b"value") for offset in range(9)]
    write_segments(journal_directory, messages, per_segment=9)
    whole = (journal_directory / FIRST).read_bytes()
    start = 4 * messages[0].size
    for position, data in ((start + 10, b"2026-11-"), (start + 7, b"\x63\x40")):
        (journal_directory / FIRST).write_bytes(overwrite(whole, position, data))
        found = repaired(journal_directory)
        assert (lost(found), restored(found)) == ([(4, 5)], [])
        assert readable(journal_directory) == messages[:4] + messages[5:]
        undo(journal_directory)
    (journal_directory / FIRST).write_bytes(overwrite(whole, start + 17, b"-"))
    assert restored(repaired(journal_directory)) == [(4, "key size")]
    assert (journal_directory / FIRST).read_bytes() == whole


@pytest.mark.parametrize("copied", [2, 9, 18])
def test_copy_of_the_beginning_at_the_end_does_not_replace_messages(journal_directory: Path, copied: int) -> None:
    messages = [Message(offset, 1, 0, b"key", noise(30, offset)) for offset in range(20)]
    write_segments(journal_directory, messages, per_segment=20)
    whole = (journal_directory / FIRST).read_bytes()
    stale = whole[: copied * messages[0].size + 10]
    (journal_directory / FIRST).write_bytes(overwrite(whole, 0, b"\xa5" * messages[0].size) + stale)
    done = repaired(journal_directory)
    assert lost(done) == [(0, 1), (20, None)], "no crash copies messages, so more may have been there"
    assert readable(journal_directory) == messages[1:]


@pytest.mark.parametrize("copied", [1, 2, 9, 14])
@pytest.mark.parametrize("begin", [1, 20, 40])
@pytest.mark.parametrize("at_end", [True, False])
def test_copy_that_begins_within_a_message_does_not_replace_the_messages_of_the_journal(
    journal_directory: Path, copied: int, begin: int, at_end: bool
) -> None:
    messages = [Message(offset, 1, 0, b"key", noise(30, offset)) for offset in range(20)]
    write_segments(journal_directory, messages, per_segment=20)
    whole = (journal_directory / FIRST).read_bytes()
    size = messages[0].size
    stale = whole[4 * size + begin : (5 + copied) * size + 10]
    damaged = overwrite(whole, 4 * size, b"\xa5" * size)
    place = len(damaged) if at_end else 19 * size
    (journal_directory / FIRST).write_bytes(insert(damaged, place, stale))
    is_torn = not at_end or copied == 1  # a single message does not prove a copy
    assert lost(repaired(journal_directory)) == ([(4, 5)] if is_torn else [(4, 5), (20, None)])
    assert readable(journal_directory) == messages[:4] + messages[5:]


@pytest.mark.parametrize("bad", [17, 18, 19])
@pytest.mark.parametrize("copied", [(0, 4), (9, 11), (12, 16)])
@pytest.mark.parametrize("rest", [0, 10, 40])
def test_copy_over_the_end_is_in_the_account(
    journal_directory: Path, bad: int, copied: tuple[int, int], rest: int
) -> None:
    messages = [Message(offset, 1, 0, b"key", noise(30, offset)) for offset in range(20)]
    write_segments(journal_directory, messages, per_segment=20)
    whole = (journal_directory / FIRST).read_bytes()
    size = messages[0].size
    first, after = (number * size for number in copied)
    damaged = overwrite(whole, bad * size, b"\xa5" * 20)[: (bad + 2) * size]  # and one whole message, if any follows
    (journal_directory / FIRST).write_bytes(damaged + whole[first : after + rest])
    with pytest.raises(DamagedJournal, match=f"a copy of earlier messages follows: from {copied[0]} on"):
        Writer(journal_directory)
    found = repaired(journal_directory)
    assert lost(found) == [(bad, None)]
    assert (found.losses[0].at_least, found.losses[0].at_most) == (0, None)
    assert readable(journal_directory) == messages[:bad]


def test_messages_that_a_size_after_them_happens_to_span_are_in_the_account(journal_directory: Path) -> None:
    messages = [Message(offset, 1, 0, b"key", noise(30, offset)) for offset in range(20)]
    write_segments(journal_directory, messages, per_segment=20)
    whole = (journal_directory / FIRST).read_bytes()
    size = messages[0].size
    damaged = overwrite(whole, 4 * size, b"\xa5" * size)
    span = struct.pack(">i", 17 * size)  # from within message 3 on
    (journal_directory / FIRST).write_bytes(damaged + b"\xff" * 9 + span + whole[5 * size : 8 * size + 10])
    found = repaired(journal_directory)
    assert lost(found) == [(4, 5), (8, None)]
    assert found.losses[1].fields == {"first": 5, "next": 8, "proven": False}
    assert (found.losses[2].at_least, found.losses[2].at_most) == (0, 12)


def test_whole_messages_removed_in_favour_of_others_are_in_the_account(journal_directory: Path) -> None:
    messages = [Message(offset, 1, 0, b"key", noise(30, offset)) for offset in range(20)]
    write_segments(journal_directory, messages, per_segment=20)
    whole = (journal_directory / FIRST).read_bytes()
    size = messages[0].size
    damaged = overwrite(whole, 4 * size, b"\xa5" * size)
    (journal_directory / FIRST).write_bytes(damaged + b"\xff" * 9 + whole[5 * size : 8 * size + 10])
    found = repaired(journal_directory)
    assert lost(found) == [(4, 5), (8, None)]
    assert found.losses[1].fields == {"first": 5, "next": 8, "proven": False}
    assert (found.losses[2].at_least, found.losses[2].at_most) == (0, 12)
    assert found.losses[2].what == "messages 8 to 19, unless they were copies or part of a value"


def journal_in_a_value(directory: Path, inner: Iterable[int], *, count: int = 10) -> tuple[list[Message], int]:
    """A journal whose message 5 has whole messages with these offsets as its value; and the position of message 5."""
    value = b"".join(encode(Message(offset, 1, 0, b"", noise(20, 100 + offset))) for offset in inner)
    messages = [Message(offset, 1, 0, b"key", noise(30, offset)) for offset in range(count)]
    messages[5] = Message(5, 1, 0, b"key", value)
    write_segments(directory, messages, per_segment=count)
    return messages, sum(message.size for message in messages[:5])


@pytest.mark.parametrize("inner", [range(5, 8), range(6, 9), range(5, 6), range(3, 12), range(7, 20), range(6)])
@pytest.mark.parametrize("count", [6, 7, 8, 10])
@pytest.mark.parametrize("damage", ["delete", "insert", "zero", "noise"])
def test_messages_in_the_value_of_a_headless_message_are_not_recovered(
    journal_directory: Path, inner: range, count: int, damage: str
) -> None:
    messages, start = journal_in_a_value(journal_directory, inner, count=count)
    path = journal_directory / FIRST
    match damage:
        case "delete":
            damage_file(path, drop, start + 3, start + 4)
        case "insert":
            damage_file(path, insert, start + 3, b"\x07")
        case "zero":
            damage_file(path, overwrite, start, bytes(21))
        case _:
            damage_file(path, overwrite, start, noise(21, 3))
    found = repaired(journal_directory)
    assert readable(journal_directory) == [message for message in messages if message.offset != 5]
    assert (lost(found), restored(found)) == ([(5, 6 if count > 6 else None)], [])


def test_messages_in_a_value_are_not_recovered_if_later_ones_miss_the_end(
    journal_directory: Path,
) -> None:
    messages, start = journal_in_a_value(journal_directory, range(5, 8), count=12)
    path = journal_directory / FIRST
    damage_file(path, drop, start + 3, start + 4)
    end_of_5 = start + messages[5].size - 1
    damage_file(path, overwrite, end_of_5 - 4, b"\xff" * 4)
    damage_file(path, overwrite, end_of_5 + 2 * messages[6].size, b"\xff" * 30)
    found = repaired(journal_directory)
    assert lost(found) == [(5, 9)], "two stretches have messages 6 and 7, and nothing shows which are the journal's"
    assert readable(journal_directory) == messages[:5] + messages[9:]


@pytest.mark.parametrize("torn", [0, 1, 30])
def test_messages_in_the_value_of_a_truncated_message_are_not_recovered(journal_directory: Path, torn: int) -> None:
    inner = b"".join(encode(Message(offset, 1, 0, b"inner", noise(60, offset))) for offset in range(5, 9))
    messages = [Message(offset, 1, 0, b"key", noise(30, offset)) for offset in range(4)]
    write_segments(journal_directory, [*messages, Message(4, 1, 0, b"key", inner)], per_segment=5)
    start = sum(message.size for message in messages)
    damage_file(journal_directory / FIRST, cut, start + 18 + 3 + 4 + len(inner) // 2 + torn)
    with pytest.raises(DamagedJournal):
        Writer(journal_directory)
    found = repaired(journal_directory)
    assert (kinds(found), lost(found)) == (["Cut"], [(4, None)])
    assert [loss.what for loss in found.losses] == [
        "whatever there was from message 4 on; removed too, because they may be its value: messages 5 to 6"
    ]
    assert readable(journal_directory) == messages
    with Writer(journal_directory) as writer:
        assert writer.next_offset == 4


def test_messages_up_to_the_end_that_may_be_a_truncated_value_are_kept_and_named(
    journal_directory: Path,
) -> None:
    messages = [Message(offset, 1, 0, b"key", noise(30, offset)) for offset in range(8)]
    write_segments(journal_directory, messages, per_segment=8)
    start = sum(message.size for message in messages[:4])
    damage_file(journal_directory / FIRST, overwrite, start + 18 + 3, b"\x7f" * (4 + 30 + 4))
    found = repaired(journal_directory)
    assert lost(found) == [(4, 5)]
    (loss,) = [loss for loss in found.losses if loss.kind == "restored"]
    assert loss.what == "messages 5 to 7: they follow damage, and may be bytes of the value of message 4"
    assert (loss.position, loss.fields) == (start + messages[4].size, {"first": 5, "next": 8, "proven": False})
    assert offsets_of(readable(journal_directory)) == [0, 1, 2, 3, 5, 6, 7]


def test_messages_between_two_damages_are_named_only_if_the_bad_bytes_can_hold_them(
    journal_directory: Path,
) -> None:
    messages = [Message(offset, 1, 0, b"key", noise(100, offset)) for offset in range(40)]
    write_segments(journal_directory, messages, per_segment=40)
    whole = (journal_directory / FIRST).read_bytes()
    for second, named in ((10, [(4, 10)]), (12, []), (35, [])):
        data = whole
        for number in (3, second):
            data = overwrite(data, number * messages[0].size, b"\xff" * messages[0].size)
        (journal_directory / FIRST).write_bytes(data)
        found = plan(journal_directory)
        assert lost(found) == [(3, 4), (second, second + 1)]
        kept = [(loss.fields["first"], loss.fields["next"]) for loss in found.losses if loss.kind == "restored"]
        assert kept == named
    apply(journal_directory, found)
    assert readable(journal_directory) == [message for message in messages if message.offset not in (3, 35)]


def test_ambiguous_fields_are_not_guessed(journal_directory: Path) -> None:
    keys = [b"a", b"bb", b"ccc", b"dddd", b"eeeee"]
    messages = [_with_length_inside(offset, key, 50) for offset, key in enumerate(keys)]
    write_segments(journal_directory, messages, per_segment=5)
    start = messages[0].size + messages[1].size
    damage_file(journal_directory / FIRST, overwrite, start + 18 + 3, b"\xde\xad\xbe\xef")
    found = repaired(journal_directory)
    assert kinds(found) == ["Create", "Cut"]
    assert offsets_of(readable(journal_directory)) == [0, 1, 3, 4]


# --- more than a field ----------------------------------------------------------------------------------------------


def wordy(count: int) -> list[Message]:
    """Messages of 1024 bytes of text, as programs write them: no byte of key, value, time or type is zero."""
    moment = 0x1717171717171717
    return [Message(n, moment + n, 7, b"key-%02d" % n * 5, (b"value %02d, " % n * 100)[:968]) for n in range(count)]


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        (512, 1024),  # a sector: half of the value, and the size after it
        (1016, 1024),
        (1019, 1023),
        (16, 60),  # type, key size, key, value size
        (12, 18),
        (17, 52),
        (44, 52),
        (48, 60),
        (0, 12),
    ],
)
def test_partly_overwritten_message_is_lost_and_never_reconstructed(
    journal_directory: Path, start: int, end: int, byte: bytes
) -> None:
    messages = wordy(4)
    assert {message.size for message in messages} == {1024}
    write_segments(journal_directory, messages, per_segment=4)
    damage_file(journal_directory / FIRST, overwrite, 1024 + start, byte * (end - start))
    found = repaired(journal_directory)
    assert kinds(found) == ["Create", "Cut"]
    assert (lost(found), restored(found), found.left) == ([(1, 2)], [], ())
    assert readable(journal_directory) == [messages[0], *messages[2:]]
    assert problems(journal_directory) == []


def test_run_of_equal_bytes_anywhere_never_changes_a_message(simulated_disk: SimulatedDisk, tmp_path: Path) -> None:
    messages = wordy(6)
    write_segments(tmp_path, messages, per_segment=3)
    load_directory(tmp_path, simulated_disk, JOURNAL)
    whole = read_file(simulated_disk, JOURNAL / FIRST)
    chance = random.Random(8)
    borders = [1024 * number + place for number in range(3) for place in (0, 8, 16, 18, 48, 52, 1020)]
    for _ in range(300):
        disk = simulated_disk.copy()
        start = min(max(0, chance.choice(borders) + chance.randrange(-12, 12)), len(whole) - 4)
        size = min(chance.choice((4, 5, 6, 8, 12, 40, 512)), len(whole) - start)
        write_file(disk, JOURNAL / FIRST, overwrite(whole, start, chance.choice((b"\0", b"\xff")) * size))
        if not Reader(JOURNAL, disk=disk).verify().sound and (found := plan(JOURNAL, disk=disk)).steps:
            before = _by_offset(disk)
            apply(JOURNAL, found, disk=disk)
            more = {offset: item for offset, item in _by_offset(disk).items() if offset not in before}
            assert more == {offset: messages[offset] for offset in more}, (start, size)
        COUNTS.add("hostile inputs", 1, "sej")


@pytest.mark.parametrize("per_segment", [1, 2])
def test_renamed_files_are_left_and_no_message_gets_another_number(journal_directory: Path, per_segment: int) -> None:
    messages = wordy(6 * per_segment)
    write_segments(journal_directory, messages, per_segment)
    first, second = (journal_directory / "jnl" / segment_name(number * per_segment) for number in (2, 4))
    swapped = second.read_bytes(), first.read_bytes()
    first.write_bytes(swapped[0])
    second.write_bytes(swapped[1])
    found = plan(journal_directory)
    assert found.empty
    assert [line.split(": ", 1)[1] for line in found.left] == [
        f"it begins with message {number * per_segment}, which belongs elsewhere: its name may be another file's"
        for number in (4, 2)
    ]
    assert {problem[0] for problem in problems(journal_directory)} == {f"jnl/{first.name}", f"jnl/{second.name}"}
    assert all(message == messages[message.offset] for message in readable(journal_directory))


def test_wrong_offset_of_a_lone_message_is_repaired_if_it_is_unique(journal_directory: Path) -> None:
    write_segments(journal_directory, wordy(4), per_segment=1)
    before = files(journal_directory)
    path = journal_directory / "jnl" / segment_name(2)
    damage_file(path, flip_bits, 2, 16)
    assert kinds(repaired(journal_directory)) == ["Patch"]
    assert files(journal_directory) == before


# --- splitting ------------------------------------------------------------------------------------------------------


def test_irreparable_bytes_are_removed_and_the_rest_moves_to_a_new_segment(journal: Path) -> None:
    path = journal / "jnl" / segment_name(10)
    whole = path.read_bytes()
    bad = overwrite(whole, 3 * MESSAGE_BYTES, noise(50, 1))
    path.write_bytes(bad)
    found = repaired(journal)
    created = found.steps[0]
    assert isinstance(created, Create)
    assert [step for step in found.steps if step.file.startswith("jnl")] == [
        Create("jnl/000000000000000f.jnl", "jnl/000000000000000a.jnl", created.spans,
               "the whole messages after the damage"),
        Cut("jnl/000000000000000a.jnl", 120, 400, found.steps[1].reason),
    ]  # fmt: skip
    assert path.read_bytes() == whole[:120]
    assert (journal / "jnl" / segment_name(15)).read_bytes() == whole[200:]
    assert [message.value for message in readable(journal)] == [value_of(n) for n in range(25) if n not in (13, 14)]
    assert problems(journal) == []
    (loss,) = found.losses
    assert (loss.file, loss.position, loss.bytes) == ("jnl/000000000000000a.jnl", 120, 80)
    between = "1970-01-01T00:00:00.000000012Z and 1970-01-01T00:00:00.000000015Z"
    assert (loss.at_least, loss.at_most, loss.what) == (2, 2, f"messages 13 to 14, written between {between}")
    assert loss.fields == {"first": 13, "next": 15, "after": 12, "before": 15}
    damages = [item for item in Reader(journal).messages(mode="permissive") if isinstance(item, Damage)]
    assert [(damage.file, damage.kind) for damage in damages] == [("jnl/000000000000000f.jnl", "lost")]
    assert list_repairs(REAL_DISK, journal)[-1].kept[0].read_bytes() == bad[120:]


def test_each_range_after_damage_becomes_a_segment_and_is_repaired(journal_directory: Path) -> None:
    make_journal(journal_directory, 30, per_segment=40)
    whole = (journal_directory / FIRST).read_bytes()
    damage_file(journal_directory / FIRST, overwrite, 5 * MESSAGE_BYTES, noise(60, 1))
    damage_file(journal_directory / FIRST, overwrite, 15 * MESSAGE_BYTES, noise(60, 2))
    damage_file(journal_directory / FIRST, flip_bits, 20 * MESSAGE_BYTES + 37, 1)
    damage_file(journal_directory / FIRST, cut, 30 * MESSAGE_BYTES - 7)
    found = repaired(journal_directory)
    assert [step for step in kinds(found) if step != "Remove"] == ["Create", "Create", "Patch", "Cut"]
    assert (lost(found), restored(found)) == ([(5, 7), (15, 17)], [(20, "size")])
    assert (journal_directory / FIRST).read_bytes() == whole[: 5 * MESSAGE_BYTES]
    assert (journal_directory / "jnl" / segment_name(7)).read_bytes() == whole[7 * MESSAGE_BYTES : 15 * MESSAGE_BYTES]
    assert (journal_directory / "jnl" / segment_name(17)).read_bytes() == whole[17 * MESSAGE_BYTES : 29 * MESSAGE_BYTES]
    assert offsets_of(readable(journal_directory)) == [*range(5), *range(7, 15), *range(17, 29)]
    with Writer(journal_directory) as writer:
        assert writer.append(b"goes on") == 29


def test_foreign_bytes_are_removed_without_loss(journal: Path) -> None:
    damage_file(journal / FIRST, insert, 3 * MESSAGE_BYTES, noise(50, 4))
    found = repaired(journal)
    assert found.left == ()
    assert Reader(journal).verify().sound
    assert offsets_of(Reader(journal)) == list(range(25))
    assert [segment.first_offset for segment in Reader(journal).segments()] == [0, 3, 10, 20]


def test_bytes_before_the_first_message_are_removed_and_the_segment_keeps_its_name(journal: Path) -> None:
    whole = (journal / FIRST).read_bytes()
    damage_file(journal / FIRST, insert, 0, noise(50, 4))
    found = repaired(journal)
    assert [kind for kind in kinds(found) if kind != "Remove"] == ["Create", "Rename"]
    assert Rename(f"{FIRST}.replacement", FIRST, "it begins with the offset of its name") in found.steps
    assert (journal / FIRST).read_bytes() == whole
    assert Reader(journal).verify().sound


def test_segment_whose_first_messages_are_bad_stays_as_an_empty_file_before_the_gap(journal: Path) -> None:
    damage_file(journal / FIRST, overwrite, 0, noise(2 * MESSAGE_BYTES - 10, 4))
    assert lost(repaired(journal)) == [(0, 2)]
    assert (journal / FIRST).read_bytes() == b""
    assert [segment.first_offset for segment in Reader(journal).segments()] == [0, 2, 10, 20]
    assert problems(journal) == []
    assert offsets_of(readable(journal)) == list(range(2, 25))


def test_messages_missing_within_a_file_make_it_two_files(journal: Path) -> None:
    damage_file(journal / FIRST, drop, 3 * MESSAGE_BYTES, 5 * MESSAGE_BYTES)
    (loss,) = repaired(journal).losses
    assert [segment.first_offset for segment in Reader(journal).segments()] == [0, 5, 10, 20]
    assert offsets_of(readable(journal)) == [*range(3), *range(5, 25)]
    assert problems(journal) == []
    assert (loss.fields["first"], loss.fields["next"], loss.fields["suspect"]) == (3, 5, 2)
    assert loss.what.endswith("; the message before, 2, may have been changed")


def test_segment_under_a_wrong_name_gets_the_right_one(journal_directory: Path) -> None:
    make_journal(journal_directory, 10)
    shutil.rmtree(journal_directory / "idx")
    (journal_directory / "jnl" / segment_name(10)).unlink()
    data = (journal_directory / FIRST).read_bytes()
    (journal_directory / FIRST).write_bytes(data[4 * MESSAGE_BYTES :])
    repaired(journal_directory)
    assert (journal_directory / "jnl" / segment_name(4)).read_bytes() == data[4 * MESSAGE_BYTES :]
    assert offsets_of(readable(journal_directory)) == list(range(4, 10))


def test_overlaps_and_duplicates_are_left_to_the_user(journal: Path) -> None:
    (journal / "jnl" / segment_name(5)).write_bytes((journal / FIRST).read_bytes()[200:])
    damage_file(journal / FIRST, overwrite, 8 * MESSAGE_BYTES, noise(60, 1))
    found = plan(journal)
    assert found.empty
    assert any("jnl/0000000000000005.jnl begins before this, so nothing is changed here" in line for line in found.left)
    shutil.copy(journal / FIRST, journal / "jnl" / "0.jnl")
    found = plan(journal)
    assert found.empty
    assert any(f"{FIRST} has the same first offset" in line for line in found.left)


# --- around the segments --------------------------------------------------------------------------------------------


def test_damaged_offset_file_is_moved_away_and_its_consumer_restarts(journal: Path) -> None:
    with Offset(journal, "reader") as consumer:
        consumer.commit(7)
    with Offset(journal, "other") as consumer:
        consumer.commit(9)
    (journal / "ofs" / "reader.ofs").write_bytes(b"1234567")
    found = repaired(journal)
    assert [(step.file, type(step)) for step in found.steps] == [("ofs/reader.ofs", Remove)]
    assert found.locks == ("jnl.lck", "ofs/reader.lck")
    assert [path.read_bytes() for path in list_repairs(REAL_DISK, journal)[-1].kept] == [b"1234567"]
    with Offset(journal, "reader") as consumer:
        assert (consumer.value, consumer.committed) == (0, False)
    with Offset(journal, "other") as consumer:
        assert consumer.value == 9


def test_side_files_of_no_segment_are_moved_away(journal: Path) -> None:
    (journal / "jnl" / "0000000000000099.jnl.crc").write_bytes(b"sums")
    (journal / "idx" / "0000000000000099.idx").write_bytes(b"index")
    assert kinds(repaired(journal)) == ["Remove", "Remove"]
    assert Reader(journal).verify().anomalies == []


@pytest.mark.parametrize("checksums", [False, True])
def test_last_segment_that_was_removed_is_a_loss_and_a_writer_does_not_use_its_offsets(
    journal_directory: Path, checksums: bool
) -> None:
    with Writer(journal_directory, segment_size=400, checksums=checksums) as writer:
        for offset in range(25):
            writer.append(value_of(offset), timestamp=offset)
    name = f"jnl/{segment_name(20)}"
    (journal_directory / name).unlink()
    reason = "the segment is missing, and files beside it show that it was there"
    problem = (name, 0, "missing_segment")
    assert problems(journal_directory) == [problem]
    with pytest.raises(DamagedJournal, match=f"{segment_name(20)} @ 0: {reason} \\(see logwright repair\\)"):
        Writer(journal_directory)
    before = files(journal_directory)
    found = repaired(journal_directory)
    (loss,) = found.losses
    assert (loss.what, loss.reason) == ("whatever there was from message 20 on", reason)
    assert (loss.file, loss.at_least, loss.at_most) == (name, int(checksums), None)
    assert loss.fields == {"first": 20, "next": None}
    report = Reader(journal_directory).verify()
    assert (report.sound, report.anomalies, len(report.losses)) == (True, [], 1)
    undo(journal_directory)
    assert files(journal_directory) == before
    apply(journal_directory, plan(journal_directory))
    with Writer(journal_directory) as writer:
        assert writer.append(b"goes on") == 20
    with pytest.raises(WrongUse, match=f"{segment_name(10)} was changed since the repair in"):
        undo(journal_directory)
    with Writer(journal_directory) as writer:
        assert writer.next_offset == 21


def test_index_of_a_missing_finished_segment_gives_the_least_loss(indexed: Path) -> None:
    segments = list_segments(REAL_DISK, indexed)
    segments[-1].path.unlink()
    index_path(segments[-1]).unlink()
    segments[-2].path.unlink()
    first, after = segments[-2].first_offset, segments[-1].first_offset
    (loss,) = repaired(indexed).losses
    assert (loss.what, loss.at_least, loss.at_most) == (
        f"messages {first} to {after - 1}, and whatever came after it",
        after - first,
        None,
    )


def test_index_of_a_missing_unfinished_segment_gives_the_least_loss(indexed: Path) -> None:
    segment = list_segments(REAL_DISK, indexed)[-1]
    index = Index.load(REAL_DISK, segment, segment.path.stat().st_size)
    assert index is not None
    least = index.entries[-1].offset + 1 - segment.first_offset
    segment.path.unlink()
    (loss,) = repaired(indexed).losses
    assert (loss.at_least, loss.at_most) == (least, None)


def test_missing_segment_whose_offsets_were_used_again_is_still_a_loss(journal: Path) -> None:
    with Writer(journal, segment_size=1000) as writer:
        for _ in range(40):
            writer.append(noise(40, 1))
    last = list_segments(REAL_DISK, journal)[-2]
    index = index_path(last).read_bytes()
    for segment in list_segments(REAL_DISK, journal)[-2:]:
        segment.path.unlink()
        index_path(segment).unlink()
    with Writer(journal) as writer:
        for _ in range(40):
            writer.append(b"other")
    index_path(last).write_bytes(index)
    assert problems(journal) == [(last.name, 0, "missing_segment")]
    assert [loss.fields["first"] for loss in repaired(journal).losses] == [last.first_offset]


def test_missing_segment_between_two_others_is_one_loss(indexed: Path) -> None:
    segments = list_segments(REAL_DISK, indexed)
    segments[1].path.unlink()
    assert problems(indexed) == [(segments[2].name, 0, "gap")]
    assert lost(repaired(indexed)) == [(segments[1].first_offset, segments[2].first_offset)]


def test_side_files_of_cleaned_segments_are_not_a_loss(indexed: Path) -> None:
    list_segments(REAL_DISK, indexed)[0].path.unlink()
    report = Reader(indexed).verify()
    assert (report.problems, [anomaly.kind for anomaly in report.anomalies]) == ([], ["side_file"])
    Writer(indexed).close()


@pytest.fixture
def indexed(journal_directory: Path) -> Path:
    """A journal with segments of a megabyte, each with an index of several entries."""
    with Writer(journal_directory, segment_size=1_000_000) as writer:
        for offset in range(280):
            writer.append(noise(10_000, offset), timestamp=offset)
    return journal_directory


def test_wrong_index_is_rebuilt(indexed: Path) -> None:
    segment = list_segments(REAL_DISK, indexed)[0]
    size = segment.path.stat().st_size
    before = Index.load(REAL_DISK, segment, size)
    damage_file(indexed / "idx" / "0000000000000000.idx", overwrite, 30, b"!")
    found = repaired(indexed)
    assert [(step.file, type(step)) for step in found.steps] == [("idx/0000000000000000.idx", Remove)]
    assert Reader(indexed).verify().anomalies == []
    index = Index.load(REAL_DISK, segment, size)
    assert before is not None
    assert index is not None
    assert index.entries[-1][:3] == before.entries[-1][:3], "the end entry"


def test_index_that_a_restored_field_disproves_is_rebuilt(indexed: Path) -> None:
    damage_file(indexed / FIRST, increment_byte, 10 * 10_026 - 1)
    damage_file(indexed / FIRST, increment_byte, 20 * 10_026 + 15, 100)
    assert [step.file for step in repaired(indexed).steps] == [FIRST, "idx/0000000000000000.idx"]
    assert [anomaly.kind for anomaly in Reader(indexed).verify().anomalies] == ["timestamp"]


def test_index_that_agrees_with_the_segment_stays_when_a_field_is_restored(indexed: Path) -> None:
    damage_file(indexed / FIRST, increment_byte, 10 * 10_026 - 1)
    assert [step.file for step in repaired(indexed).steps] == [FIRST]
    assert Reader(indexed).verify().anomalies == []


def test_indexes_of_split_segments_are_rebuilt(indexed: Path) -> None:
    damage_file(indexed / FIRST, overwrite, 50 * 10_026, noise(15_000, 1))
    repaired(indexed)
    assert [segment.first_offset for segment in Reader(indexed).segments()] == [0, 52, 100, 200]
    for segment in list_segments(REAL_DISK, indexed)[:-1]:
        file = REAL_DISK.open(segment.path, "read")
        index = Index.load(REAL_DISK, segment, file.size())
        assert index is not None
        assert index.end(file) is not None
        file.close()
    report = Reader(indexed).verify()
    assert (report.problems, report.anomalies) == ([], [])


def test_missing_indexes_can_be_rebuilt_at_any_time(indexed: Path) -> None:
    before = files(indexed)
    assert rebuild(indexed) == []
    shutil.rmtree(indexed / "idx")
    assert rebuild(indexed) == [f"idx/{first:016x}.idx" for first in (0, 100, 200)]
    assert Reader(indexed).verify().anomalies == []
    for segment in list_segments(REAL_DISK, indexed)[:-1]:
        name = f"idx/{index_path(segment).name}"
        offset_position_and_timestamp = slice(-48, -24)
        ends = [(tree[name] or b"")[offset_position_and_timestamp] for tree in (before, files(indexed))]
        assert ends[0] == ends[1]
    with Writer(indexed):
        index_path(list_segments(REAL_DISK, indexed)[-1]).unlink()
        assert rebuild(indexed) == [], "the last one is its writer's"


# --- checksums ------------------------------------------------------------------------------------------------------


@pytest.fixture
def checked(journal_directory: Path) -> Path:
    """A journal of 100 messages of 40 bytes, with checksums of blocks of 512 bytes."""
    (journal_directory / "jnl").mkdir()
    (journal_directory / FIRST).touch()
    ChecksumWriter(REAL_DISK, journal_directory / FIRST, 512).close()
    with Writer(journal_directory, checksums=True) as writer:
        for offset in range(100):
            writer.append(value_of(offset), timestamp=offset)
    return journal_directory


def test_any_flipped_bit_is_flipped_back_by_its_checksum(checked: Path, simulated_disk: SimulatedDisk) -> None:
    load_directory(checked, simulated_disk, JOURNAL)
    before = files(JOURNAL, simulated_disk)
    data = read_file(simulated_disk, JOURNAL / FIRST)
    chance = random.Random(1)
    for bit in sorted(chance.sample(range(8 * len(data)), 200)):
        disk = simulated_disk.copy()
        write_file(disk, JOURNAL / FIRST, flip_bits(data, bit // 8, 1 << (bit % 8)))
        found = plan(JOURNAL, disk=disk)
        assert kinds(found) == ["Patch"]
        apply(JOURNAL, found, disk=disk)
        assert differences(before, files(JOURNAL, disk)) == []
    COUNTS.add("bit flips", 200, "sej")


def test_flipped_bits_of_several_blocks_are_all_flipped_back(checked: Path) -> None:
    before = files(checked)
    for position in (10, 530, 1300, 2700, 3990):
        damage_file(checked / FIRST, flip_bits, position, 16)
    assert kinds(repaired(checked)) == ["Patch"] * 5
    assert files(checked) == before


def test_block_with_more_flipped_bits_is_left_or_accepted(checked: Path) -> None:
    damage_file(checked / FIRST, overwrite, 1225, b"\xff\xfe")
    found = plan(checked)
    assert found.empty
    assert found.left == (
        f"{FIRST} @ 1024: the block does not match its checksum, and more than one bit of it is wrong; "
        "repair --accept-checksums takes it as it is",
    )
    accepted = plan(checked, accept_checksums=True)
    (step,) = accepted.steps
    assert isinstance(step, Patch)
    assert (step.file, step.position) == (f"{FIRST}.crc", 16 + 2 * 8)
    assert [(loss.kind, loss.what) for loss in accepted.losses] == [
        ("restored", "messages 25 to 38, taken as they are, with a new checksum")
    ]
    before = files(checked)
    apply(checked, accepted)
    assert Reader(checked).verify().sound
    assert len(list(Reader(checked))) == 100
    undo(checked)
    assert files(checked) == before


def appended_by_another(path: Path, end: int, values: list[bytes]) -> list[Message]:
    """Cut a segment as another program cuts a torn tail, and append as it does: without checksums."""
    whole = (path / FIRST).read_bytes()[:end]
    first = end // MESSAGE_BYTES
    messages = [Message(first + number, 1000, 0, b"", value) for number, value in enumerate(values)]
    (path / FIRST).write_bytes(whole + b"".join(map(encode, messages)))
    return messages


@pytest.mark.parametrize(
    ("cut_at", "values"),
    [
        (99, [b"a longer value than before"] * 3),
        (99, [noise(150, 1)] * 20),
        (95, [noise(150, 1)] * 20),
        (80, [noise(150, 1)] * 20),
    ],
)
def test_checksums_are_renewed_and_reported_after_another_program_cut_and_appended(
    checked: Path, cut_at: int, values: list[bytes]
) -> None:
    appended = appended_by_another(checked, cut_at * MESSAGE_BYTES, values)
    found = repaired(checked)
    assert found.left == ()
    assert {(type(step), step.file) for step in found.steps} == {(Patch, f"{FIRST}.crc")}
    assert {loss.kind for loss in found.losses} == {"restored"}
    assert {loss.reason for loss in found.losses} == {"another program has cut the segment here and appended to it"}
    assert found.losses[-1].fields["next"] > cut_at
    report = Reader(checked).verify()
    assert (report.sound, report.records) == (True, cut_at + len(values))
    assert readable(checked)[cut_at:] == appended
    with Writer(checked, checksums=True) as writer:
        writer.append(b"goes on")
    assert Reader(checked).verify().sound


def test_damaged_last_block_is_not_taken_as_appended(checked: Path) -> None:
    damage_file(checked / FIRST, overwrite, 99 * MESSAGE_BYTES + 25, b"\xff\xfe")
    found = plan(checked)
    assert (found.empty, len(found.left)) == (True, 1)


def test_checksum_decides_which_field_is_wrong(journal_directory: Path) -> None:
    keys = [b"a", b"bb", b"ccc", b"dddd", b"eeeee"]
    messages = [_with_length_inside(offset, key, 50) for offset, key in enumerate(keys)]
    with Writer(journal_directory, checksums=True) as writer:
        for message in messages:
            writer.append(message.value, key=message.key, timestamp=message.timestamp)
    before = files(journal_directory)
    start = messages[0].size + messages[1].size
    damage_file(journal_directory / FIRST, overwrite, start + 18 + 3, b"\xde\xad\xbe\xef")
    assert kinds(repaired(journal_directory)) == ["Patch"]
    assert files(journal_directory) == before


@pytest.mark.parametrize("end", [0, 40, 480, 520, 1040, 2000])
def test_checksums_of_a_split_segment_fit_both_parts(checked: Path, end: int) -> None:
    damage_file(checked / FIRST, overwrite, end, noise(70, end))
    repaired(checked)
    names = [segment.path.name for segment in Reader(checked).segments()]
    assert names == [segment_name(0), segment_name(end // 40 + 2)]
    report = Reader(checked).verify()
    assert report.problems == []
    assert report.anomalies == [] if end else [anomaly.kind for anomaly in report.anomalies] == ["empty_segment"]
    covered = 0
    for segment in Reader(checked).segments():
        sums = Checksums.load(REAL_DISK, checksum_path(segment.path))
        assert sums is not None
        covered += covered_bytes(sums, segment.path.stat().st_size)
    bad = 1024 if end % 512 + 70 > 512 else 512
    assert covered >= report.bytes - bad - 512, "all but the blocks that were bad, and one that is cut again"
    with Writer(checked, checksums=True) as writer:
        writer.append(b"goes on")
    assert Reader(checked).verify().sound


def test_replaced_segment_gets_new_checksums(checked: Path) -> None:
    whole = (checked / FIRST).read_bytes()
    damage_file(checked / FIRST, insert, 0, noise(51, 1))
    repaired(checked)
    assert (checked / FIRST).read_bytes() == whole
    assert Reader(checked).verify().sound


def test_finished_segment_whose_end_is_bad_gets_no_new_checksum(journal_directory: Path) -> None:
    with Writer(journal_directory, segment_size=4000, checksums=True) as writer:
        for offset in range(20):
            writer.append(b"%04d" % offset + b"v" * 900, timestamp=offset)
    name = f"jnl/{segment_name(5)}"
    damage_file(journal_directory / name, overwrite, 4050, bytes(512))
    damage_file(journal_directory / name, overwrite, 4646, bytes(4))
    found = repaired(journal_directory)
    assert lost(found) == [(9, 10)]
    assert [(type(step), step.file) for step in found.steps[:2]] == [(Cut, name), (Patch, f"{name}.crc")]
    assert found.left == ()
    assert [loss.describe() for loss in Reader(journal_directory).verify().losses][1:] == [
        "kept without proof: messages 5 to 8, kept as they are, without a checksum "
        f"({name} @ 0: 4650 bytes: the block does not match its checksum)"
    ]


def test_messages_on_both_sides_of_damage_in_a_bad_block_are_kept_without_proof(checked: Path) -> None:
    damage_file(checked / FIRST, overwrite, 30 * MESSAGE_BYTES, noise(MESSAGE_BYTES, 1))
    found = repaired(checked)
    assert lost(found) == [(30, 31)]
    unproven = [loss.fields for loss in found.losses if loss.kind == "restored"]
    assert unproven == [{"first": 25, "next": 30, "proven": False}, {"first": 31, "next": 39, "proven": False}]


@pytest.mark.parametrize("first", [0, 5, 15])
def test_any_segment_with_checksums_can_be_repaired_and_undone(
    journal_directory: Path, simulated_disk: SimulatedDisk, first: int
) -> None:
    with Writer(journal_directory, segment_size=4000, checksums=True) as writer:
        for offset in range(20):
            writer.append(noise(900, offset), timestamp=offset)
    load_directory(journal_directory, simulated_disk, JOURNAL)
    path = JOURNAL / "jnl" / segment_name(first)
    for case in fuzzed(read_file(simulated_disk, path), 150, seed=first):
        disk = simulated_disk.copy()
        write_file(disk, path, case.data)
        before = files(JOURNAL, disk)
        for accept_checksums in (False, True):
            found = plan(JOURNAL, disk=disk, accept_checksums=accept_checksums)
            apply(JOURNAL, found, disk=disk)
            if not found.empty:
                assert list_repairs(disk, JOURNAL)[-1].state == "done"
                undo(JOURNAL, disk=disk)
            assert differences(before, files(JOURNAL, disk)) == []
        COUNTS.add("fuzzed inputs", 1, "sej")


def test_torn_tail_is_cut_with_its_checksums(checked: Path) -> None:
    damage_file(checked / FIRST, zeros_after, 3000)
    found = repaired(checked)
    assert [(type(step), step.file) for step in found.steps] == [
        (Cut, FIRST), (Patch, f"{FIRST}.crc"), (Cut, f"{FIRST}.crc"),
    ]  # fmt: skip
    assert Reader(checked).verify().as_json()["anomalies"] == []
    damage_file(checked / FIRST, flip_bits, 30, 1)
    assert problems(checked) == [(FIRST, 0, "checksum")], "what is before it is covered as before"


# --- which journal --------------------------------------------------------------------------------------------------


def test_root_of_shards_is_repaired_at_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for index in range(4):
        make_journal(root / shard_name("blue", 2, index), 25)
    damage_file(root / "blue.2.001" / FIRST, overwrite, 40, noise(60, 1))
    damage_file(root / "blue.2.003" / "jnl" / segment_name(20), cut, 150)
    found = repaired(root)
    assert [(type(step), step.file) for step in found.steps if "/jnl/" in step.file] == [
        (Create, "blue.2.001/jnl/0000000000000003.jnl"),
        (Cut, f"blue.2.001/{FIRST}"),
        (Cut, "blue.2.003/jnl/0000000000000014.jnl"),
    ]
    assert found.locks == ("blue.2.001/jnl.lck", "blue.2.003/jnl.lck")
    assert [(loss.file, loss.fields["first"], loss.fields["next"]) for loss in found.losses] == [
        (f"blue.2.001/{FIRST}", 1, 3)
    ]
    assert [loss.file for loss in Reader(root / "blue.2.001").losses()] == [FIRST], "a shard has its own account"
    assert [loss.file for loss in ShardedReader(root).verify().losses] == [f"blue.2.001/{FIRST}"]
    assert not (root / ".logwright" / "losses").exists()
    assert ShardedReader(root).verify().records == 100 - 2 - 2
    assert [one.state for one in list_repairs(REAL_DISK, root)] == ["undone", "done"]


def test_shard_with_an_interrupted_repair_is_finished_first(tmp_path: Path) -> None:
    shard = make_journal(tmp_path / "root" / "2.001", 25)
    damage_file(shard / "jnl" / segment_name(20), cut, 150)
    repair = apply(shard, plan(shard))
    assert repair is not None
    repair.state = "applying"
    repair.save(REAL_DISK)
    with pytest.raises(WrongUse, match="a repair of this shard was interrupted"):
        plan(tmp_path / "root")
    assert plan(shard).interrupted


def test_lone_segment_file_is_repaired_beside_itself(tmp_path: Path) -> None:
    make_journal(tmp_path / "journal", 10)
    lone = tmp_path / "found" / segment_name(0)
    lone.parent.mkdir()
    data = overwrite((tmp_path / "journal" / FIRST).read_bytes(), 3 * MESSAGE_BYTES, noise(50, 1))
    lone.write_bytes(data)
    found = plan(lone)
    assert [(type(step), step.file) for step in found.steps] == [
        (Create, "0000000000000005.jnl"),
        (Cut, "0000000000000000.jnl"),
    ]
    apply(lone, found)
    assert sorted(path.name for path in lone.parent.iterdir()) == [".logwright", segment_name(0), segment_name(5)]
    assert offsets_of(Reader(lone.parent / segment_name(5))) == list(range(5, 10))
    undo(lone)
    assert lone.read_bytes() == data
    assert sorted(path.name for path in lone.parent.iterdir()) == [".logwright", segment_name(0)]


def test_parts_of_a_journal_and_other_paths_are_refused(journal: Path, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="is a part of the journal"):
        plan(journal / FIRST)
    (tmp_path / "other").mkdir()
    with pytest.raises(NotFound, match="no sej journal is here"):
        plan(tmp_path / "other")
    with pytest.raises(NotFound):
        plan(tmp_path / "nowhere")


# --- while others are at work ---------------------------------------------------------------------------------------


def test_journal_that_is_being_written_is_planned_but_not_repaired(journal: Path) -> None:
    damage_file(journal / FIRST, overwrite, 40, noise(60, 1))
    with Writer(journal):
        found = plan(journal)
        before = files(journal)
        with pytest.raises(Locked):
            apply(journal, found)
        assert files(journal) == before
    apply(journal, found)


def test_messages_appended_after_planning_are_not_cut(journal: Path) -> None:
    damage_file(journal / "jnl" / segment_name(20), cut, 150)
    found = plan(journal)
    make_journal(journal, 3)
    with pytest.raises(WrongUse, match="plan it again"):
        apply(journal, found)
    assert offsets_of(Reader(journal)) == list(range(26))


def test_repair_is_not_undone_after_more_was_written(journal: Path) -> None:
    damage_file(journal / "jnl" / segment_name(20), cut, 150)
    apply(journal, plan(journal))
    make_journal(journal, 3)
    with pytest.raises(WrongUse, match=r"0000000000000014\.jnl was changed since"):
        undo(journal)
    assert offsets_of(Reader(journal)) == list(range(26))


def test_opening_a_writer_without_writing_does_not_prevent_undo(journal: Path) -> None:
    damage_file(journal / FIRST, overwrite, 40, noise(60, 1))
    damage_file(journal / "jnl" / segment_name(20), cut, 150)
    data = (journal / "jnl" / segment_name(20)).read_bytes()
    apply(journal, plan(journal))
    Writer(journal).close()
    undo(journal)
    assert (journal / "jnl" / segment_name(20)).read_bytes() == data


# --- interrupted ----------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(simulated_disk: SimulatedDisk, tmp_path: Path) -> SimulatedDisk:
    """A disk with a journal that needs every kind of step."""
    path = make_journal(tmp_path / "journal", 25)
    Offset(path, "reader").close()
    (path / "ofs" / "reader.ofs").write_bytes(b"123")
    damage_file(path / FIRST, insert, 0, b"garbage")
    damage_file(path / "jnl" / segment_name(10), overwrite, 2 * MESSAGE_BYTES, noise(50, 1))
    damage_file(path / "jnl" / segment_name(10), overwrite, 6 * MESSAGE_BYTES, b"\x01")
    damage_file(path / "jnl" / segment_name(20), cut, 150)
    load_directory(path, simulated_disk, JOURNAL)
    simulated_disk.settle()
    return simulated_disk


def settled(disk: Disk, verb: str) -> Tree:
    """The journal after a repair was finished or undone, from any state."""
    standing = [one for one in list_repairs(disk, JOURNAL) if one.state != "undone"]
    if verb == "undo":
        if standing:
            undo(JOURNAL, disk=disk)
    elif not standing or standing[-1].state != "done":
        apply(JOURNAL, plan(JOURNAL, disk=disk), disk=disk)
    return files(JOURNAL, disk)


def test_repair_can_be_finished_or_undone_after_any_crash(damaged: SimulatedDisk) -> None:
    before = files(JOURNAL, damaged)
    found = plan(JOURNAL, disk=damaged)
    assert {*kinds(found)} == {"Create", "Cut", "Patch", "Remove", "Rename"}
    apply(JOURNAL, found, disk=damaged)
    after = {name: content for name, content in files(JOURNAL, damaged).items() if not name.startswith("idx")}
    for state in damaged.crash_states(most=3, format="sej"):
        undone = settled(state.copy(), "undo")
        assert differences(_without_indexes(before), _without_indexes(undone)) == []
        assert differences(after, _without_indexes(settled(state, "apply"))) == []


def _without_indexes(tree: Tree) -> Tree:
    return {name: content for name, content in tree.items() if not name.startswith("idx")}


def test_repair_can_be_finished_or_undone_after_a_failure_of_any_call(damaged: SimulatedDisk) -> None:
    before = files(JOURNAL, damaged)
    clean = damaged.copy()
    found = plan(JOURNAL, disk=clean)
    apply(JOURNAL, found, disk=clean)
    after = _without_indexes(files(JOURNAL, clean))
    faults = [Fault(), Fault(28, forever=True, partial=True, only=NEEDS_SPACE)]
    for number, faulty in enumerate(every_fault(damaged.copy, faults, format="sej")):
        try:
            apply(JOURNAL, found, disk=faulty)
        except StorageFailed:
            assert faulty.failures
        assert faulty.inner.open_files == 0
        if number % 2:
            assert differences(_without_indexes(before), _without_indexes(settled(faulty.inner, "undo"))) == []
        else:
            assert differences(after, _without_indexes(settled(faulty.inner, "apply"))) == []


# --- no byte is lost ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 10, 20])
def test_any_segment_can_be_repaired_and_undone(journal: Path, simulated_disk: SimulatedDisk, first: int) -> None:
    load_directory(journal, simulated_disk, JOURNAL)
    path = JOURNAL / "jnl" / segment_name(first)
    whole = read_file(simulated_disk, path)
    written = _by_offset(simulated_disk)
    for case in fuzzed(whole, 250, seed=first):
        disk = simulated_disk.copy()
        write_file(disk, path, case.data)
        before, read_before = files(JOURNAL, disk), _by_offset(disk)
        found = plan(JOURNAL, disk=disk)
        apply(JOURNAL, found, disk=disk)
        read_after = _by_offset(disk)
        for offset, message in read_before.items():
            if offset in read_after:
                assert read_after[offset] in (message, written.get(offset)), "it is the same, or what was written"
            else:
                assert _is_accounted_for(found, offset), "what could be read can be read, or is in the account"
        report = Reader(JOURNAL, disk=disk).verify()
        assert report.problems == []
        again = plan(JOURNAL, disk=disk)
        assert all(step.file.startswith("idx") for step in again.steps), "but for an index of times that are wrong"
        Writer(JOURNAL, disk=disk.copy()).close()
        if not found.empty:
            undo(JOURNAL, disk=disk)
        assert differences(before, files(JOURNAL, disk)) == []
        COUNTS.add("fuzzed inputs", 1, "sej")


def _is_accounted_for(found: Plan, offset: int) -> bool:
    ranges = [(loss.fields["first"], loss.fields["next"]) for loss in found.losses if loss.kind == "lost"]
    return any(first <= offset and (after is None or offset < after) for first, after in ranges)


def _by_offset(disk: Disk) -> dict[int, Message]:
    items = Reader(JOURNAL, disk=disk).messages(mode="dropmalformed")
    return {item.offset: item for item in items if isinstance(item, Message)}


def test_every_byte_is_in_the_journal_or_in_the_copies(journal: Path, simulated_disk: SimulatedDisk) -> None:
    load_directory(journal, simulated_disk, JOURNAL)
    path = JOURNAL / "jnl" / segment_name(10)
    whole = read_file(simulated_disk, path)
    for number in range(100):
        disk = simulated_disk.copy()
        chance = random.Random(number)
        position = chance.randrange(len(whole) - 80)
        bad = noise(chance.randrange(30, 80), number)
        write_file(disk, path, overwrite(whole, position, bad))
        repair = apply(JOURNAL, plan(JOURNAL, disk=disk), disk=disk)
        segments = [content for name, content in sorted(files(JOURNAL, disk).items()) if name.startswith("jnl")]
        left = b"".join(content or b"" for content in segments)
        kept = [] if repair is None else [read_file(disk, copy) for copy in repair.kept]
        assert any(bad in copy for copy in [left, *kept])
        assert whole[: position // MESSAGE_BYTES * MESSAGE_BYTES] in left
        assert whole[-(-(position + len(bad)) // MESSAGE_BYTES) * MESSAGE_BYTES :] in left


@pytest.mark.parametrize("tail", [1, 8, 30])
@pytest.mark.parametrize("inner", [[6], [6, 7, 8]])
def test_messages_between_damage_and_a_torn_tail_are_kept_without_proof(
    journal_directory: Path, inner: list[int], tail: int
) -> None:
    within = b"".join(encode(Message(offset, 1, 0, b"inner", noise(20, offset))) for offset in inner)
    begun = encode(Message(inner[-1] + 1, 1, 0, b"inner", noise(50, 1)))[:tail]
    messages = [Message(offset, offset, 0, b"", noise(30, offset)) for offset in range(5)]
    outer = encode(Message(5, 5, 0, b"longer key", within + begun + noise(200, 2)))
    start = outer.index(within)
    path = journal_directory / FIRST
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(map(encode, messages)) + noise(start, 3) + outer[start : start + len(within) + tail])
    found = repaired(journal_directory)
    assert offsets_of(readable(journal_directory)) == [*range(5), *inner]
    (unproven,) = [loss for loss in found.losses if loss.kind == "restored"]
    assert unproven.fields == {"first": inner[0], "next": inner[-1] + 1, "proven": False}
    assert unproven.describe().startswith("kept without proof: message")


@pytest.mark.parametrize("per_segment", [2, 3])
def test_message_that_nothing_after_it_confirms_is_kept_without_proof(
    journal_directory: Path, per_segment: int
) -> None:
    messages = [Message(offset, 1000 + offset, 7, b"key", noise(30, offset)) for offset in range(2)]
    write_segments(journal_directory, messages, per_segment=per_segment)
    size = messages[0].size
    damage_file(journal_directory / FIRST, overwrite, 9, bytes(size - 1))  # the offset 1 reads 0 now
    if per_segment == 2:
        (journal_directory / "jnl" / segment_name(2)).write_bytes(b"")
    found = repaired(journal_directory)
    (left,) = readable(journal_directory)
    assert (left.offset, left.value) == (0, messages[1].value)
    (unproven,) = [loss for loss in found.losses if loss.kind == "restored"]
    assert unproven.fields == {"first": 0, "next": 1, "proven": False}
    assert unproven.what == "message 0: it follows damage, and no message after it confirms its offset"


def test_message_that_the_next_segment_confirms_is_proven(journal: Path) -> None:
    damage_file(journal / FIRST, overwrite, 7 * MESSAGE_BYTES + 9, noise(MESSAGE_BYTES, 1))
    found = repaired(journal)
    assert lost(found) == [(7, 9)]
    assert [loss.kind for loss in found.losses] == ["lost"]


@pytest.mark.parametrize("position", [16, 20])
def test_zeros_before_the_end_of_a_message_are_not_its_offset_and_time(journal_directory: Path, position: int) -> None:
    messages = [Message(0, 1000, 7, b"", b""), Message(1, 1001, 7, b"", b"second")]
    write_segments(journal_directory, messages, per_segment=2)
    damage_file(journal_directory / FIRST, insert, position, bytes(35))
    assert lost(repaired(journal_directory)) == [(0, 1)]
    assert readable(journal_directory) == messages[1:]


def test_message_within_the_head_of_another_is_not_in_its_value(journal_directory: Path) -> None:
    message = Message(0, 1000, 7, b"", b"only")
    write_segments(journal_directory, [message], per_segment=2)
    damage_file(journal_directory / FIRST, insert, 7, bytes(3))
    assert [kind for _, _, kind in problems(journal_directory)] == ["malformed"]
    repaired(journal_directory)
    assert readable(journal_directory) == [message]


def test_checksum_settles_no_field_that_it_does_not_cover(checked: Path) -> None:
    path = checked / FIRST
    written, whole = readable(checked), path.read_bytes()
    damage_file(path, flip_bits, 95 * MESSAGE_BYTES + 6, 0x62)  # of an offset
    path.write_bytes(path.read_bytes() + whole[: 2 * MESSAGE_BYTES])
    found = repaired(checked)
    assert (restored(found), lost(found)) == ([(95, "offset")], [(100, None)])
    assert readable(checked) == written, "the copy of the first messages gets no offsets of its own"


def test_one_repair_restores_a_field_and_flips_a_bit_back(checked: Path) -> None:
    written = readable(checked)
    damage_file(checked / FIRST, flip_bits, 3 * MESSAGE_BYTES, 0x40)  # of an offset
    damage_file(checked / FIRST, flip_bits, 5 * MESSAGE_BYTES + 25, 0x04)  # of a value
    found = repaired(checked)
    assert restored(found) == [(3, "offset")]
    assert (found.left, lost(found)) == ((), [])
    assert readable(checked) == written


def test_number_of_lost_messages_is_unknown_if_bytes_were_deleted_before_the_end(checked: Path) -> None:
    path = checked / FIRST
    damage_file(path, drop, MESSAGE_BYTES + 5, 2 * MESSAGE_BYTES + 5)
    path.write_bytes(path.read_bytes() + noise(MESSAGE_BYTES - 10, 1))
    found = repaired(checked)
    assert lost(found) == [(1, 2), (100, None)]
    (last,) = [loss for loss in found.losses if loss.fields.get("first") == 100]
    assert (last.at_least, last.at_most) == (0, None)
    assert last.what == "whatever there was from message 100 on, unless the missing bytes were deleted before"


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_message_before_a_copy_of_others_is_suspect(journal_directory: Path, whole: int) -> None:
    messages = [Message(offset, 1000 + offset, 7, b"key", noise(30, offset)) for offset in range(20)]
    write_segments(journal_directory, messages, per_segment=20)
    path, size = journal_directory / FIRST, messages[0].size
    copied = path.read_bytes()[3 * size + 20 : (4 + whole) * size + 30]
    damage_file(path, overwrite, 10 * size + 20, copied)  # the head of message 10 stays
    found = repaired(journal_directory)
    assert lost(found) == [(11, 12 + whole)]
    assert found.losses[0].fields["suspect"] == 10
    assert "the message before, 10, may have been changed" in found.losses[0].what
    assert [one for one in readable(journal_directory) if one not in messages] == [
        Message(10, 1010, 7, b"key", messages[3].value)
    ]


def test_message_before_an_inserted_copy_of_others_is_kept_without_proof(journal_directory: Path) -> None:
    messages = [Message(offset, 1000 + offset, 7, b"key", noise(30, offset)) for offset in range(20)]
    write_segments(journal_directory, messages, per_segment=20)
    path, size = journal_directory / FIRST, messages[0].size
    data = path.read_bytes()
    damage_file(path, insert, 10 * size + 20, data[8 * size + 20 : 10 * size + 20])
    found = repaired(journal_directory)
    (unproven,) = found.losses
    assert (unproven.kind, unproven.fields) == ("restored", {"first": 10, "next": 11, "proven": False})
    assert unproven.what == "message 10: copies of other messages follow it, and may begin within it"
    assert offsets_of(readable(journal_directory)) == list(range(20))


def test_messages_of_a_missing_segment_are_lost_once(journal: Path) -> None:
    (journal / "jnl" / segment_name(10)).unlink()
    damage_file(journal / "jnl" / segment_name(20), drop, 0, 2 * MESSAGE_BYTES)
    found = repaired(journal)
    assert sorted(lost(found)) == [(10, 20), (20, 22)]


def test_messages_in_a_value_that_overlap_the_next_segment_are_not_the_journals(journal_directory: Path) -> None:
    inner = b"".join(encode(Message(offset, 1, 0, b"", noise(20, 100 + offset))) for offset in range(4, 7))
    messages = [Message(offset, 1000 + offset, 7, b"key", noise(30, offset)) for offset in range(10)]
    messages[3] = Message(3, 1003, 7, b"key", noise(7, 1) + inner + noise(40, 2))
    write_segments(journal_directory, messages, per_segment=5)
    path, start = journal_directory / FIRST, sum(message.size for message in messages[:3])
    damage_file(path, overwrite, start, noise(22, 3))
    damage_file(path, cut, start + messages[3].size - 20)
    found = repaired(journal_directory)
    assert (lost(found), found.left) == ([(3, 5)], ())
    assert readable(journal_directory) == messages[:3] + messages[5:]
