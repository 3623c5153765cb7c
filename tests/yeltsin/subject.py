"""Journals of page transactions in the contract tests.

A record is a transaction without its links, and the unused bytes between its end and the next one: a journal with them
is sound, but none of them may be lost.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import strategies

from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Damage, Ending, Malformed, Mode, NeedMore, Span
from logwright.core.format import Located
from logwright.core.io.disk import Disk
from logwright.errors import LogwrightError
from logwright.yeltsin.bytes import codec
from logwright.yeltsin.bytes.layout import COMPLETION, HEADER_BYTES, NEXT_AT, ROLLBACK
from logwright.yeltsin.bytes.records import Allocate, Modify, Operation, Remove, Transaction
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.tables.splits import SPLITS
from tests.contract.scenarios import AppendScenario
from tests.contract.subject import (
    FlipSample,
    Scanned,
    Scenario,
    Subject,
    flip_samples_of,
)
from tests.contract.twins import Twins
from tests.support import hostile
from tests.support.hostile import Make
from tests.support.trees import read_file
from tests.yeltsin.samples import CREATED, PAGE, journal

FILE = "t.jrnl"
TWINS = Twins("logwright.yeltsin", compiled=COMPILED)
_ENDINGS = {codec.CLEAN: Ending.CLEAN, codec.INCOMPLETE: Ending.INCOMPLETE}
_NOWHERE = 2**64 - 1


@dataclass(frozen=True)
class Kept:
    """A transaction, and the unused bytes after it."""

    transaction: Transaction
    tail: bytes = b""


def _linked(records: list[Kept]) -> tuple[list[bytes], list[int]]:
    """The bytes of each record with its links, and the position of each."""
    found: list[bytes] = []
    starts = [HEADER_BYTES]
    for kept in records:
        starts.append(starts[-1] + len(codec.encode(kept.transaction)) + len(kept.tail))
    for number, kept in enumerate(records):
        previous = starts[number - 1] if number else 0
        following = starts[number + 1] if number + 1 < len(records) else 0
        found.append(codec.encode(replace(kept.transaction, previous=previous, next=following)) + kept.tail)
    return found, starts


class YeltsinSubject(Subject):
    name = "yeltsin"
    file = FILE
    is_directory = False
    middle = (60, 200)
    options = {"plain": {}, "small buffer": {"buffer_bytes": 300}}  # noqa: RUF012
    notices_torn_values = False

    # --- records and bytes ------------------------------------------------------------------------------------------

    @lru_cache(maxsize=20_000)  # noqa: B019 - subjects live as long as the run
    def record(self, seed: int, index: int) -> Kept:
        chance = random.Random(f"yeltsin/{seed}/{index}")
        operations = tuple(_operation(chance) for _ in range(chance.choice((0, 1, 1, 2, 4))))
        end = ROLLBACK if index % 5 == 4 else COMPLETION
        data = chance.randbytes(5) if index % 7 == 6 else b""
        return Kept(Transaction(0, 0, CREATED + index, chance.choice((0, 0x10)), operations, end, data))

    def strategy(self) -> strategies.SearchStrategy[list[Kept]]:
        numbers = strategies.integers(0, 2**64 - 1)
        images = strategies.binary(max_size=40).map(lambda image: (image, image[::-1]))
        operations = (
            strategies.builds(Allocate, numbers, numbers, numbers)
            | strategies.builds(
                lambda page, at, both: Modify(page, at, *both), numbers, strategies.integers(0, 65535), images
            )
            | strategies.builds(Remove, numbers, numbers)
        )
        row = strategies.builds(
            Transaction,
            previous=strategies.just(0),
            next=strategies.just(0),
            timestamp=strategies.integers(-(2**63), 2**63 - 1),
            flags=strategies.integers(0, 255),
            operations=strategies.lists(operations, max_size=4).map(tuple),
            end=strategies.sampled_from((COMPLETION, ROLLBACK)),
            end_data=strategies.binary(max_size=20),
        )
        return strategies.lists(row.map(Kept), min_size=1, max_size=8)

    def encode(self, records: list[Kept]) -> bytes:
        encoded, starts = _linked(records)
        header = codec.encode_header(starts[0], starts[-2]) if records else codec.encode_header(0, 0)
        return header + b"".join(encoded)

    def ends(self, records: list[Kept]) -> list[int]:
        return _linked(records)[1]

    def encode_record(self, record: Kept) -> bytes:
        return codec.encode(record.transaction)

    def decode_record(self, data: bytes) -> tuple[Kept, Span] | NeedMore:
        found = codec.decode(data)
        return (Kept(found[0]), found[1]) if isinstance(found, tuple) else found

    def scan(self, twin: str, data: bytes) -> Scanned:
        module = TWINS[twin]
        start = min(HEADER_BYTES, len(data))
        stop, count, ending, _ = module.walk(data, start, len(data), 0, 0, _NOWHERE)
        records = [Kept(_alone(record)) for record in module.transactions(data, start, stop, count, 0)]
        if ending == codec.JUMP and stop == len(data):
            ending = codec.CLEAN
        return Scanned(records, stop, _ENDINGS.get(ending, Ending.MALFORMED))

    def assert_twins_agree(self, data: bytes, chance: random.Random) -> None:
        start = min(len(data), chance.choice((0, HEADER_BYTES, HEADER_BYTES, chance.randrange(len(data) + 1))))
        end = chance.choice((len(data), len(data), chance.randrange(start, len(data) + 1)))
        base = chance.choice((0, 0, 7, 2**40))
        previous, last = chance.choice((0, 0, 20)), chance.choice((len(data), 20, _NOWHERE))
        most = chance.choice((-1, -1, 0, 1, 3))
        stop, count, _, _ = TWINS.answers("walk", data, start, end, base, previous, last, most)
        TWINS.answers("hop", data, start, end, base, previous, last, most)
        TWINS.answers("skim", data, start, end, chance.choice((-1, start, end + 5)))
        want = chance.choice((codec.ALL_COLUMNS, chance.randrange(1 << 16)))
        for here, rows in ((stop, count), (end, chance.choice((0, 1, 2, count + 1, end)))):
            TWINS.answers("spans", data, start, here, rows, base)
            TWINS.answers("transactions", data, start, here, rows, base)
            TWINS.answers("columns", data, start, here, rows, base, 5, want)

    def decoders(self) -> dict[str, Callable[[bytes], object]]:
        found: dict[str, Callable[[bytes], object]] = {
            "codec.decode_header": codec.decode_header,
            "codec.decode": codec.decode,
            "codec.explain": lambda data: codec.explain(data, 0, len(data)),
        }
        for name, twin in TWINS.items():
            found[f"{name}.walk"] = _walker(twin)
            found[f"{name}.columns"] = _unwalked(twin)
        return found

    def fuzz_seeds(self) -> list[bytes]:
        alone = [self.encode_record(self.record(seed, seed)) for seed in range(5)]
        return [*alone, self.encode(self.records(1, 3))]

    def length_fields(self, records: list[Kept]) -> list[tuple[int, int]]:
        """Those of the header, and of the first transaction as far as they differ; see `test_reader.py` for links."""
        at = HEADER_BYTES + 25
        found = [(4, 8), (12, 8), (HEADER_BYTES, 8), (HEADER_BYTES + NEXT_AT, 8), (at + 1, 4)]
        for operation in records[0].transaction.operations:
            if isinstance(operation, Modify):
                found.append((at + 15, 2))
            at += len(codec.encode_operation(operation))
        return list(dict.fromkeys([*found, (at + 1, 4)]))

    def claiming(self, size: int) -> bytes:
        records = [*self.records(3, 3), Kept(Transaction(0, 0, CREATED, 0, (), COMPLETION))]
        data = bytearray(self.encode(records))
        data[-4:] = min(size, 2**32 - 1).to_bytes(4, "little")
        return bytes(data) + b"not much"

    def flip_samples(self) -> list[FlipSample]:
        return flip_samples_of("images", _uniform, {16: 64.7, 100: 88.7, 1000: 98.6})

    # --- a journal on a disk ----------------------------------------------------------------------------------------

    def torn_file(self, data: bytes) -> bytes:
        """The header is written last: it names the last complete transaction."""
        if len(data) < HEADER_BYTES:
            return data
        stop, count, _, last = codec.walk(data, HEADER_BYTES, len(data), 0, 0, _NOWHERE)
        found = bytearray(codec.encode_header(HEADER_BYTES if count else 0, last) + data[HEADER_BYTES:])
        if count and stop == len(data):
            found[last + NEXT_AT : last + NEXT_AT + 8] = bytes(8)
        return bytes(found)

    def content(self, data: bytes) -> bytes:
        """Without the header, and the link of the last transaction that it names: a cut sets both."""
        try:
            header = codec.decode_header(data)
        except Malformed:
            return data
        if not isinstance(header, tuple):
            return data
        found = bytearray(codec.encode_header(0, 0) + data[HEADER_BYTES:])
        if header[1] in _starts_in(data):
            found[header[1] + NEXT_AT : header[1] + NEXT_AT + 8] = bytes(8)
        return bytes(found)

    def open_session(self, disk: Disk, home: Path, *, sync: str = "always", **options: Any) -> JournalSession:
        return JournalSession(disk, home, sync, **options)

    def read(self, disk: Disk, home: Path, mode: Mode = "failfast") -> Iterator[Kept | Damage]:
        waiting: Located | None = None
        try:
            for item in Reader(home / FILE, disk=disk).scan(mode="permissive" if mode == "dropmalformed" else mode):
                if waiting is not None:
                    yield _kept(disk, home, waiting, item)
                waiting = None if isinstance(item, Damage) else item
                if isinstance(item, Damage) and mode == "permissive":
                    yield item
        except LogwrightError:
            if waiting is not None:
                yield Kept(_alone(waiting.record))
            raise
        if waiting is not None:
            yield Kept(_alone(waiting.record))

    def more_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        def reader() -> Reader:
            return Reader(home / FILE, disk=disk)

        return {
            "find_time": lambda: [reader().find_time(t * 10**9) for t in (0, CREATED, CREATED + 2, 2**62)],
            "find_index": lambda: [reader().find_index(index) for index in (0, 1, 4)],
            "state at": lambda: reader().state(60),
            "diff": lambda: reader().diff(20, 200),
            "history": lambda: reader().history(str(PAGE)),
            "splits": lambda: SPLITS.plan(reader(), 100),
        }

    def more_writing_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        return {"write": lambda: _append_one(disk, home)}

    def hostile_journals(self) -> dict[str, Make]:
        return _hostile_journals(self)

    # --- what is peculiar -------------------------------------------------------------------------------------------

    def scenarios(self) -> list[Scenario]:
        small = self.options["small buffer"]
        steps = ["append 6", "sync", "append 4"]
        return [
            *super().scenarios(),
            AppendScenario("none, small buffer", self, steps, "none", options=small, prior=2),
        ]


class JournalSession:
    """A journal that takes records of the contract tests."""

    def __init__(self, disk: Disk, home: Path, sync: str, **options: Any) -> None:
        self._journal = TransactionJournal(home / FILE, sync=sync, disk=disk, **options)

    def append(self, record: Kept) -> None:
        self._journal.append_transaction(record.transaction)

    def flush(self) -> None:
        self._journal.flush()

    def sync(self) -> None:
        self._journal.sync()

    def close(self) -> None:
        self._journal.close()


def _alone(record: Transaction) -> Transaction:
    return replace(record, previous=0, next=0)


def _kept(disk: Disk, home: Path, found: Located, following: Located | Damage) -> Kept:
    """A transaction with the bytes up to the next one, if that follows directly."""
    end = found.span.end if isinstance(following, Damage) else following.span.start
    between = read_file(disk, home / FILE)[found.span.end : end] if end > found.span.end else b""
    return Kept(_alone(found.record), between)


def _operation(chance: random.Random) -> Operation:
    page = PAGE + 65536 * chance.randrange(5)
    match chance.randrange(4):
        case 0:
            return Allocate(page, chance.randrange(2**40), chance.choice((0, page)))
        case 1:
            return Remove(page, chance.randrange(2**40))
        case _:
            size = chance.choice((0, 3, 20, chance.randrange(120)))
            return Modify(page, chance.randrange(1000), chance.randbytes(size), chance.randbytes(size))


def _uniform(size: int) -> list[Kept]:
    chance = random.Random(size)
    return [
        Kept(Transaction(0, 0, CREATED + index, 1, (Modify(PAGE, 0, chance.randbytes(size), chance.randbytes(size)),)))
        for index in range(8)
    ]


def _starts_in(data: bytes) -> list[int]:
    """The positions of consecutive transactions, whatever their links say."""
    starts: list[int] = []
    at = HEADER_BYTES
    try:
        while (size := codec.transaction_size(data, at, len(data), follow_next=False)) is not None:
            starts.append(at)
            at += size
    except Malformed:
        pass
    return starts


def _walker(twin: ModuleType) -> Callable[[bytes], object]:
    def walk(data: bytes) -> object:
        stop, count, ending, _ = twin.walk(data, 0, len(data), 0, 0, _NOWHERE)
        assert 0 <= count <= stop <= len(data)
        found = twin.transactions(data, 0, stop, count, 0)
        assert b"".join(map(codec.encode, found)) == data[:stop]
        return twin.spans(data, 0, stop, count, 0), found, ending

    return walk


def _unwalked(twin: ModuleType) -> Callable[[bytes], object]:
    return lambda data: twin.columns(data, 0, len(data), len(data) % 7, 0)


def _append_one(disk: Disk, home: Path) -> None:
    with TransactionJournal(home / FILE, disk=disk) as writer:
        writer.append([Modify(PAGE, 0, b"one", b"two")])


# --- hostile journals -----------------------------------------------------------------------------------------------


def _hostile_journals(subject: YeltsinSubject) -> dict[str, Make]:
    whole = subject.encode(subject.records(3, 5))
    starts = subject.ends(subject.records(3, 5))
    torn = whole[:-3]

    def file(data: bytes, name: str = FILE) -> Make:
        return hostile.files({name: data})

    def beside(name: str, make_entry: Make, data: bytes = whole) -> Make:
        return hostile.beside(file(data), name, make_entry)

    def link(at: int, target: int) -> Make:
        return file(whole[:at] + target.to_bytes(8, "little") + whole[at + 8 :])

    link_out = hostile.link_out(torn)
    circle = [Transaction(0, 0, 0, 0, ()) for _ in range(9_000)]
    small = codec.encode(Transaction(0, 0, 0, 0, ()))
    return {
        "the journal is a link": lambda home: link_out(home / FILE),
        "the journal is a directory": lambda home: (home / FILE).mkdir(parents=True),
        "the journal is a fifo": hostile.alone(FILE, os.mkfifo),
        "a fifo named like another journal": beside("other.jrnl", os.mkfifo),
        "a link named like another journal": beside("other.jrnl", link_out),
        "a directory named like another journal": beside("other.jrnl", lambda path: path.mkdir()),
        "a link to itself": beside("other.jrnl", hostile.link_to("other.jrnl")),
        "a name that is not text": beside(
            "x", lambda path: open(os.fsencode(path.parent) + b"/\xff\xfe.jrnl", "wb").close()
        ),
        **hostile.home_entries(file, whole, torn, f"{FILE}.lck"),
        "a new journal that is a link": lambda home: link_out(home / ".logwright" / f"{FILE}.new"),
        "nothing": file(b""),
        "a header and nothing else": file(whole[:HEADER_BYTES]),
        "half a header": file(whole[:11]),
        "all zeros": file(bytes(300_000)),
        "all ones": file(b"\xff" * 300_000),
        "zeros after the signature": file(b"JRNL" + bytes(300_000)),
        "the first in the header": link(4, 4),
        "the first past the end": link(4, 2**63),
        "the last past the end": link(12, 2**64 - 1),
        "the last in the header": link(12, 1),
        "a next in a circle": link(starts[3] + 8, starts[1]),
        "a next to itself": link(starts[3] + 8, starts[3]),
        "a previous in a circle": link(starts[1], starts[3]),
        "a next into a transaction": link(starts[2] + 8, starts[3] + 4),
        "links forwards without end": file(journal(circle)),
        "every next leads back to the first": file(
            codec.encode_header(20, 20 + 30 * 8_999)
            + b"".join(bytes(8) + (20).to_bytes(8, "little") + small[16:] for _ in circle)
        ),
        "operations without end": file(
            codec.encode_header(20, 20) + small[:25] + b"\x03\x10\0\0\0" + bytes(16) * 9_000
        ),
        "a chain whose links backwards all lead to one place": file(
            codec.encode_header(20, 20 + 30 * 8_999)
            + b"".join((20).to_bytes(8, "little") + bytes(8) + small[16:] for _ in circle)
        ),
    }
