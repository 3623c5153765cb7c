"""The state of a journal: its offsets, files and consumers, now and in the past."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.errors import HistoryUnavailable, WrongUse
from logwright.sej.bytes.layout import segment_name
from logwright.sej.files.reader import Reader, read_state
from logwright.sej.model.offset import Offset
from logwright.sej.model.replay import Extent, SejState, replay, rewind
from tests.sej.samples import GOLDEN, MESSAGE_BYTES, golden_case, golden_lines, make_journal
from tests.support.damage import cut, damage_file, noise, overwrite

EXTENTS = (Extent("a", 5, 10, 500), Extent("b", 10, 20, 1000), Extent("c", 20, 23, 300))


@pytest.fixture
def journal(journal_directory: Path) -> Path:
    """A journal of 25 messages in segments of 10, read by three consumers."""
    make_journal(journal_directory, 25)
    for name, offset in (("ahead", 20), ("behind", 3)):
        with Offset(journal_directory, name) as consumer:
            consumer.commit(offset)
    Offset(journal_directory, "new").close()
    return journal_directory


def bytes_at(state: SejState) -> list[tuple[int, int, int]]:
    return [(segment.first, segment.next, segment.bytes) for segment in state.segments]


# --- of offsets alone -----------------------------------------------------------------------------------------------


def test_state_is_made_of_extents_and_consumers() -> None:
    state = replay(EXTENTS, {"reader": 12, "new": None})
    assert state.as_json() == {
        "first": 5,
        "next": 23,
        "segments": [
            {"file": "a", "first": 5, "next": 10, "bytes": 500},
            {"file": "b", "first": 10, "next": 20, "bytes": 1000},
            {"file": "c", "first": 20, "next": 23, "bytes": 300},
        ],
        "consumers": {"reader": 12, "new": None},
    }
    assert replay([], {}) == SejState(0, 0, (), {})


@pytest.mark.parametrize(
    ("at", "segments"),
    [
        (5, [(5, 5, 7)]),
        (9, [(5, 9, 7)]),
        (10, [(5, 10, 500), (10, 10, 7)]),
        (12, [(5, 10, 500), (10, 12, 7)]),
        (20, [(5, 10, 500), (10, 20, 1000), (20, 20, 7)]),
        (23, [(5, 10, 500), (10, 20, 1000), (20, 23, 300)]),
    ],
)
def test_state_can_be_rewound(at: int, segments: list[tuple[int, int, int]]) -> None:
    state = rewind(replay(EXTENTS, {"reader": 12, "new": None}), at, bytes_before=7)
    assert (state.first, state.next, bytes_at(state)) == (5, at, segments)
    assert state.consumers == {"reader": min(12, at), "new": None}


# --- of a journal ---------------------------------------------------------------------------------------------------


def test_current_state_is_returned(journal: Path) -> None:
    assert Reader(journal).state() == {
        "first": 0,
        "next": 25,
        "segments": [
            {"file": "jnl/0000000000000000.jnl", "first": 0, "next": 10, "bytes": 400},
            {"file": "jnl/000000000000000a.jnl", "first": 10, "next": 20, "bytes": 400},
            {"file": "jnl/0000000000000014.jnl", "first": 20, "next": 25, "bytes": 200},
        ],
        "consumers": {"ahead": 20, "behind": 3, "new": None},
    }


def test_state_at_every_offset_is_returned(journal: Path) -> None:
    reader = Reader(journal)
    for at in range(26):
        state = read_state(reader, at)
        assert (state.first, state.next) == (0, at)
        assert [segment.first for segment in state.segments] == list(range(0, min(at, 20) + 1, 10))
        assert sum(segment.bytes for segment in state.segments) == at * MESSAGE_BYTES
        assert state.consumers == {"ahead": min(at, 20), "behind": min(at, 3), "new": None}


def test_state_of_a_journal_of_the_original_counts_bytes_of_any_size() -> None:
    reader = Reader(GOLDEN / "fifty" / "sej")
    sizes = [26 + len(message.key) + len(message.value) for message in reader]
    for at in range(51):
        (segment,) = read_state(reader, at).segments
        assert (segment.next, segment.bytes) == (at, sum(sizes[:at]))


def test_state_at_offsets_outside_the_journal_is_refused(journal: Path) -> None:
    (journal / "jnl" / segment_name(0)).unlink()
    with pytest.raises(HistoryUnavailable, match="begins with offset 10: what was at 9 is not kept"):
        Reader(journal).state(9)
    with pytest.raises(WrongUse, match="offset 26 is yet to come: the next message gets 25"):
        Reader(journal).state(26)
    assert Reader(journal).state(10)["segments"] == [
        {"file": "jnl/000000000000000a.jnl", "first": 10, "next": 10, "bytes": 0}
    ]


def test_empty_journal_has_a_state() -> None:
    reader = Reader(GOLDEN / "empty" / "sej")
    segment = {"file": "jnl/0000000000000000.jnl", "first": 0, "next": 0, "bytes": 0}
    state = {"first": 0, "next": 0, "segments": [segment], "consumers": {}}
    assert (reader.state(), reader.state(0)) == (state, state)


def test_torn_tail_is_not_counted_and_is_reported() -> None:
    reader = Reader(GOLDEN / "torn_10" / "sej")
    (segment,) = reader.state()["segments"]
    assert (segment["next"], segment["bytes"]) == (49, 116874)
    assert reader.torn_tail is not None
    assert (reader.torn_tail.start, reader.torn_tail.kind) == (116874, "torn_tail")


def test_damage_in_the_middle_leaves_the_ends_known(journal: Path) -> None:
    damage_file(journal / "jnl" / segment_name(10), overwrite, 3 * MESSAGE_BYTES, noise(2 * MESSAGE_BYTES, 1))
    reader = Reader(journal)
    assert read_state(reader).next == 25
    found = {at: bytes_at(read_state(reader, at))[-1] for at in (12, 13, 14, 15)}
    assert found == {12: (10, 12, 80), 13: (10, 13, 120), 14: (10, 14, 120), 15: (10, 15, 200)}


def test_torn_middle_segment_ends_early(journal: Path) -> None:
    damage_file(journal / "jnl" / segment_name(10), cut, 5 * MESSAGE_BYTES + 3)
    state = read_state(Reader(journal))
    assert bytes_at(state) == [(0, 10, 400), (10, 15, 200), (20, 25, 200)]
    assert bytes_at(read_state(Reader(journal), 17)) == [(0, 10, 400), (10, 15, 200)]


def test_consumer_whose_offset_cannot_be_read_is_shown_without_one(journal: Path) -> None:
    (journal / "ofs" / "behind.ofs").write_bytes(b"1")
    assert Reader(journal).state()["consumers"] == {"ahead": 20, "behind": None, "new": None}


def test_consumers_of_the_original_are_read() -> None:
    stored = Reader(GOLDEN / "offsets" / "sej").state()
    assert stored["next"] == len(golden_lines("offsets")) == golden_case("offsets")["messages"]
    assert stored["consumers"]["reader1"] == 17
    assert stored["consumers"]["never_committed_first"] is None


def test_single_segment_file_has_its_own_state(journal: Path) -> None:
    assert Reader(journal / "jnl" / segment_name(10)).state() == {
        "first": 10,
        "next": 20,
        "segments": [{"file": "000000000000000a.jnl", "first": 10, "next": 20, "bytes": 400}],
        "consumers": {},
    }
