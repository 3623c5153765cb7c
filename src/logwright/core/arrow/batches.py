"""Batches: the records of a journal of any format as Arrow record batches; see `logwright/arrow.py`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict, Unpack

import pyarrow as pa

from ...errors import WrongUse, renaming_damage
from ..bytes.outcome import Damage, Mode, check_mode
from ..format import FORMATS, Format, Items, Reader, detect, find_format, open_journal
from ..io.disk import REAL_DISK, Disk
from ..read.columns import BATCH_BYTES
from ..read.report import Progress
from ..repair.losses import Loss

Source: TypeAlias = Any
"""A path, or a reader that is open."""
OnDamage: TypeAlias = Callable[[Damage], None]

TABLE_BATCH_BYTES: Final = 64 << 20
"""What stays in memory is better allocated in few large pieces."""


class BatchOptions(TypedDict, total=False):
    """The options of `batches`."""

    start: int | None
    stop: int | None
    from_time: int | None
    to_time: int | None
    batch_bytes: int
    mode: Mode
    on_damage: OnDamage | None
    progress: Progress | None
    format: str | None
    disk: Disk


def _format_of(reader: Any) -> Format:
    """The format whose package a reader comes from."""
    if not isinstance(reader, Reader):
        raise WrongUse(f"{type(reader).__name__} is neither a path nor the reader of a journal")
    return FORMATS[reader.format]


def _opened(source: Source, format: str | None, disk: Disk) -> tuple[Any, Format]:
    """A reader of the source, and its format."""
    if not isinstance(source, str | Path):
        return source, _format_of(source)
    path = Path(source)
    chosen = detect(path, disk=disk) if format is None else find_format(format)
    return open_journal(path, chosen.name, disk=disk), chosen


class Batches(Iterator[pa.RecordBatch]):
    """The record batches of a journal in order, and what was found while reading.

    `damages` is what was skipped in the mode `permissive`, `torn_tails` the incomplete ends that crashes left, `losses`
    what the journal was known to have lost before, `rows` the number of rows returned so far.
    """

    def __init__(self, schema: pa.Schema, losses: Sequence[Loss] = ()) -> None:
        self.schema = schema
        self.losses = list(losses)
        self.damages: list[Damage] = []
        self.torn_tails: list[Damage] = []
        self.rows = 0
        self._batches: Generator[pa.RecordBatch, None, None] | None = None

    def __next__(self) -> pa.RecordBatch:
        if self._batches is None:
            raise StopIteration
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch

    def close(self) -> None:
        """Close the files before the end."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None


def batches(
    source: Source,
    columns: Sequence[str] | None = None,
    *,
    start: int | None = None,
    stop: int | None = None,
    from_time: int | None = None,
    to_time: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    mode: Mode = "failfast",
    on_damage: OnDamage | None = None,
    progress: Progress | None = None,
    format: str | None = None,
    disk: Disk = REAL_DISK,
) -> Batches:
    """The records of a journal as record batches of about `batch_bytes`; `columns` are names, in the order wanted.

    `start` <= number < `stop` chooses records by their number, which for sej is the offset. `from_time` and `to_time`
    (nanoseconds since the epoch) choose a range of the journal: from the first record that is not earlier than
    `from_time` up to the first that is not earlier than `to_time`. Below a sharded root both hold in each shard.
    """
    check_mode(mode)
    reader, found = _opened(source, format, disk)
    collector = found.columns.collector(columns, sharded=reader.has_parts, batch_bytes=batch_bytes)
    result = Batches(collector.schema, reader.losses())
    parts = _parts(reader, progress) if reader.has_parts else [Part("", reader, progress, lambda _, file: file)]
    result._batches = _through(result, collector, parts, (start, stop, from_time, to_time), mode, on_damage)
    return result


class Part(NamedTuple):
    """A part of what is read, such as a shard: its name, its reader, its share of the progress.

    `within` returns the name of a file of the part, relative to the path that is read.
    """

    name: str
    reader: Any
    progress: Progress | None
    within: Callable[[str, str], str]

    def naming(self) -> AbstractContextManager[None]:
        """Raise damage with the name of the part."""
        return renaming_damage(lambda file: self.within(self.name, file))


