"""What an operator may do to a sej journal, and what each verb answers: 25 messages of 40 bytes, ten to a segment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal
from logwright.sej.bytes.codec import encode
from logwright.sej.bytes.layout import segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.missing import find_missing
from logwright.sej.files.reader import Reader
from logwright.sej.files.repair import apply, plan, undo
from logwright.sej.files.scanner import Scanner
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


# --- copies that were not finished ------------------------------------------------------------------------------------


def half_copied(directory: Path, size: int, *keep: str) -> Path:
    """A journal of 45 messages whose copy ended within the second segment; of other files `keep` is there."""
    make_journal(directory, 45)
    for file in sorted((directory / "jnl").iterdir())[2:]:
        file.unlink()
    for file in (directory / "idx").iterdir():
        if file.name not in keep:
            file.unlink()
    damage_file(directory / "jnl" / MIDDLE, cut, size)
    return directory


OWN_INDEX, THIRD_INDEX, LAST_INDEX = (f"{first:016x}.idx" for first in (10, 20, 40))


@pytest.mark.parametrize(
    ("keep", "size", "end"),
    [
        ([OWN_INDEX], 150, 20),
        ([OWN_INDEX], 160, 20),
        ([OWN_INDEX], 0, 20),
        ([THIRD_INDEX], 150, 20),
        ([THIRD_INDEX], 160, 20),
        ([OWN_INDEX, LAST_INDEX], 399, 40),
        ([OWN_INDEX, THIRD_INDEX, LAST_INDEX], 3, 20),
    ],
)
def test_cut_segment_of_a_half_finished_copy_is_damage_with_an_exact_account(
    journal_directory: Path, keep: list[str], size: int, end: int
) -> None:
    directory = half_copied(journal_directory, size, *keep)
    present = {file: file.read_bytes() for file in directory.rglob("*.*") if file.suffix in (".jnl", ".idx")}
    first = 10 + size // 40
    report = Reader(directory).verify()
    problem = next(problem for problem in report.problems if problem.file == f"jnl/{MIDDLE}")
    assert problem.kind == ("malformed" if size % 40 else "truncated")
    lost = f"messages {first} to {end - 1} are missing" if end > first + 1 else f"message {first} is missing"
    assert lost in problem.message
    with pytest.raises(DamagedJournal):
        Writer(directory)
    assert {file: file.read_bytes() for file in present} == present
    found = plan(directory)
    assert [loss.fields["next"] for loss in found.losses] == [None] * len(found.losses)
    loss = found.losses[0]
    assert (loss.file, loss.at_least) == (f"jnl/{MIDDLE}", end - first)
    assert loss.at_most == (None if keep == [OWN_INDEX] else end - first)
    assert found.losses[-1].at_most is None, "nothing shows what came after"
    assert loss.fields["first"] == first
    assert {int(loss.file[4:20], 16) for loss in found.losses[1:]} == {
        int(name[:16], 16) for name in keep if name != OWN_INDEX
    }
    apply(directory, found)
    assert Reader(directory).verify().problems == []
    assert plan(directory).empty
    assert plan(directory).losses == ()
    undo(directory)
    assert {file: file.read_bytes() for file in directory.rglob("*.*") if file.suffix in (".jnl", ".idx")} == present
    apply(directory, plan(directory))
    with Writer(directory) as writer:
        assert writer.recovered is None
        assert writer.append(b"new") == first
    assert offsets_of(Reader(directory)) == list(range(first + 1))


def test_readers_and_scanners_report_a_segment_that_ends_before_its_index_says(journal_directory: Path) -> None:
    directory = half_copied(journal_directory, 150, OWN_INDEX)
    for read in (Reader(directory), Scanner(directory, timeout=0)):
        with pytest.raises(DamagedJournal, match=r"0a\.jnl @ 120: .*; it was synced up to 400"):
            list(read)
    damage_file(directory / "jnl" / MIDDLE, cut, 120)
    for read in (Reader(directory), Scanner(directory, timeout=0)):
        with pytest.raises(DamagedJournal, match=r"0a\.jnl @ 120: the file ends here; it was synced up to 400"):
            list(read)


def test_index_of_an_earlier_journal_of_the_same_name_shows_nothing(journal_directory: Path) -> None:
    directory = half_copied(journal_directory, 0, OWN_INDEX)
    (directory / "jnl" / MIDDLE).write_bytes(b"".join(encode(Message(10 + n, 1000 + n, 0, b"", b"")) for n in range(3)))
    assert Reader(directory).verify().problems == []
    assert offsets_of(Reader(directory)) == list(range(13))
    Writer(directory).close()


def test_writer_that_continues_in_a_finished_segment_is_not_refused(journal_directory: Path) -> None:
    directory = half_copied(journal_directory, 400, OWN_INDEX)
    with Writer(directory) as writer:
        writer.append(b"more")
    (directory / "idx" / OWN_INDEX).unlink()
    assert Reader(directory).verify().sound
    assert offsets_of(Reader(directory)) == list(range(21))


def test_readers_report_a_missing_last_segment_after_all_messages(journal_directory: Path) -> None:
    make_journal(journal_directory, 25)
    (journal_directory / "jnl" / LAST).unlink()
    read: list[Message] = []
    with pytest.raises(DamagedJournal, match=rf"jnl/{LAST} @ 0: the segment is missing"):
        read.extend(item for item in Reader(journal_directory) if isinstance(item, Message))
    assert offsets_of(read) == list(range(20))
    items = list(Reader(journal_directory).messages(mode="permissive"))
    assert offsets_of(items[:-1]) == list(range(20))
    assert isinstance(items[-1], Damage)
    assert (items[-1].file, items[-1].kind) == (f"jnl/{LAST}", "missing_segment")
    assert offsets_of(Reader(journal_directory).messages(0, 20)) == list(range(20))


def test_segment_that_begins_while_the_journal_is_read_is_not_missing(journal_directory: Path) -> None:
    make_journal(journal_directory, 25)
    reader = Reader(journal_directory)
    with Writer(journal_directory, segment_size=400) as writer:
        messages = iter(reader)
        assert next(messages).offset == 0
        for number in range(20):
            writer.append(b"%d" % number)
        writer.flush()
        assert offsets_of(messages)[:24] == list(range(1, 25))
        segments = reader.segments()
        assert find_missing(REAL_DISK, journal_directory, segments[:-2]) == []
