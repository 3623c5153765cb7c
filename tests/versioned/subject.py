"""Stores in the contract tests: a record is a change, together with its bytes in its file."""

from __future__ import annotations

import importlib
import os
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import strategies

from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Damage, Ending, Malformed, Mode, NeedMore, Span
from logwright.core.io.disk import Disk
from logwright.errors import LogwrightError
from logwright.versioned.bytes import codec, kernel
from logwright.versioned.bytes.layout import HEADER_BYTES
from logwright.versioned.bytes.records import Entry, Metadata
from logwright.versioned.files.files import archive_name
from logwright.versioned.files.reader import Reader
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.store import VersionedKVStore
from tests.contract.scenarios import AppendScenario, torn_tails
from tests.contract.subject import (
    FlipSample,
    Mutant,
    Scanned,
    Scenario,
    Subject,
    flip_samples_of,
)
from tests.contract.twins import Twins
from tests.support import hostile
from tests.support.hostile import Make
from tests.versioned.samples import START, journal, with_position

STORE = "store"
FILE = f"{STORE}.jrn"
_TWINS = Twins("logwright.versioned", compiled=COMPILED, by_repr=True)
answers = _TWINS.answers
_LATEST: dict[str, Any] = {"codec": codec.Latest}
if COMPILED:
    _LATEST["kernel"] = importlib.import_module("logwright.versioned.bytes._replay").Latest
_ENDINGS = (Ending.CLEAN, Ending.INCOMPLETE, Ending.MALFORMED)
_HEAD = codec.encode(Metadata(START))
_ENTRIES_AT = HEADER_BYTES + len(_HEAD)


@dataclass(frozen=True)
class Kept:
    """A change and its bytes, and the bytes before the first change of a file."""

    entry: Entry
    data: bytes
    head: bytes = _HEAD


def _kept(entry: Entry) -> Kept:
    return Kept(entry, codec.encode(entry))


