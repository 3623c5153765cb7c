"""What an operator may do to a sej journal, and what each verb answers: 25 messages of 40 bytes, ten to a segment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import DamagedJournal
from logwright.sej.bytes.layout import segment_name
from logwright.sej.files.reader import Reader
from logwright.sej.files.repair import apply, plan, undo
from logwright.sej.files.writer import Writer
from tests.sej.samples import make_journal, offsets_of
from tests.support.damage import cut, damage_file, drop, flip_bits, insert, noise, overwrite

FIRST, MIDDLE, LAST = (segment_name(first) for first in (0, 10, 20))


def removed(data: bytes) -> bytes:
    """The file is gone."""
    return b""


# what is done to which file, the kinds that `verify` finds, whether a writer opens, and what the account says after a
# repair: (kind, first, next) of lost messages, or (kind, offset, field) of a restored field
TABLE: dict[str, tuple[str, Callable[..., bytes], tuple[Any, ...], list[str], bool, list[tuple[Any, ...]]]] = {
    "truncate the last file": (LAST, cut, (150,), ["torn_tail"], True, []),
    "truncate a middle file": (MIDDLE, cut, (150,), ["malformed"], True, [("lost", 13, 20)]),
    "truncate between messages": (MIDDLE, cut, (120,), ["gap"], True, [("lost", 13, 20)]),
    "flip a bit of a value": (MIDDLE, flip_bits, (150, 1), [], True, []),
    "flip a bit of an offset": (MIDDLE, flip_bits, (127, 1), ["unexpected_offset"], True, [("restored", 13, "offset")]),
    "flip a bit of a size": (MIDDLE, flip_bits, (158, 1), ["malformed"], True, [("restored", 13, "size")]),
    "zero a range": (MIDDLE, overwrite, (125, bytes(60)), ["malformed"], True, [("lost", 13, 15)]),
    "overwrite the first message": (FIRST, overwrite, (0, noise(60, 1)), ["malformed"], True, [("lost", 0, 2)]),
    "insert bytes between messages": (MIDDLE, insert, (120, noise(9, 1)), ["malformed"], True, []),
    "insert bytes in a message": (MIDDLE, insert, (140, noise(9, 1)), ["malformed"], True, [("lost", 13, 14)]),
    "delete bytes": (MIDDLE, drop, (130, 133), ["malformed"], True, [("lost", 13, 14)]),
    "delete messages": (MIDDLE, drop, (120, 200), ["gap"], True, [("lost", 13, 15)]),
    "append garbage to the last file": (LAST, insert, (200, noise(33, 1)), ["torn_tail"], True, []),
    "append garbage to a middle file": (MIDDLE, insert, (400, noise(33, 1)), ["malformed"], True, []),
    "put text in the place of the last file": (
        LAST, lambda data: b"some notes of mine\n" * 9, (), ["malformed"], False, [("lost", 20, None)],
    ),
    "remove a file": (MIDDLE, removed, (), ["gap"], True, [("lost", 10, 20)]),
}  # fmt: skip


@pytest.mark.parametrize("accident", TABLE)
def test_every_verb_matches_the_table(accident: str, journal_directory: Path) -> None:
    name, damage, arguments, kinds, opens, account = TABLE[accident]
    make_journal(journal_directory, 25)
    path = journal_directory / "jnl" / name
    if damage is removed:
        path.unlink()
    else:
        damage_file(path, damage, *arguments)
    before = {file.name: file.read_bytes() for file in (journal_directory / "jnl").iterdir()}
    report = Reader(journal_directory).verify()
    assert [problem.kind for problem in report.problems] == kinds
    is_damaged = bool(kinds) and kinds != ["torn_tail"]
    if is_damaged:
        with pytest.raises(DamagedJournal):
            list(Reader(journal_directory))
    if not opens:
        with pytest.raises(DamagedJournal):
            Writer(journal_directory)
    found = plan(journal_directory)
    assert found.left == ()
    apply(journal_directory, found)
    assert account_of(journal_directory) == account
    assert Reader(journal_directory).verify().sound
    lost = {n for kind, first, after in account if kind == "lost" for n in range(first, 25 if after is None else after)}
    torn = {23, 24} if accident == "truncate the last file" else set()
    assert offsets_of(Reader(journal_directory)) == [n for n in range(25) if n not in lost | torn]
    if not found.empty:
        undo(journal_directory)
    assert {file.name: file.read_bytes() for file in (journal_directory / "jnl").iterdir()} == before


def account_of(directory: Path) -> list[tuple[Any, ...]]:
    names = {"lost": ("first", "next"), "restored": ("offset", "field")}
    return [(loss.kind, *(loss.fields[name] for name in names[loss.kind])) for loss in Reader(directory).losses()]
