"""Repairs: links follow intact transactions, torn ends are cut, links skip bad bytes; and undo reverts all of it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logwright.yeltsin.bytes.table_layout import new_table
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.files.repair import apply, plan, undo
from logwright.yeltsin.files.seal import seal
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.model.database import Database
from tests.cli.support import run
from tests.support.damage import flip_bits, overwrite
from tests.yeltsin.samples import CREATED, journal, linked, modify, numbered, sealed, transaction
from tests.yeltsin.test_reader import COUNT, DATA, HOSTILE, STARTS, with_link


def repaired(path: Path, data: bytes) -> list[int]:
    """Repair, check undo, repair again; the remaining transactions."""
    path.write_bytes(data)
    made = plan(path)
    assert apply(path, made) is not None
    report = Reader(path).verify()
    assert report.problems == []
    after = path.read_bytes()
    assert plan(path).empty
    undo(path)
    assert path.read_bytes() == data
    apply(path, plan(path))
    assert path.read_bytes() == after
    with TransactionJournal(path) as writer:
        assert writer.recovered is None
        writer.append([], timestamp=CREATED + 99)
    *found, last = Reader(path)
    assert last.timestamp == CREATED + 99
    return [item.timestamp - CREATED for item in found]


@pytest.mark.parametrize(("at", "target", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_link_is_repaired(tmp_path: Path, at: int, target: int, expected: list[Any]) -> None:
    data = with_link(at, target)
    assert repaired(tmp_path / "t.jrnl", data) == list(range(COUNT))


def test_only_the_link_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(with_link(STARTS[2] + 8, 5))
    (step,) = plan(path).steps
    assert step.as_json() == {
        "do": "patch",
        "file": "t.jrnl",
        "position": STARTS[2] + 8,
        "old": "0500000000000000",
        "new": STARTS[3].to_bytes(8, "little").hex(),
        "reason": f"the transaction at {STARTS[2]} names 5 as the next, which is in the header",
    }
    apply(path, plan(path))
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("header", [b"", b"JRNK" + DATA[4:20], bytes(20), b"\xff" * 20], ids=range(4))
def test_torn_header_is_rewritten(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(header + DATA[len(header) :])
    if header:
        apply(path, plan(path))
    assert path.read_bytes() == DATA


def test_without_a_header_and_a_transaction_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    for data in (b"JRNK" + DATA[4 : STARTS[1] - 3], b"????" + bytes(16) + b"something else"):
        path.write_bytes(data)
        made = plan(path)
        assert made.empty
        assert "no transaction is found after it" in made.left[0]


def test_signature_of_an_empty_journal_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(b"JRNK" + bytes(16))
    apply(path, plan(path))
    assert path.read_bytes() == journal([])


@pytest.mark.parametrize("at", [0, 12], ids=["signature", "last"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_last_transaction_that_does_not_match_its_seal_is_cut(tmp_path: Path, at: int, count: int) -> None:
    kept = numbered(count)
    last = transaction(modify(b"a", b"b"), timestamp=CREATED + count, flags=0, data=seal(20, 5, b"another"))
    data = bytearray(journal([*kept, last]))
    data[at] ^= 0x81
    assert repaired(tmp_path / "t.jrnl", bytes(data)) == list(range(count))


SEALED = sealed(*numbered(6))
SEALED_STARTS = linked([replace(item, end_data=bytes(8)) for item in numbered(6)])[1]


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("at", [16, 19, 23], ids=["low", "middle", "high"])
def test_changed_time_of_a_sealed_transaction_is_detected_and_taken_out(tmp_path: Path, number: int, at: int) -> None:
    data = flip_bits(SEALED, SEALED_STARTS[number] + at, 0x40)
    path = tmp_path / "t.jrnl"
    path.write_bytes(data)
    problems = Reader(path).verify().problems
    assert [(problem.kind, problem.position) for problem in problems] == [("seal", SEALED_STARTS[number])]
    losses = [loss for loss in plan(path).losses if loss.kind == "lost"]
    assert [(loss.at_least, loss.at_most) for loss in losses] == [(1, 1)]
    assert repaired(path, data) == [one for one in range(6) if one != number]


@pytest.mark.parametrize("number", range(6))
def test_changed_flags_of_a_sealed_transaction_are_restored(tmp_path: Path, number: int) -> None:
    """The flag of the last one is not set again, as nothing proves it: then a redo is due, which changes nothing."""
    data = overwrite(SEALED, SEALED_STARTS[number] + 24, b"\xa5")
    path = tmp_path / "t.jrnl"
    path.write_bytes(data)
    problems = Reader(path).verify().problems
    assert [(problem.kind, problem.position) for problem in problems] == [("flags", SEALED_STARTS[number])]
    assert [(loss.kind, loss.what) for loss in plan(path).losses] == [
        ("restored", f"the flags of the transaction at {SEALED_STARTS[number]}")
    ]
    apply(path, plan(path))
    assert path.read_bytes() == overwrite(SEALED, SEALED_STARTS[number] + 24, b"\x01" if number < 5 else b"\x00")
    assert Reader(path).verify().problems == []


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("number", range(6))
def test_wrong_previous_of_a_sealed_transaction_is_proven_by_its_seal(tmp_path: Path, number: int, kept: bool) -> None:
    """Also where the one before it is lost, so that another one precedes it from now on."""
    data = overwrite(SEALED, SEALED_STARTS[number], b"\x77\x77")
    if not kept and number:
        data = overwrite(data, SEALED_STARTS[number - 1] + 25, b"\x77")
    left = [one for one in range(6) if kept or one != number - 1]
    assert repaired(tmp_path / "t.jrnl", data) == left


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(
    ("field", "noise", "is_kept"),
    [
        (8, b"\x11" * 8, True),
        (8, b"\x11" * 16, False),
        (8, b"\x11" * 15 + b"\x91", False),
        (8, b"\x11" * 17, False),
        (15, b"\x11" + (CREATED + 3).to_bytes(8, "little") + b"\x81", False),
        (15, b"\x11" + (CREATED + 3).to_bytes(8, "little") + b"\x01", True),
    ],
    ids=["next", "next and time", "a time before 1970", "all of them", "next and flags", "next, and the same time"],
)
def test_noise_beyond_a_link_takes_the_transaction_out(
    tmp_path: Path, field: int, noise: bytes, is_kept: bool, is_last: bool
) -> None:
    items = numbered(4 if is_last else 8)
    data = overwrite(journal(items), linked(items)[1][3] + field, noise)
    left = [one for one in range(len(items)) if is_kept or one != 3]
    assert repaired(tmp_path / "t.jrnl", data) == left


def test_unlikely_time_and_unknown_flags_without_a_seal_are_anomalies(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(overwrite(DATA, STARTS[-1] + 16, b"\x7f" * 9))
    report = Reader(path).verify()
    assert report.problems == []
    assert [(item.kind, item.position) for item in report.anomalies] == [
        ("unlikely_time", STARTS[-1]),
        ("unknown_flags", STARTS[-1]),
    ]


@pytest.mark.parametrize("data", [SEALED, journal(numbered(6))], ids=["sealed", "plain"])
@pytest.mark.parametrize("copied", [1, 2, 6])
@pytest.mark.parametrize("before", [0, 7])
def test_copies_of_transactions_at_the_end_are_taken_out(tmp_path: Path, data: bytes, copied: int, before: int) -> None:
    """The link of a copy to the one before it names one that another transaction follows already."""
    starts = SEALED_STARTS if data == SEALED else linked(numbered(6))[1]
    path = tmp_path / "t.jrnl"
    assert repaired(path, data + data[starts[-copied] - before :]) == list(range(6))
    is_torn = copied == 1 and data != SEALED  # nothing shows that it was ever whole
    losses = [(loss.kind, loss.at_least, loss.at_most) for loss in Reader(path).losses()]
    assert losses == ([] if is_torn else [("lost", 0, 0)])


def test_copy_of_a_sealed_journal_has_no_wrong_seals(tmp_path: Path) -> None:
    """A repair has moved nothing, but the copy has no lost bytes: its transactions have other places."""
    path = tmp_path / "t.jrnl"
    path.write_bytes(flip_bits(SEALED, SEALED_STARTS[2] + 16, 0x40))
    apply(path, plan(path))
    assert run("convert", path, tmp_path / "t.parquet", "--to", "parquet").code == 0
    for number, source in enumerate((path, tmp_path / "t.parquet")):
        assert run("convert", source, tmp_path / f"copy{number}", "--to", "yeltsin").code == 0
        (copy,) = (tmp_path / f"copy{number}").glob("*.jrnl")
        assert Reader(copy).verify().problems == []
        assert [item.timestamp - CREATED for item in Reader(copy)] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("header", [b"", b"JRNK"], ids=["", "without its header"])
def test_unlinked_transactions_of_a_killed_database_are_kept(tmp_path: Path, header: bytes) -> None:
    path, copy = tmp_path / "t.jrnl", tmp_path / "copy" / "t.jrnl"
    copy.parent.mkdir()
    with Database(tmp_path / "t.ydb", path, checkpoint_bytes=1 << 20) as db:
        for number in range(4):
            with db.transaction() as tx:
                tx.modify(30, number, b"x")
        data = path.read_bytes()
    copy.write_bytes(header + data[len(header) :])
    copy.with_name("t.ydb").write_bytes(new_table())
    made = plan(copy)
    assert made.empty == (not header)
    apply(copy, made)
    assert Reader(copy).verify().problems == []
    with Database(copy.with_name("t.ydb"), copy) as db:
        assert (len(db.redone), db.read(30, 0, 5)) == (4, b"xxxx\0")


def test_bad_bytes_stay_and_links_skip_them(tmp_path: Path) -> None:
    data = bytearray(DATA)
    data[STARTS[2] + 25] = 0x77
    path = tmp_path / "t.jrnl"
    path.write_bytes(data)
    lost, restored = plan(path).losses
    assert (lost.position, lost.bytes, lost.records) == (STARTS[2], STARTS[3] - STARTS[2], "1 record")
    assert lost.what == (
        "transactions between number 1 and number 2 of those that are left, "
        "created after 2023-11-14T22:13:21Z and before 2023-11-14T22:13:23Z"
    )
    assert lost.fields == {
        "start": STARTS[2],
        "end": STARTS[3],
        "after": 2,
        "from": CREATED + 1,
        "to": CREATED + 3,
        "pages": [],
    }
    assert (restored.kind, restored.what) == (
        "restored",
        f"`next` of the transaction at {STARTS[1]}, `previous` of the transaction at {STARTS[3]}",
    )
    assert repaired(path, bytes(data)) == [0, 1, 3, 4, 5]
    assert path.read_bytes()[STARTS[2] + 16 : STARTS[3]] == data[STARTS[2] + 16 : STARTS[3]]


def test_file_without_its_end_is_cut_to_its_intact_part(tmp_path: Path) -> None:
    for size in (STARTS[4] + 30, STARTS[3], STARTS[2] + 1, STARTS[1] - 1):
        path = tmp_path / f"{size}.jrnl"
        whole = sum(end <= size for end in [*STARTS[1:], len(DATA)])
        assert repaired(path, DATA[:size]) == list(range(whole))
        assert size == STARTS[whole] or DATA[STARTS[whole] : size] in [
            copy.read_bytes() for copy in (tmp_path / ".logwright/cut").iterdir()
        ]


def test_bytes_after_the_last_transaction_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(DATA + b"rest")
    apply(path, plan(path))
    assert path.read_bytes() == DATA


def test_whole_journal_needs_no_repair(tmp_path: Path) -> None:
    for count, gap_bytes in ((0, 0), (1, 0), (6, 0), (6, 9)):
        path = tmp_path / "t.jrnl"
        path.write_bytes(journal(numbered(count), gap_bytes=gap_bytes))
        assert plan(path).empty


def test_repair_of_any_links_leaves_a_sound_journal(tmp_path: Path) -> None:
    chance = random.Random(12)
    places = [4, 12] + [start + at for start in STARTS for at in (0, 8)]
    targets = [0, 4, 20, len(DATA), 2**63, 2**64 - 1, *STARTS, *(start + 1 for start in STARTS)]
    for number in range(40):
        data = DATA
        for _ in range(chance.choice((1, 2, 3, 6))):
            data = with_link(chance.choice(places), chance.choice(targets), data)
        path = tmp_path / f"{number}.jrnl"
        path.write_bytes(data)
        before = {item.timestamp for item in Reader(path).transactions(mode="dropmalformed")}
        if not (made := plan(path)).empty:
            apply(path, made)
        assert Reader(path).verify().problems == []
        assert before <= {item.timestamp for item in Reader(path)}