Choice: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""start, stop, from_time, to_time"""


def _parts(reader: Any, progress: Progress | None) -> Iterable[Part]:
    """The parts of what is read, which report their progress as one."""
    reader.refuse_missing()
    readers = reader.parts()
    if progress is None:
        return [Part(name, part, None, reader.within) for name, part in readers]
    sizes = [part.total_bytes() for _, part in readers]
    return [
        Part(name, part, _shifted(progress, sum(sizes[:number]), sum(sizes)), reader.within)
        for number, (name, part) in enumerate(readers)
    ]


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _: progress(before + done, total)


def _through(
    result: Batches, collector: Any, parts: Iterable[Part], choice: Choice, mode: Mode, on_damage: OnDamage | None
) -> Generator[pa.RecordBatch, None, None]:
    for part in parts:
        start, stop = _range(part.reader, choice)
        with part.naming():
            how = part.reader.batched_by
            for item in part.reader.chunks(start, stop, mode=mode, progress=part.progress, **how):
                if isinstance(item, Damage):
                    damage = _in_part(part, item)
                    result.damages.append(damage)
                    if on_damage is not None:
                        on_damage(damage)
                else:
                    yield from collector.add(item, part.name)
        if part.reader.torn_tail is not None:
            result.torn_tails.append(_in_part(part, part.reader.torn_tail))
    yield from collector.finish()


def _range(reader: Any, choice: Choice) -> tuple[int | None, int | None]:
    start, stop, from_time, to_time = choice
    if from_time is not None:
        found = reader.find_time(from_time)
        start = found if start is None else max(start, found)
    if to_time is not None:
        found = reader.find_time(to_time)
        stop = found if stop is None else min(stop, found)
    return start, stop


def _in_part(part: Part, damage: Damage) -> Damage:
    return replace(damage, file=part.within(part.name, damage.file))


def items(
    source: Source,
    *,
    mode: Mode = "failfast",
    on_damage: OnDamage | None = None,
    format: str | None = None,
    disk: Disk = REAL_DISK,
) -> Batches:
    """What a queue holds now as record batches, a row for each item; of a directory those of all its queues.

    The items are in the order in which a program that opens the queue finds them: reserved items come first. Items
    that have expired are among them.
    """
    check_mode(mode)
    reader, found = _opened(source, format, disk)
    if found.items is None:
        raise WrongUse(f"{reader.path}: journals of the format {found.name} hold no items that wait")
    parts = _parts(reader, None) if reader.has_parts else [Part("", reader, None, lambda _, file: file)]
    result = Batches(found.items.schema, reader.losses())
    result._batches = _items_through(result, found.items, parts, mode, on_damage)
    return result


def _items_through(
    result: Batches, items: Items, parts: Iterable[Part], mode: Mode, on_damage: OnDamage | None
) -> Generator[pa.RecordBatch, None, None]:
    def note(damage: Damage) -> None:
        if damage.kind == "torn_tail":
            result.torn_tails.append(damage)
            return
        result.damages.append(damage)
        if on_damage is not None:
            on_damage(damage)

    for part in parts:
        with part.naming():
            yield from items.batches(part.reader, mode, note)
        if mode == "failfast" and part.reader.torn_tail is not None:
            result.torn_tails.append(_in_part(part, part.reader.torn_tail))


def read(source: Source, columns: Sequence[str] | None = None, **options: Unpack[BatchOptions]) -> pa.RecordBatchReader:
    """A journal as a stream of record batches for any Arrow consumer; the options are those of `batches`."""
    found = batches(source, columns, **options)
    return pa.RecordBatchReader.from_batches(found.schema, found)


def to_arrow(source: Source, columns: Sequence[str] | None = None, **options: Unpack[BatchOptions]) -> pa.Table:
    """A journal, or a part of it, as a table in memory; the options are those of `batches`."""
    options.setdefault("batch_bytes", TABLE_BATCH_BYTES)
    found = batches(source, columns, **options)
    table = pa.Table.from_batches(list(found), found.schema)
    return table.unify_dictionaries() if any(map(pa.types.is_dictionary, table.schema.types)) else table
