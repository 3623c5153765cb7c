"""sej in the contract tests."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import strategies

from logwright.core import format as formats
from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Damage, Ending
from logwright.core.io.disk import Disk
from logwright.errors import NotFound
from logwright.sej.bytes import codec
from logwright.sej.bytes.layout import MAX_KEY_BYTES, NO_TIMESTAMP, OVERHEAD, segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.index import Entry, Index, packed
from logwright.sej.files.offset_file import stored_offset
from logwright.sej.files.reader import Reader
from logwright.sej.files.scanner import Scanner
from logwright.sej.files.segment import Segment
from logwright.sej.files.writer import Writer
from logwright.sej.model.offset import Offset, list_offsets
from tests.contract.scenarios import AppendScenario, RecoverScenario
from tests.contract.subject import (
    HOME,
    FlipSample,
    Mutant,
    Scanned,
    Scenario,
    Subject,
    cut_mutants,
    flip_samples_of,
)
from tests.contract.twins import Twins
from tests.support import hostile
from tests.support.damage import cut, noise_after, zeros_after
from tests.support.hostile import Make
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file

FIRST_SEGMENT = segment_name(0)
_TWINS = Twins("logwright.sej", compiled=COMPILED)
answers = _TWINS.answers
_ENDINGS = (Ending.CLEAN, Ending.INCOMPLETE, Ending.MALFORMED, Ending.MALFORMED)
_START_NS = 1_700_000_000_000_000_000


class SejSession:
    """A `Writer` that checks that each message gets the expected offset."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.flush = writer.flush
        self.sync = writer.sync
        self.close = writer.close

    def append(self, message: Message) -> None:
        offset = self.writer.append(message.value, message.key, message.type, message.timestamp)
        assert offset == message.offset


