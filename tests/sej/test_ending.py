"""The end of the messages of a segment, found backwards or by a walk, whatever the values contain."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from logwright.sej.bytes import codec
from logwright.sej.bytes.layout import OVERHEAD, segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.checksums import Checksums
from logwright.sej.files.ending import STEPS_BACK, End, Walked, find_end, plausible_last
from logwright.sej.files.segment import Segment, damage_of_synced
from tests.contract.subject import HOME
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file


def message(offset: int, value: bytes = b"value", timestamp: int = 7) -> bytes:
    return codec.encode(Message(offset, timestamp, 0, b"", value))


def end_of(disk: SimulatedDisk, data: bytes, *, first: int = 0, walk_bytes: int = 0) -> End:
    segment = Segment(first, segment_name(first), HOME / segment_name(first))
    write_file(disk, segment.path, data)
    file = disk.open(segment.path, "read")
    try:
        return find_end(disk, segment, file, walk_bytes=walk_bytes)
    finally:
        file.close()


@pytest.mark.parametrize("count", [1, 3, STEPS_BACK, STEPS_BACK + 1, 40])
def test_whole_messages_are_accepted_from_the_end(simulated_disk: SimulatedDisk, count: int) -> None:
    data = b"".join(message(9 + number) for number in range(count))
    assert end_of(simulated_disk, data, first=9) == End(len(data), 9 + count)


def test_empty_segment_ends_where_it_begins(simulated_disk: SimulatedDisk) -> None:
    assert end_of(simulated_disk, b"", first=9) == End(0, 9)


@pytest.mark.parametrize("first", [0, 1])
def test_short_segment_is_walked_to_its_end(simulated_disk: SimulatedDisk, first: int) -> None:
    data = message(first, timestamp=30) + message(first + 1, timestamp=10) + message(first + 2, timestamp=20)
    walked = End(len(data), first + 3, walked=Walked(0, 10, 30))
    assert end_of(simulated_disk, data, first=first, walk_bytes=len(data)) == walked
    assert end_of(simulated_disk, data, first=first, walk_bytes=len(data) - 1) == End(len(data), first + 3)


@pytest.mark.parametrize(
    "held",
    [message(1), message(0) + message(1), message(1) * (STEPS_BACK + 1)],
    ids=["a message", "messages in step", "many messages out of step"],
)
def test_tail_torn_after_messages_in_its_value_is_torn(simulated_disk: SimulatedDisk, held: bytes) -> None:
    whole = message(0, b"first" * 20)
    data = whole + message(1, held + b"more")
    data = data[: data.index(held) + len(held)]
    end = end_of(simulated_disk, data)
    assert (end.position, end.next_offset, end.damage) == (len(whole), 1, None)
    assert end.torn is not None
    assert (end.torn.start, end.torn.end, end.torn.kind) == (len(whole), len(data), "torn_tail")


def test_end_with_a_copy_of_earlier_messages_is_damage(simulated_disk: SimulatedDisk) -> None:
    whole = b"".join(message(offset) for offset in range(4))
    copy = message(1) + message(2)
    for data in (whole + copy[:-9], whole + b"noise" + copy + b"noise", whole + bytes(40) + copy):
        end = end_of(simulated_disk, data)
        assert (end.position, end.next_offset, end.torn) == (len(whole), 4, None)
        assert end.damage is not None
        assert (end.damage.start, end.damage.end, end.damage.kind) == (len(whole), len(data), "malformed")


@pytest.mark.parametrize("tail", [message(1), message(1)[:-3] + message(2)[:20], bytes(40) + message(9, b"")[-4:]])
def test_single_earlier_message_at_the_end_is_torn(simulated_disk: SimulatedDisk, tail: bytes) -> None:
    whole = b"".join(message(offset) for offset in range(4))
    end = end_of(simulated_disk, whole + b"noise" + tail)
    assert (end.position, end.next_offset, end.damage) == (len(whole), 4, None)
    assert end.torn is not None
    assert (end.torn.start, end.torn.end) == (len(whole), len(whole) + 5 + len(tail))


def test_consecutive_messages_with_impossible_offsets_are_walked(simulated_disk: SimulatedDisk) -> None:
    data = b"".join(message(10_000 + number) for number in range(STEPS_BACK + 4))
    found = end_of(simulated_disk, data)
    assert replace(found, passed=None) == End(len(data), 10_000 + STEPS_BACK + 4)
    assert found.passed is not None
    assert (found.passed.start, found.passed.kind) == (0, "gap")


def test_offset_is_plausible_if_its_predecessors_fit(simulated_disk: SimulatedDisk) -> None:
    segment = Segment(5, segment_name(5), HOME / segment_name(5))
    before = message(5, bytes(3 * OVERHEAD - len(message(5, b""))))
    found = []
    for offset in (4, 5, 8, 9):
        write_file(simulated_disk, segment.path, before + message(offset))
        file = simulated_disk.open(segment.path, "read")
        found.append(plausible_last(file, file.size(), segment))
        file.close()
        simulated_disk.remove(segment.path)
    assert found == [None, 5, 8, None]


def test_messages_after_damage_determine_where_writing_continues(
    simulated_disk: SimulatedDisk,
) -> None:
    head = message(0) + b"\xff" * 50
    data = head + message(2) + message(3) + message(9)[:-3]
    end = end_of(simulated_disk, data)
    assert (end.position, end.next_offset, end.walked) == (len(data) - len(message(9)) + 3, 4, None)
    assert end.damage is not None
    assert end.torn is not None
    assert (end.damage.start, end.damage.end, end.torn.start) == (len(message(0)), len(head), end.position)
    whole = end_of(simulated_disk, data[: end.position] + message(4))
    assert (whole.next_offset, whole.torn, whole.damage, whole.walked) == (5, None, None, None)


def test_messages_within_a_truncated_value_forbid_writing(simulated_disk: SimulatedDisk) -> None:
    held = message(2) + message(3)
    data = message(0) + message(1, held + b"more")
    data = data[: data.index(held) + len(held)]
    end = end_of(simulated_disk, data, walk_bytes=len(data))
    assert (end.position, end.torn, end.walked) == (len(data), None, None)
    assert end.damage is not None
    assert (end.damage.start, end.damage.end) == (len(message(0)), data.index(held))


@pytest.mark.parametrize("rest", [b"", message(9)[:3], message(9)[:-3]], ids=["", "its first bytes", "most of it"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_messages_up_to_the_end_are_not_a_torn_tail_without_space_for_missing_ones(
    simulated_disk: SimulatedDisk, count: int, rest: bytes
) -> None:
    long = (1 << 20).to_bytes(4, "big")
    head = message(0) + message(1)[:18] + long
    data = head + b"".join(message(9 - count + number) for number in range(count)) + rest
    end = end_of(simulated_disk, data, walk_bytes=len(data))
    assert (end.position, end.next_offset) == (len(data) - len(rest), 9)
    assert end.damage is not None
    assert (end.damage.start, end.damage.end, end.damage.kind) == (len(message(0)), len(head), "malformed")


def test_file_of_text_is_not_a_torn_tail(simulated_disk: SimulatedDisk) -> None:
    end = end_of(simulated_disk, b"these are the notes of somebody else\n" * 3)
    assert end.torn is None
    assert end.damage is not None
    assert (end.position, end.damage.kind) == (0, "malformed")


# --- what checksums show ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("torn_bytes", "missing_bytes", "is_damage"),
    [
        (0, 0, False),
        (0, OVERHEAD - 1, False),
        (0, OVERHEAD, True),
        (3, 0, False),
        (3, 1, True),
    ],
)
def test_end_before_the_synced_bytes_is_damage(
    simulated_disk: SimulatedDisk,
    monkeypatch: pytest.MonkeyPatch,
    torn_bytes: int,
    missing_bytes: int,
    is_damage: bool,
) -> None:
    whole = b"".join(message(offset) for offset in range(4))
    data = whole + message(4)[:torn_bytes]
    covered_end = len(whole) + missing_bytes
    plain = end_of(simulated_disk, data)
    monkeypatch.setattr(Checksums, "load", lambda *_: SimpleNamespace(covered_end=covered_end))
    end = end_of(simulated_disk, data)
    if is_damage:
        assert (end.position, end.next_offset, end.torn, end.was_synced) == (len(whole), 4, None, True)
        assert end.damage == damage_of_synced(segment_name(0), len(whole), plain.torn, covered_end)
    else:
        assert end == plain
        assert (end.damage, end.was_synced) == (None, False)


def test_damage_at_the_end_stays_damage_whatever_was_synced(
    simulated_disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join(message(offset) for offset in (0, 1, 2, 3)) + b"noise" + message(1) + message(2) + b"noise"
    plain = end_of(simulated_disk, data)
    assert plain.damage is not None
    monkeypatch.setattr(Checksums, "load", lambda *_: SimpleNamespace(covered_end=len(data)))
    assert end_of(simulated_disk, data) == plain