class VersionedSubject(Subject):
    name = "versioned"
    file = FILE
    is_directory = False
    options = {"plain": {}, "small segments": {"capacity": 600}}  # noqa: RUF012
    notices_torn_values = False
    full_is_final = False

    # --- records and bytes ------------------------------------------------------------------------------------------

    @lru_cache(maxsize=20_000)  # noqa: B019 - subjects live as long as the run
    def record(self, seed: int, index: int) -> Kept:
        chance = random.Random(f"versioned/{seed}/{index}")
        if index % 5 == 4:
            return _kept(Entry(START + 1000 * index, f"key {(index - 1) % 3}", None))
        return _kept(Entry(START + 1000 * index, f"key {index % 3}", _value(chance)))

    def filling_record(self, seed: int, index: int) -> Kept:
        """Every record has another key, so the state grows, and with it the journal that a rotation writes."""
        record = self.record(seed, index).entry
        return _kept(Entry(record.t, f"key {index}", record.o or index))

    def strategy(self) -> strategies.SearchStrategy[list[Kept]]:
        scalars = (
            strategies.none()
            | strategies.booleans()
            | strategies.integers(-(2**63), 2**64 - 1)
            | strategies.floats(allow_nan=False, allow_infinity=False)
            | strategies.text(max_size=40)
        )
        values = strategies.recursive(
            scalars,
            lambda inner: strategies.lists(inner, max_size=4) | strategies.dictionaries(strategies.text(), inner),
            max_leaves=8,
        )
        extra = strategies.none() | strategies.just({"note": [1]})
        row = strategies.builds(Entry, strategies.integers(0, 2**64 - 1), strategies.text(max_size=40), values, extra)
        return strategies.lists(row.map(_kept), min_size=1, max_size=8)

    def encode(self, records: list[Kept]) -> bytes:
        body = (records[0].head if records else _HEAD) + b"".join(kept.data for kept in records)
        return codec.encode_header(HEADER_BYTES + len(body)) + body

    def ends(self, records: list[Kept]) -> list[int]:
        ends = [_ENTRIES_AT]
        for kept in records:
            ends.append(ends[-1] + len(kept.data))
        return ends

    def encode_record(self, record: Kept) -> bytes:
        return codec.encode(record.entry)

    def decode_record(self, data: bytes) -> tuple[Kept, Span] | NeedMore:
        found = codec.decode_entry(data)
        return found if not isinstance(found, tuple) else (Kept(found[0], data[: found[1].end]), found[1])

    def scan(self, twin: str, data: bytes) -> Scanned:
        module = _TWINS[twin]
        start = min(_ENTRIES_AT, len(data))
        stop, count, ending, _, _ = module.walk(data, start, len(data))
        return Scanned(_taken(module, data, start, stop, count), stop, _ENDINGS[ending])

    def assert_twins_agree(self, data: bytes, chance: random.Random) -> None:
        start = chance.choice((_ENTRIES_AT, _ENTRIES_AT, 0, chance.randrange(len(data) + 1)))
        start = min(start, len(data))
        end = chance.choice((len(data), len(data), chance.randrange(start, len(data) + 1)))
        stop, count, *_ = answers("walk", data, start, end, chance.choice((-1, -1, 0, 1, 2, 7)))
        _assert_same_entries(data, start, stop, count, chance)
        # and where no walk has been
        _assert_same_entries(data, start, end, chance.choice((0, 1, 2, count + 1, end)), chance)
        at = chance.choice((None, 0, START + 2000, 2**64 - 1))
        found = []
        for make in _LATEST.values():
            latest = make(at)
            latest.add(data, start, stop, count)
            latest.add(data, start, stop, count)
            found.append((repr(latest.state()), _plain(latest.columns(codec.ALL_COLUMNS)), len(latest)))
        assert all(one == found[0] for one in found)

    def decoders(self) -> dict[str, Callable[[bytes], object]]:
        found: dict[str, Callable[[bytes], object]] = {
            "codec.decode_header": codec.decode_header,
            "codec.decode_metadata": codec.decode_metadata,
            "codec.decode_entry": codec.decode_entry,
            "codec.explain": lambda data: codec.explain(data, 0, len(data)),
        }
        for name, twin in _TWINS.items():
            found[f"{name}.walk"] = _walker(twin)
            found[f"{name}.columns"] = _unwalked(twin)
        return found

    def fuzz_seeds(self) -> list[bytes]:
        records = [self.encode(self.records(seed, 1 + seed % 4))[_ENTRIES_AT:] for seed in range(5)]
        return [*records, self.encode(self.records(1, 2)), codec.encode(Entry(5, "k" * 40, {"a": [1.5]}, {"x": 1}))]

    def length_fields(self, records: list[Kept]) -> list[tuple[int, int]]:
        found = [(0, 8), (8, 8), (HEADER_BYTES, 1)]
        for start in self.ends(records)[:2]:
            found += [(start, 1), (start + 3, 1), (start + 4, 8), (start + 14, 1), (start + 22, 4)]
        return [(start, size) for start, size in found if start + size <= len(self.encode(records))]

    def claiming(self, size: int) -> bytes:
        whole = self.encode(self.records(3, 3))
        head = codec.encode(Entry(START, "k", ""))[:-2] + b"\x68" + _length_field(size)
        return with_position(whole + head + b"not much", len(whole) + size)

    def flip_samples(self) -> list[FlipSample]:
        return flip_samples_of("values", _uniform, {16: 45.4, 100: 73.1, 1000: 85.7})

    # --- a journal on a disk ----------------------------------------------------------------------------------------

    def torn_file(self, data: bytes) -> bytes:
        return with_position(data, len(data))

    def content(self, data: bytes) -> bytes:
        try:
            header = codec.decode_header(data)
        except Malformed:
            return data
        if not isinstance(header, tuple):
            return data
        return with_position(data, 0)[: header[0].position]

    def of_kept(self, kept: bytes, cut: Damage) -> bytes:
        return kept[: cut.size]  # followed by incomplete writes, which the position does not include yet

    def open_session(self, disk: Disk, home: Path, *, sync: str = "always", **options: Any) -> StoreSession:
        return StoreSession(disk, home, sync, **options)

    def read(self, disk: Disk, home: Path, mode: Mode = "failfast") -> Iterator[Kept | Damage]:
        reader = Reader(home / FILE, disk=disk)
        head = _head_of(disk, reader)
        for item in reader.chunks(mode=mode):
            if isinstance(item, Damage):
                yield item
                continue
            for kept in _taken(kernel, bytes(item.data), item.start, item.stop, item.count):
                yield Kept(kept.entry, kept.data, head)
                head = _HEAD

    def is_journal_file(self, name: str) -> bool:
        return name == FILE or name.endswith(".zz")  # the others are being made into one of these

    def more_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        def reader() -> Reader:
            return Reader(home / FILE, disk=disk)

        def recovery() -> VersionedRecovery:
            return VersionedRecovery.load(home, disk=disk)

        return {
            "find_time": lambda: [reader().find_time(t) for t in (0, START, START + 2000, 2**64 - 1)],
            "state at": lambda: reader().state(START + 2000),
            "diff": lambda: reader().diff(START, START + 2000),
            "history": lambda: reader().history("key 1"),
            "recover_at": lambda: recovery().recover_at(START + 1000),
            "changes": lambda: list(recovery().changes(START, 2**64 - 1)),
        }

    def more_writing_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        return {"write": lambda: _write_one(disk, home)}

    def hostile_journals(self) -> dict[str, Make]:
        return _hostile_journals(self)

    # --- what is peculiar -------------------------------------------------------------------------------------------

    def scenarios(self) -> list[Scenario]:
        small = self.options["small segments"]
        return [
            AppendScenario("always", self, ["append 4"]),
            AppendScenario("always, rotated", self, ["append 5"], options={"capacity": 300}),
            AppendScenario("always, reopened", self, ["append 2", "reopen", "append 2"], prior=3, options=small),
            AppendScenario("none", self, ["append 3", "flush", "append 2", "sync", "append 2", "flush"], "none"),
            *torn_tails(self),
        ]

    def mutants(self) -> list[Mutant]:
        def is_journal(kind: str, path: Path) -> bool:
            return kind == "sync" and path.name.startswith(FILE)  # it was made under another name

        return [
            Mutant("no sync after a change", "always", is_journal),
            Mutant("no sync by sync()", "none", is_journal),
        ]


