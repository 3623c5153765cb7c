"""Reading journals: along their links, past damage, and never in a circle."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.format import Evidence
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, NotFound, WrongUse
from logwright.yeltsin.bytes import codec
from logwright.yeltsin.files.reader import JournalsReader, Reader
from logwright.yeltsin.files.seal import seal
from logwright.yeltsin.format import looks_like, open_reader
from tests.yeltsin.samples import CREATED, GOLDEN, journal, linked, modify, numbered, transaction, write

COUNT = 6
ITEMS, STARTS = linked(numbered(COUNT))
DATA = journal(numbered(COUNT))
FLAGS_AT = STARTS[-1] + 24


def laid_out(path: Path, data: bytes) -> Reader:
    path.write_bytes(data)
    return Reader(path)


def with_link(at: int, target: int, data: bytes = DATA) -> bytes:
    return data[:at] + target.to_bytes(8, "little") + data[at + 8 :]


def pieces(reader: Reader) -> list[Any]:
    """The results with `permissive`: transactions by their timestamps, damage by its place and kind."""
    found = []
    for item in reader.transactions(mode="permissive"):
        is_damage = isinstance(item, Damage)
        found.append((item.start, item.end, item.kind) if is_damage else item.timestamp - CREATED)  # type: ignore[union-attr]
    return found


# --- what is whole ----------------------------------------------------------------------------------------------------


def test_journal_of_the_original_is_empty(tmp_path: Path) -> None:
    reader = Reader(GOLDEN / "journal_empty.jrnl")
    assert (list(reader), reader.count(), reader.next, reader.last(3)) == ([], 0, 20, [])
    assert reader.state() == {"transactions": 0, "last": None, "redo": False, "pages": {}}
    assert reader.verify().sound


@pytest.mark.parametrize("gap_bytes", [0, 8, 40])
def test_transactions_are_read_in_order_wherever_they_are_stored(tmp_path: Path, gap_bytes: int) -> None:
    items, starts = linked(numbered(20), gap_bytes=gap_bytes)
    reader = laid_out(tmp_path / "t.jrnl", journal(numbered(20), gap_bytes=gap_bytes))
    assert list(reader) == items
    assert [(found.record, found.span.start) for found in reader.scan()] == list(zip(items, starts, strict=True))
    assert reader.count() == 20
    assert reader.count(starts[3], starts[7]) == 4
    assert [found.record for found in reader.last(4)] == items[-4:]
    assert [reader.find_index(index) for index in range(20)] == starts
    assert reader.find_index(20) == reader.next == reader.path.stat().st_size


def test_transaction_larger_than_the_buffer_is_read(tmp_path: Path) -> None:
    large = transaction(*[modify(bytes(60_000), bytes([number]) * 60_000) for number in range(8)])
    items, starts = linked([transaction(), large, transaction(end=0xFE)])
    reader = laid_out(tmp_path / "t.jrnl", journal(items))
    assert list(reader) == items
    assert reader.count() == 3
    assert reader.find_index(2) == starts[2]
    assert [found.record for found in reader.last(2)] == items[1:]


def test_time_is_found_and_includes_its_own_second(tmp_path: Path) -> None:
    reader = laid_out(tmp_path / "t.jrnl", DATA)
    at = (CREATED + 2) * 1_000_000_000
    assert reader.find_time(at) == STARTS[2]
    assert reader.find_moment(at) == STARTS[3]
    assert reader.find_time(at + 1) == reader.find_moment(at + 999_999_999) == STARTS[3]
    assert reader.find_time(2**62) == reader.next


def test_no_transaction_follows_the_last(tmp_path: Path) -> None:
    reader = laid_out(tmp_path / "t.jrnl", DATA)
    with pytest.raises(WrongUse, match="there is no transaction 7; there are 6"):
        reader.find_index(7)


# --- how it may end ---------------------------------------------------------------------------------------------------

ENDS = {
    "its last operation cut off": DATA[:-1],
    "only its head": DATA[: STARTS[-1] + 25],
    "part of its head": DATA[: STARTS[-1] + 3],
    "nothing of it": DATA[: STARTS[-1]],
    "zeros": DATA[: STARTS[-1]] + bytes(40),
    "no link to it": with_link(STARTS[-2] + 8, 0, DATA[:-1]),
    "neither a link nor a byte": with_link(STARTS[-2] + 8, 0, DATA[: STARTS[-1]]),
}


@pytest.mark.parametrize("data", ENDS.values(), ids=ENDS)
def test_last_transaction_without_an_end_is_a_torn_tail(tmp_path: Path, data: bytes) -> None:
    unflagged = data[:FLAGS_AT] + b"\0" + data[FLAGS_AT + 1 :] if len(data) > FLAGS_AT else data
    reader = laid_out(tmp_path / "t.jrnl", unflagged)
    items = [item.timestamp - CREATED for item in reader]
    assert items == [0, 1, 2, 3, 4]
    assert reader.torn_tail is not None
    assert (reader.torn_tail.start, reader.torn_tail.end) == (STARTS[-1], len(unflagged))
    report = reader.verify()
    assert [(problem.kind, problem.position) for problem in report.problems] == [("torn_tail", STARTS[-1])]


def test_durable_last_transaction_without_an_end_is_damage(tmp_path: Path) -> None:
    reader = laid_out(tmp_path / "t.jrnl", DATA[:-1])
    with pytest.raises(DamagedJournal) as raised:
        list(reader)
    assert raised.value.position == STARTS[-1]
    assert pieces(reader) == [0, 1, 2, 3, 4, (STARTS[-1], len(DATA) - 1, "malformed")]


@pytest.mark.parametrize("tail", [b"\0", bytes(100), b"\xff" * 30, codec.encode(transaction(flags=0))], ids=range(4))
def test_bytes_after_the_last_transaction_are_a_torn_tail(tmp_path: Path, tail: bytes) -> None:
    for data in (DATA, with_link(STARTS[-1] + 8, len(DATA))):
        reader = laid_out(tmp_path / "t.jrnl", data + tail)
        assert pieces(reader) == [0, 1, 2, 3, 4, 5, (len(DATA), len(DATA) + len(tail), "torn_tail")]


def test_durable_transaction_after_the_last_one_means_a_stale_header(tmp_path: Path) -> None:
    reader = laid_out(tmp_path / "t.jrnl", with_link(12, STARTS[3]))
    with pytest.raises(DamagedJournal, match="one that is in the storage follows it") as raised:
        list(reader)
    assert raised.value.position == 12
    assert pieces(reader) == [0, 1, 2, 3, (12, 20, "link"), 4, 5]


def test_short_header_is_a_torn_tail_and_another_one_is_damage(tmp_path: Path) -> None:
    assert pieces(laid_out(tmp_path / "a.jrnl", b"JRNL\0\0")) == [(0, 6, "torn_tail")]
    assert pieces(laid_out(tmp_path / "b.jrnl", b"")) == [(0, 0, "torn_tail")]
    assert pieces(laid_out(tmp_path / "c.jrnl", b"JRNK" + DATA[4:])) == [(0, 20, "malformed"), 0, 1, 2, 3, 4, 5]
    assert pieces(laid_out(tmp_path / "d.jrnl", bytes(20) + DATA[20:])) == [(0, len(DATA), "malformed")]


# --- hostile links ----------------------------------------------------------------------------------------------------

LINK_3 = STARTS[2] + 8
HOSTILE: dict[str, tuple[int, int, list[Any]]] = {
    "past the end": (LINK_3, 10**9, [0, 1, 2, (LINK_3, LINK_3 + 8, "link"), 3, 4, 5]),
    "far past the end": (LINK_3, 2**64 - 1, [0, 1, 2, (LINK_3, LINK_3 + 8, "link"), 3, 4, 5]),
    "to the end": (LINK_3, len(DATA), [0, 1, 2, (LINK_3, LINK_3 + 8, "link"), 3, 4, 5]),
    "into the header": (LINK_3, 4, [0, 1, 2, (LINK_3, LINK_3 + 8, "link"), 3, 4, 5]),
    "backwards": (LINK_3, STARTS[1], [0, 1, 2, (LINK_3, LINK_3 + 8, "link"), 3, 4, 5]),
    "to itself": (LINK_3, STARTS[2], [0, 1, 2, (LINK_3, LINK_3 + 8, "link"), 3, 4, 5]),
    "into another transaction": (LINK_3, STARTS[4] + 3, [0, 1, 2, (LINK_3, LINK_3 + 8, "link"), 3, 4, 5]),
    "over another transaction": (LINK_3, STARTS[4], [0, 1, 2, (LINK_3, LINK_3 + 8, "link"), 3, 4, 5]),
    "to nothing": (LINK_3, 0, [0, 1, 2, (LINK_3, LINK_3 + 8, "link"), 3, 4, 5]),
    "into its own operations": (LINK_3, STARTS[2] + 27, [0, 1, (STARTS[2], STARTS[3], "malformed"), 3, 4, 5]),
    "a previous that is another": (STARTS[3], STARTS[1], [0, 1, 2, (STARTS[3], STARTS[3] + 8, "link"), 3, 4, 5]),
    "a previous that is itself": (STARTS[3], STARTS[3], [0, 1, 2, (STARTS[3], STARTS[3] + 8, "link"), 3, 4, 5]),
    "the first past the end": (4, 10**9, [(4, 12, "link"), 0, 1, 2, 3, 4, 5]),
    "no first": (4, 0, [(4, 12, "link"), 0, 1, 2, 3, 4, 5]),
    "the first in the header": (4, 7, [(4, 12, "link"), 0, 1, 2, 3, 4, 5]),
    "the second as the first": (4, STARTS[1], [(4, 12, "link"), 0, 1, 2, 3, 4, 5]),
    "the last past the end": (12, 10**9, [0, 1, 2, 3, 4, 5, (12, 20, "link")]),
    "the last beyond every number": (12, 2**64 - 1, [0, 1, 2, 3, 4, 5, (12, 20, "link")]),
    "the last into its own operations": (
        STARTS[5] + 8,
        STARTS[5] + 25,
        [0, 1, 2, 3, 4, (STARTS[5], len(DATA), "malformed")],
    ),
    "no last": (12, 0, [0, 1, 2, 3, 4, 5, (12, 20, "link")]),
    "the last in the header": (12, 6, [0, 1, 2, 3, 4, 5, (12, 20, "link")]),
    "the last within a transaction": (12, STARTS[3] + 1, [0, 1, 2, 3, 4, 5, (12, 20, "link")]),
}


@pytest.mark.parametrize(("at", "target", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_link_is_reported_with_its_position_and_reading_continues(
    tmp_path: Path, at: int, target: int, expected: list[Any]
) -> None:
    reader = laid_out(tmp_path / "t.jrnl", with_link(at, target))
    assert pieces(reader) == expected
    (damage,) = (piece for piece in expected if isinstance(piece, tuple))
    with pytest.raises(DamagedJournal) as raised:
        list(reader)
    assert raised.value.position == damage[0]
    report = reader.verify()
    assert [(problem.position, problem.kind) for problem in report.problems] == [(damage[0], damage[2])]


def test_bad_operation_loses_only_its_transaction(tmp_path: Path) -> None:
    data = bytearray(DATA)
    data[STARTS[2] + 25] = 0x77
    reader = laid_out(tmp_path / "t.jrnl", bytes(data))
    assert pieces(reader) == [0, 1, (STARTS[2], STARTS[3], "malformed"), 3, 4, 5]
    with pytest.raises(DamagedJournal, match=rf"there is no operation 0x77 \(at {STARTS[2] + 25}\)"):
        list(reader)


def test_backward_links_lead_past_a_wiped_range(tmp_path: Path) -> None:
    wiped = DATA[: STARTS[1] + 3] + bytes(STARTS[4] - 5 - STARTS[1] - 3) + DATA[STARTS[4] - 5 :]
    reader = laid_out(tmp_path / "t.jrnl", wiped)
    assert pieces(reader) == [0, (STARTS[1], STARTS[4], "malformed"), 4, 5]


def test_transaction_in_the_middle_without_an_end_is_incomplete(tmp_path: Path) -> None:
    items = numbered(COUNT)
    items[2] = replace(items[2], end=None)
    reader = laid_out(tmp_path / "t.jrnl", journal(items))
    assert [item.outcome for item in reader] == ["completed"] * 2 + ["incomplete"] + ["completed"] * 3


def test_no_links_make_a_reader_loop_or_raise_other_errors(tmp_path: Path) -> None:
    chance = random.Random(11)
    places = [4, 12] + [start + at for start in STARTS for at in (0, 8)]
    targets = [0, 4, 20, len(DATA), 2**63, 2**64 - 1, *STARTS, *(start + 1 for start in STARTS)]
    for number in range(400):
        data = DATA
        for _ in range(chance.choice((1, 2, 3, 6))):
            data = with_link(chance.choice(places), chance.choice(targets), data)
        reader = laid_out(tmp_path / f"{number}.jrnl", data)
        read = [piece for piece in pieces(reader) if not isinstance(piece, tuple)]
        assert read == sorted(set(read))
        assert reader.count() == len(read)
        assert reader.verify().records == len(read)
        reader.state(), reader.summary(), reader.next, reader.find_time(0)


# --- the state of pages -----------------------------------------------------------------------------------------------


def test_void_transactions_change_nothing(tmp_path: Path) -> None:
    items = [
        transaction(modify(b"aaaa", b"bbbb")),
        transaction(modify(b"bb", b"cc"), end=0xFE),
        transaction(modify(b"bb", b"dd", 1), flags=0),
    ]
    _, starts = linked(items)
    reader = laid_out(tmp_path / "t.jrnl", journal(items))
    assert reader.state() == {
        "transactions": 3,
        "last": starts[2],
        "redo": True,
        "pages": {"30": [{"offset": 0, "data": "YmRkYg=="}]},
    }


def test_before_images_show_the_original_bytes(tmp_path: Path) -> None:
    items = [transaction(modify(b"old", b"new", 10)), transaction(modify(b"ne", b"xx", 10), modify(b"far", b"off", 90))]
    reader = laid_out(tmp_path / "t.jrnl", journal(items))

    def known(index: int) -> list[tuple[int, bytes]]:
        return reader.pages(reader.find_index(index)).pages[30].items()

    assert known(0) == [(10, b"old"), (90, b"far")]
    assert known(1) == [(10, b"new"), (90, b"far")]
    assert known(2) == [(10, b"xxw"), (90, b"off")]
    assert reader.diff(reader.find_index(0), reader.find_index(1)) == {
        "added": {},
        "changed": {"30": {"before": [{"offset": 10, "data": "b2xk"}], "after": [{"offset": 10, "data": "bmV3"}]}},
        "removed": {},
    }


def test_history_lists_the_transactions_of_a_page(tmp_path: Path) -> None:
    reader = laid_out(tmp_path / "t.jrnl", DATA)
    found = reader.history(str(30 + 65536 * 4))
    assert [(change["transaction"], change["event"], change.get("deleted")) for change in found] == [
        (4, "remove", True)
    ]
    assert len(reader.history("30")) == 6
    with pytest.raises(NotFound, match="no transaction has changed the page 31"):
        reader.history("31")
    with pytest.raises(WrongUse, match="is no page"):
        reader.history("first")


# --- finding journals -------------------------------------------------------------------------------------------------


def test_journal_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain", *numbered(1))
    assert looks_like(REAL_DISK, plain) is not None
    (tmp_path / "other").write_bytes(b"JRN")
    assert looks_like(REAL_DISK, tmp_path / "other") is None
    assert looks_like(REAL_DISK, tmp_path) is None
    write(tmp_path / "a.jrnl", *numbered(2))
    assert isinstance(open_reader(tmp_path), Reader)
    write(tmp_path / "b.jrnl", *numbered(3))
    both = open_reader(tmp_path)
    assert isinstance(both, JournalsReader)
    assert both.count() == 5
    evidence = looks_like(REAL_DISK, tmp_path)
    assert evidence is not None
    assert evidence.score == 3


def test_journal_with_a_damaged_signature_is_recognised_by_its_first_transaction(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    path.write_bytes(b"JSNL" + DATA[4:])
    assert looks_like(REAL_DISK, path) == Evidence(2, "its signature is damaged, and a first transaction follows it")
    path.write_bytes(b"JSNL" + DATA[4:50])
    assert looks_like(REAL_DISK, path) is None
    assert looks_like(REAL_DISK, path.rename(tmp_path / "t.jrnl")) == Evidence(1, "it is named like a journal")


# --- seals ------------------------------------------------------------------------------------------------------------


def sealed(*, after: bool, broken: bool) -> bytes:
    """A journal whose last transaction is sealed and not in the storage; named by the header, or after the last."""
    operations = codec.encode_operation(modify(b"abc", b"def"))
    end_data = seal(STARTS[-1], CREATED + COUNT, operations)
    last = transaction(modify(b"abc", b"def"), timestamp=CREATED + COUNT, flags=0, data=end_data)
    data = bytearray(journal([*numbered(COUNT), last]))
    if broken:
        data[len(DATA) + 50] ^= 1
    if after:
        data[12:20] = DATA[12:20]
    return bytes(data)


@pytest.mark.parametrize("after", [False, True])
def test_seal_shows_whether_a_last_transaction_is_complete(tmp_path: Path, after: bool) -> None:
    whole = sealed(after=after, broken=False)
    reader = laid_out(tmp_path / "a.jrnl", whole)
    assert pieces(reader) == [0, 1, 2, 3, 4, 5, 6]
    assert (reader.count(), reader.next, len(reader.last(9))) == (7, len(whole), 7)
    reader = laid_out(tmp_path / "b.jrnl", sealed(after=after, broken=True))
    assert pieces(reader) == [0, 1, 2, 3, 4, 5, (len(DATA), len(whole), "torn_tail")]
    assert (reader.count(), reader.next, len(reader.last(9))) == (6, len(DATA), 6)