class SejSubject(Subject):
    name = "sej"
    file = f"jnl/{FIRST_SEGMENT}"
    middle = (3, 5)
    options = {  # noqa: RUF012
        "plain": {},
        "small segments": {"segment_size": 700},
        "checksums": {"checksums": True, "segment_size": 1000},
    }

    # --- records and bytes ------------------------------------------------------------------------------------------

    @lru_cache(maxsize=20_000)  # noqa: B019 - subjects live as long as the run
    def record(self, seed: int, index: int) -> Message:
        chance = random.Random(f"sej/{seed}/{index}")
        key_size = chance.choice((0, 0, 3, 12, chance.randrange(128)))
        value_size = chance.choice((0, 1, 16, 40, 100, chance.randrange(700)))
        return Message(
            index,
            None if chance.random() < 0.1 else _START_NS + index * 1_000_000 + chance.randrange(-3_000_000, 3_000_000),
            chance.randrange(256),
            chance.randbytes(key_size),
            chance.randbytes(value_size),
        )

    def strategy(self) -> strategies.SearchStrategy[list[Message]]:
        timestamps = strategies.none() | strategies.integers(NO_TIMESTAMP + 1, 2**63 - 1)
        rows = strategies.tuples(
            timestamps,
            strategies.integers(0, 255),
            strategies.binary(max_size=MAX_KEY_BYTES),
            strategies.binary(max_size=300),
        )
        return strategies.lists(rows, min_size=1, max_size=12).map(
            lambda found: [Message(offset, *row) for offset, row in enumerate(found)]
        )

    def scan(self, twin: str, data: bytes) -> Scanned:
        module = _TWINS[twin]
        stop, count, ending, *_ = module.walk(data, 0, len(data), 0)
        return Scanned(module.messages(data, 0, stop, count), stop, _ENDINGS[ending])

    def assert_twins_agree(self, data: bytes, chance: random.Random) -> None:
        start = chance.choice((0, 0, 0, chance.randrange(len(data) + 1)))
        end = chance.choice((len(data), len(data), chance.randrange(start, len(data) + 1)))
        expected = chance.choice((0, 0, 0, 1, 2**64 - 1, chance.randrange(2**64)))
        if end - start >= 8 and chance.random() < 0.5:
            expected = int.from_bytes(data[start : start + 8], "big")
        most = chance.choice((-1, -1, 0, 1, 2, 7))
        walked = answers("walk", data, start, end, expected, most)
        assert isinstance(walked, tuple)
        stop, count = walked[0], walked[1]
        self._assert_same_messages(data, start, stop, count, chance)
        # and where no walk has been
        self._assert_same_messages(data, start, end, chance.choice((0, 1, 2, count + 1, end // OVERHEAD)), chance)
        least, limit = chance.choice((0, 0, expected)), chance.choice((end, len(data), len(data) + 1000))
        answers("find_head", data, start, end, least, chance.choice((least, 300, 2**64 - 1)), limit)

    def _assert_same_messages(self, data: bytes, start: int, stop: int, count: int, chance: random.Random) -> None:
        answers("messages", data, start, stop, count)
        answers("spans", data, start, stop, count)
        want = chance.choice((codec.ALL_COLUMNS, chance.randrange(128)))
        answers("columns", data, start, stop, count, want, chance.choice((0, 4096, 2**40)))

    def decoders(self) -> dict[str, Callable[[bytes], object]]:
        found: dict[str, Callable[[bytes], object]] = {
            "codec.decode": codec.decode,
            "codec.explain": lambda data: codec.explain(data, 0, len(data), 0),
            "index": _load_index,
        }
        for name, twin in _TWINS.items():
            found[f"{name}.walk"] = _walker(twin)
            found[f"{name}.columns"] = _unwalked(twin)
            found[f"{name}.find_head"] = _finder(twin)
        return found

    def fuzz_seeds(self) -> list[bytes]:
        segment = Segment(0, FIRST_SEGMENT, Path(FIRST_SEGMENT))
        stamps = [_START_NS + number for number in range(4)]
        entries = [Entry(n * 10, n * 300, stamps[n], stamps[0], stamps[n - 1]) for n in (1, 2, 3)]
        entries.append(Entry(40, 1200, stamps[3], stamps[0], stamps[3], is_end=True))
        index = struct.pack("<8sQ", b"LWSEJIX2", 0) + packed(entries, 0)
        assert _index_of(index, segment) is not None
        return [*super().fuzz_seeds(), index]

    def length_fields(self, records: list[Message]) -> list[tuple[int, int]]:
        found = []
        for start, message in zip(self.ends(records), records, strict=False):
            value_size_at = start + 18 + len(message.key)
            found += [(start, 8), (start + 17, 1), (value_size_at, 4), (start + message.size - 4, 4)]
        return found

    def claiming(self, size: int) -> bytes:
        head = struct.pack(">QqBbi", 3, _START_NS, 0, 0, size - OVERHEAD)
        return self.encode(self.records(3, 3)) + head + b"not much"

    def flip_samples(self) -> list[FlipSample]:
        return flip_samples_of("values", _uniform, {16: 62, 100: 87, 1000: 98})

    # --- a journal on a disk ----------------------------------------------------------------------------------------

    def open_session(self, disk: Disk, home: Path, *, sync: str = "always", **options: Any) -> SejSession:
        return SejSession(Writer(home, sync=sync, disk=disk, **options))

    def is_journal_file(self, name: str) -> bool:
        return name.startswith("jnl/") and name.endswith(".jnl")

    def more_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        def reader() -> Reader:
            return Reader(home, disk=disk)

        return {
            "detect": lambda: formats.detect(home, disk=disk),
            "find_time": lambda: [reader().find_time(t) for t in (NO_TIMESTAMP, 0, _START_NS, 2**63 - 1)],
            "scanner": lambda: _scan_all(disk, home),
            "offsets": lambda: list_offsets(disk, home),
        }

    def more_writing_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        return {"write": lambda: _append_one(disk, home), "commit": lambda: _commit_one(disk, home)}

    def hostile_journals(self) -> dict[str, Make]:
        return _hostile_journals(self)

    # --- what is peculiar -------------------------------------------------------------------------------------------

    def scenarios(self) -> list[Scenario]:
        small = self.options["small segments"]
        return [
            AppendScenario("always", self, ["append 4"]),
            AppendScenario("always, small segments", self, ["append 6"], options=small),
            AppendScenario("always, reopened", self, ["append 2", "reopen", "append 2"], prior=3, options=small),
            AppendScenario("always, checksums", self, ["append 5"], options={"checksums": True, "segment_size": 600}),
            AppendScenario("none", self, ["append 3", "flush", "append 2", "sync", "append 2", "flush"], "none"),
            AppendScenario(
                "none, small segments", self, ["append 5", "flush", "append 3", "sync", "append 2"], "none", small
            ),
            AppendScenario(
                "none, checksums",
                self,
                ["append 3", "sync", "append 2", "flush", "append 2", "flush", "append 2"],
                "none",
                {"checksums": True},
            ),
            AppendScenario("none, small buffer", self, ["append 9", "sync"], "none", {"buffer_bytes": 300}, prior=2),
            AppendScenario("none, many messages", self, ["append 40", "flush"], "none", prior=20),
            RecoverScenario("recover a cut tail", self, lambda data: cut(data, len(data) - 3)),
            RecoverScenario("recover a zeroed tail", self, lambda data: zeros_after(data, len(data) - 30)),
            RecoverScenario("recover noise", self, lambda data: noise_after(data + bytes(600), len(data))),
            OffsetScenario(self),
        ]

    def mutants(self) -> list[Mutant]:
        return [
            *super().mutants(),
            Mutant("no sync of a new segment's name", "always", lambda kind, path: path.name == "jnl"),
            Mutant("no sync of the directory jnl", "always", lambda kind, path: path.name == "journal"),
            Mutant(
                "no sync of a segment that is full",
                "none, small segments",
                lambda kind, path: path.name == FIRST_SEGMENT,
            ),
            Mutant(
                "no sync of the next segment's name",
                "always, small segments",
                lambda kind, path: path.name == "jnl",
            ),
            *cut_mutants(self.is_sync_of_journal),
            Mutant("no sync of a new offset", "offsets", lambda kind, path: path.name.endswith(".ofs.tmp")),
            Mutant("no sync of an offset's new name", "offsets", lambda kind, path: path.name == "ofs"),
            Mutant("no sync of the directory ofs", "offsets", lambda kind, path: path.name == "journal"),
        ]


class OffsetScenario:
    """A consumer that commits one offset after the other."""

    name = "offsets"
    commits = (3, 7, 12)

    def __init__(self, subject: SejSubject) -> None:
        self._subject = subject

    def prepare(self, disk: SimulatedDisk) -> None:
        self._subject.lay_out(disk, HOME, self._subject.encode(self._subject.records(4, 20)))

    def run(self, disk: Disk, mark: Callable[[Any], None]) -> None:
        with Offset(HOME, "reader", disk=disk) as offset:
            mark(0)
            for value in self.commits:
                offset.commit(value)
                mark(value)

    def check(self, disk: SimulatedDisk, *, killed: bool = False) -> None:
        last = max(disk.marks, default=None)
        found = self._stored(disk)
        following = [value for value in (None, 0, *self.commits) if value is None or value >= (last or 0)]
        assert found in following[: 3 if last is None else 4]
        assert last is None or (found or 0) >= last, f"{last} was committed, {found} is there"
        with Offset(HOME, "reader", disk=disk) as offset:
            assert offset.value == (found or 0)
            offset.commit(offset.value)  # existing bytes must be durable then, too
            promised = offset.value
        for state in disk.crash_states(first=len(disk.operations), kinds=["order"], format=""):
            assert self._stored(state) == promised, "a repeated commit was not durable"

    @staticmethod
    def _stored(disk: SimulatedDisk) -> int | None:
        try:
            return stored_offset(disk, HOME, "reader")
        except NotFound:
            return None


# --- decoders -------------------------------------------------------------------------------------------------------


def _walker(twin: ModuleType) -> Callable[[bytes], object]:
    def walk(data: bytes) -> object:
        stop, count, ending, *_ = twin.walk(data, 0, len(data), 0)
        assert 0 <= stop <= len(data)
        assert count * OVERHEAD <= stop
        found = twin.messages(data, 0, stop, count)
        assert [message.offset for message in found] == list(range(count))
        return twin.spans(data, 0, stop, count), found, ending

    return walk


def _unwalked(twin: ModuleType) -> Callable[[bytes], object]:
    return lambda data: twin.columns(data, 0, len(data), len(data) % 7)


def _finder(twin: ModuleType) -> Callable[[bytes], object]:
    def find(data: bytes) -> object:
        at = twin.find_head(data, 0, len(data), 0, 2**40, len(data))
        assert -1 <= at < max(1, len(data))
        return at

    return find


def _index_of(data: bytes, segment: Segment) -> Index | None:
    disk = SimulatedDisk()
    disk.make_directory(Path("/idx"))
    path = Path("/idx") / (segment.path.stem + ".idx")
    write_file(disk, path, data)
    return Index.load(disk, Segment(segment.first_offset, segment.name, Path("/jnl") / segment.path.name), 1 << 20)


def _load_index(data: bytes) -> object:
    index = _index_of(data, Segment(0, FIRST_SEGMENT, Path(FIRST_SEGMENT)))
    if index is not None:
        positions = [entry.position for entry in index.entries]
        assert positions == sorted(set(positions))
    return index


# --- samples --------------------------------------------------------------------------------------------------------


def _uniform(value_size: int) -> list[Message]:
    chance = random.Random(value_size)
    return [
        Message(offset, _START_NS + offset, 7, chance.randbytes(3), chance.randbytes(value_size)) for offset in range(8)
    ]


# --- verbs ----------------------------------------------------------------------------------------------------------


def _scan_all(disk: Disk, home: Path) -> list[Message | Damage]:
    scanner = Scanner(home, timeout=0, mode="permissive", disk=disk)
    try:
        return list(scanner)
    finally:
        scanner.close()


def _commit_one(disk: Disk, home: Path) -> None:
    with Offset(home, "reader", disk=disk) as offset:
        offset.commit(1)


def _append_one(disk: Disk, home: Path) -> None:
    with Writer(home, disk=disk) as writer:
        writer.append(b"one more")


# --- hostile journals -----------------------------------------------------------------------------------------------


def _hostile_journals(subject: SejSubject) -> dict[str, Make]:
    whole = subject.encode(subject.records(3, 5))

    def segment(name: str, data: bytes = whole) -> Make:
        return hostile.files({f"jnl/{name}": data})

    def beside(name: str, make_entry: Make) -> Make:
        return hostile.beside(segment(FIRST_SEGMENT), name, make_entry)

    def torn_and(name: str, make_entry: Make) -> Make:
        return hostile.beside(segment(FIRST_SEGMENT, whole[:-3]), name, make_entry)

    def last_message(offset: int) -> bytes:
        return codec.encode(Message(offset, 1, 1, b"k", b"v"))

    linked_directory = hostile.link_directory_out({FIRST_SEGMENT: whole[:-3]})
    highest = "ffffffffffffffff.jnl"
    found: dict[str, Make] = {
        "the highest offset": segment(highest, last_message(2**64 - 1)),
        "the highest offset, torn": segment(highest, last_message(2**64 - 1)[:-1]),
        "the highest offset, then noise": segment(highest, last_message(2**64 - 1) + bytes(range(60))),
        "the highest offset, empty": segment(highest, b""),
        "offsets that end": segment("fffffffffffffffe.jnl", last_message(2**64 - 2) + last_message(2**64 - 1)),
        "offsets that wrap around": segment(highest, last_message(2**64 - 1) + last_message(0)),
        "past the highest offset": segment("10000000000000000.jnl"),
        "a short name": segment("0.jnl"),
        "upper case": segment("000000000000000A.jnl", last_message(10)),
        "a name that means another offset": segment("0000000000000001.jnl"),
        "two names for one offset": beside("jnl/0.jnl", lambda path: path.write_bytes(whole)),
        "a directory named like a segment": beside("jnl/0000000000000005.jnl", lambda path: path.mkdir()),
        "a fifo named like a segment": beside("jnl/0000000000000005.jnl", os.mkfifo),
        "a fifo named like the first segment": beside("jnl/00.jnl", os.mkfifo),
        "a link named like a segment": lambda home: hostile.link_out(whole[:-3])(home / "jnl" / FIRST_SEGMENT),
        "a link that leads nowhere": beside("jnl/0000000000000005.jnl", hostile.link_to("nowhere")),
        "a link to itself": beside("jnl/0000000000000005.jnl", hostile.link_to("0000000000000005.jnl")),
        "a lock that is a directory": beside("jnl.lck", lambda path: path.mkdir()),
        "a lock that is a link": beside("jnl.lck", hostile.link_to("jnl/" + FIRST_SEGMENT)),
        "a lock that is a fifo": beside("jnl.lck", os.mkfifo),
        "an index that is a directory": beside(
            "idx", lambda path: (path / (FIRST_SEGMENT[:-4] + ".idx")).mkdir(parents=True)
        ),
        "idx is a file": beside("idx", lambda path: path.write_bytes(b"")),
        "idx is a link": beside("idx", hostile.link_to("jnl")),
        "the place for cuts is a file": torn_and(".logwright", lambda path: path.write_bytes(b"")),
        "the place for cuts is a link": torn_and(".logwright", hostile.link_to("jnl")),
        "the place for cuts is elsewhere": torn_and(".logwright", linked_directory),
        "the cuts are elsewhere": torn_and(".logwright/cut", linked_directory),
        "idx is elsewhere": beside("idx", linked_directory),
        "ofs is elsewhere": beside("ofs", linked_directory),
        "an offset that is a directory": beside("ofs/reader.ofs", lambda path: path.mkdir()),
        "an offset that is a fifo": beside("ofs/reader.ofs", os.mkfifo),
        "an offset that is a link": beside("ofs/reader.ofs", hostile.link_out(bytes(8))),
        "jnl is elsewhere": lambda home: linked_directory(home / "jnl"),
        "a checksum file that is a directory": beside(f"jnl/{FIRST_SEGMENT}.crc", lambda path: path.mkdir()),
        "a checksum file of noise": beside(f"jnl/{FIRST_SEGMENT}.crc", lambda path: path.write_bytes(bytes(range(99)))),
        "jnl is a file": hostile.alone("jnl", lambda path: path.write_bytes(whole)),
        "jnl is a fifo": hostile.alone("jnl", os.mkfifo),
        "jnl is a link to nowhere": hostile.alone("jnl", hostile.link_to("nowhere")),
        "names with dots": beside("jnl/..jnl", lambda path: path.write_bytes(whole)),
        "a name with a new line": beside("jnl/0000000000000005.jnl\n", lambda path: path.write_bytes(whole)),
        "digits of another script": beside("jnl/٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٥.jnl", lambda path: path.write_bytes(whole)),
        "a name that is not text": beside("jnl", lambda path: open(os.fsencode(path) + b"/\xff\xfe.jnl", "wb").close()),
        "all zeros": segment(FIRST_SEGMENT, bytes(300_000)),
        "all ones": segment(FIRST_SEGMENT, b"\xff" * 300_000),
        "empty messages without end": segment(FIRST_SEGMENT, bytes(25)),
    }
    return found