class StoreSession:
    """A store whose clock returns the time that the next change requires."""

    def __init__(self, disk: Disk, home: Path, sync: str, *, capacity: int = 4096) -> None:
        self._now = START
        self._store = VersionedKVStore(home, STORE, capacity, sync=sync, background=False, clock=self._tell, disk=disk)

    def _tell(self) -> int:
        return self._now

    def append(self, record: Kept) -> None:
        self._now = record.entry.t
        if record.entry.deleted:
            self._store.remove(record.entry.k)
        else:
            self._store.insert(record.entry.k, record.entry.o)

    def flush(self) -> None:
        self._store.flush()

    def sync(self) -> None:
        self._store.sync()

    def close(self) -> None:
        self._store.close()


def _value(chance: random.Random) -> Any:
    text = "".join(chance.choice("abcdefgh äß\n") for _ in range(chance.choice((0, 3, 20, chance.randrange(120)))))
    return chance.choice(
        (text, {"n": chance.randrange(2**32), "text": text}, [1, -5, 0.5, None, True, text], chance.random())
    )


def _uniform(size: int) -> list[Kept]:
    chance = random.Random(size)
    texts = ["".join(chance.choice("abcdefghijklmnop") for _ in range(size)) for _ in range(8)]
    return [_kept(Entry(START + index, f"key {index}", text)) for index, text in enumerate(texts)]


def _taken(module: ModuleType, data: bytes, start: int, stop: int, count: int) -> list[Kept]:
    spans = module.spans(data, start, stop, count)
    found = module.entries(data, start, stop, count)
    return [Kept(entry, data[spans[row] : spans[row + 1]]) for row, entry in enumerate(found)]


def _head_of(disk: Disk, reader: Reader) -> bytes:
    """The bytes of the first file between its header and its first entry."""
    source = reader.files()[0]
    if source.compressed:
        return _HEAD
    file = disk.open(source.path, "read")
    try:
        found = codec.decode_metadata(file.read_at(0, 4096), HEADER_BYTES)
        return file.read_at(HEADER_BYTES, found[1].size) if isinstance(found, tuple) else _HEAD
    except (Malformed, LogwrightError):
        return _HEAD
    finally:
        file.close()


def _length_field(length: int) -> bytes:
    return b"\x00" + (2 * length).to_bytes(8, "little")


# --- comparing the twins --------------------------------------------------------------------------------------------


def _plain(columns: codec.Columns) -> dict[str, Any]:
    return {field.name: getattr(columns, field.name) for field in fields(columns)}


def _assert_same_entries(data: bytes, start: int, stop: int, count: int, chance: random.Random) -> None:
    answers("entries", data, start, stop, count)
    answers("spans", data, start, stop, count)
    want = chance.choice((codec.ALL_COLUMNS, chance.randrange(128)))
    answers("columns", data, start, stop, count, want, chance.choice((0, 4096, 2**40)))


def _walker(twin: ModuleType) -> Callable[[bytes], object]:
    def walk(data: bytes) -> object:
        stop, count, ending, _, _ = twin.walk(data, 0, len(data))
        assert 0 <= count <= stop <= len(data)
        return twin.spans(data, 0, stop, count), twin.entries(data, 0, stop, count), ending

    return walk


def _unwalked(twin: ModuleType) -> Callable[[bytes], object]:
    return lambda data: twin.columns(data, 0, len(data), len(data) % 7)


def _write_one(disk: Disk, home: Path) -> None:
    with VersionedKVStore(home, STORE, 4096, background=False, disk=disk) as store:
        store.insert("one more", 1)


# --- hostile journals -----------------------------------------------------------------------------------------------


def _hostile_journals(subject: VersionedSubject) -> dict[str, Make]:
    whole = subject.encode(subject.records(3, 5))
    packed = zlib.compress(journal(START - 5, [Entry(START - 1, "a", 1)]))
    archive = archive_name(STORE, START)

    def file(name: str, data: bytes = whole) -> Make:
        return hostile.files({name: data})

    def beside(name: str, make_entry: Make, data: bytes = whole) -> Make:
        return hostile.beside(file(FILE, data), name, make_entry)

    link_out = hostile.link_out(whole[:-3])

    def write(path: Path) -> None:
        path.write_bytes(packed)

    torn = with_position(whole[:-3], len(whole) - 3)
    return {
        "only an archive": file(archive, packed),
        "only an old journal": file(f"{FILE}.old"),
        "only a temporary journal": file(f"{FILE}.tmp"),
        "an archive that is not compressed": beside(archive, lambda path: path.write_bytes(whole)),
        "an archive that ends early": beside(archive, lambda path: path.write_bytes(packed[:-7])),
        "an archive followed by bytes": beside(archive, lambda path: path.write_bytes(packed + b"more")),
        "an archive that is empty": beside(archive, lambda path: path.write_bytes(b"")),
        "a bomb": beside(archive, lambda path: path.write_bytes(zlib.compress(bytes(40 << 20), 9))),
        "a bomb with a head": beside(
            archive, lambda path: path.write_bytes(zlib.compress(with_position(whole, 2**40) + bytes(40 << 20), 9))
        ),
        "a time of twenty digits": beside(archive_name(STORE, 2**64 - 1), write),
        "a time beyond 64 bits": beside(archive_name(STORE, 2**64), write),
        "a negative time": beside(f"{FILE}.t-5.zz", write),
        "a time with zeros before it": beside(f"{FILE}.t0005.zz", write),
        "digits of another script": beside(f"{FILE}.t٩٠٤.zz", write),
        "a name with a new line": beside(f"{archive}\n", write),
        "a name that is not text": beside(
            "x", lambda path: open(os.fsencode(path.parent) + b"/\xff\xfe.jrn", "wb").close()
        ),
        "an old journal beside a broken one": beside(f"{FILE}.old", lambda path: path.write_bytes(whole), b""),
        "an old journal beside a whole one": beside(f"{FILE}.old", lambda path: path.write_bytes(whole)),
        "a directory named like an archive": beside(archive, lambda path: path.mkdir()),
        "a directory named like the old journal": beside(f"{FILE}.old", lambda path: path.mkdir()),
        "a directory named like a temporary journal": beside(f"{FILE}.tmp", lambda path: path.mkdir()),
        "a fifo named like an archive": beside(archive, lambda path: os.mkfifo(path)),
        "a fifo named like another store": beside("other.jrn", lambda path: os.mkfifo(path)),
        "a link named like an archive": beside(archive, link_out),
        "a link named like the old journal": beside(f"{FILE}.old", link_out),
        "a link named like a temporary journal": beside(f"{FILE}.tmp", link_out),
        "the active journal is a link": lambda home: link_out(home / FILE),
        "the active journal is a directory": lambda home: (home / FILE).mkdir(parents=True),
        "the active journal is a fifo": hostile.alone(FILE, os.mkfifo),
        **hostile.home_entries(lambda data: file(FILE, data), whole, torn, f"{STORE}.lck"),
        "all zeros": file(FILE, bytes(300_000)),
        "all ones": file(FILE, b"\xff" * 300_000),
        "nothing": file(FILE, b""),
        "a header and nothing else": file(FILE, whole[:HEADER_BYTES]),
        "a position below the header": file(FILE, with_position(whole, 3)),
        "a position past the file": file(FILE, with_position(whole, 2**63)),
        "a position within an entry": file(FILE, with_position(whole, len(whole) - 5)),
        "beginnings of objects without end": file(
            FILE, with_position(whole + b"\x9a\x81t" * 40_000, len(whole) + 120_000)
        ),
        "arrays within arrays": file(
            FILE, with_position(whole + b"\x9a\x81t\x01\x81k\x80\x81o" + b"\x99" * 100_000, len(whole) + 100_008)
        ),
        "a dialect of other codes": file(FILE, whole[:16] + b"\xb7" + whole[17:]),
        "a version to come": file(FILE, b"\x03" + whole[1:]),
    }
