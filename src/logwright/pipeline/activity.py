"""The table `activity` after a batch: records and bytes of each journal per minute, every minute once.

The last minutes of each journal are live rows: records that come later are added to them. Earlier minutes are final.
If records come for such a minute after all, the file that has it is written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from .layout import Layout, TableChange
from .parquet import TableSink, Target
from .plan import Place
from .publish import TableFile
from .tables import ACTIVITY
from .task import LiveFile

LIVE_MINUTES: Final = 16
"""How many minutes of a journal are live; besides these, records without a time."""

Key: TypeAlias = tuple[str, str, int | None]
"""Format, journal and minute."""
Minutes: TypeAlias = dict[Key, list[int]]


def changed(target: Target, layout: Layout, new: Sequence[pa.RecordBatch], *, is_increment: bool) -> TableChange:
    """Add the records of a batch."""
    if not is_increment:
        return layout.changed(_written(target, [_summed(new)] if new else []))
    places: set[Place] = {(name, "") for batch in new for name in pc.unique(batch.column("journal")).to_pylist()}
    before = _minutes(layout.live_rows(places))
    added = _minutes(new)
    late = _late(added, before)
    for key, numbers in added.items():
        if key not in late:
            _add(before, key, numbers)
    live, final = _divided(before)
    rewritten, replaced = [], []
    for file in layout.final_files() if late else ():
        found = _minutes(layout.rows(file))
        hits = late.keys() & found.keys()
        if hits:
            for key in hits:
                _add(found, key, late.pop(key))
            replaced.append(file)
            rewritten.append(_table(found))
    final |= late
    files = _written(target, [*rewritten, *([_table(final)] if final else [])])
    return layout.changed(files, _written_live(target, live), places, replaced)


def _summed(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(list(batches), ACTIVITY)
    keys = ["format", "journal", "minute"]
    found = table.group_by(keys, use_threads=False).aggregate([("records", "sum"), ("bytes", "sum")])
    found = found.select([*keys, "records_sum", "bytes_sum"]).rename_columns(ACTIVITY.names)
    (batch,) = found.sort_by([("journal", "ascending"), ("minute", "ascending")]).combine_chunks().to_batches()
    return batch


def _minutes(batches: Iterable[pa.RecordBatch]) -> Minutes:
    found: Minutes = {}
    for batch in batches:
        columns = [
            batch.column("minute").cast(pa.int64()) if name == "minute" else batch.column(name) for name in _NAMES
        ]
        for format, journal, minute, records, size in zip(*(each.to_pylist() for each in columns), strict=True):
            _add(found, (format, journal, minute), [records, size])
    return found


_NAMES: Final = ACTIVITY.names


def _add(total: Minutes, key: Key, numbers: Sequence[int]) -> None:
    before = total.setdefault(key, [0, 0])
    before[0] += numbers[0]
    before[1] += numbers[1]


def _late(added: Mapping[Key, list[int]], live: Mapping[Key, list[int]]) -> Minutes:
    """The minutes that are before all live ones of their journal, and so may be in a final row."""
    first: dict[str, int] = {}
    for _, journal, minute in live:
        if minute is not None:
            first[journal] = min(minute, first.get(journal, minute))
    return {
        key: numbers
        for key, numbers in added.items()
        if key not in live and key[2] is not None and key[2] < first.get(key[1], key[2])
    }


def _divided(minutes: Mapping[Key, list[int]]) -> tuple[dict[str, Minutes], Minutes]:
    """The minutes that stay live, by their journal, and those that are final."""
    by_journal: dict[str, list[Key]] = {}
    for key in minutes:
        by_journal.setdefault(key[1], []).append(key)
    live: dict[str, Minutes] = {}
    final: Minutes = {}
    for journal, keys in by_journal.items():
        timed = sorted((key for key in keys if key[2] is not None), key=lambda key: key[2] or 0)
        last = set(timed[-LIVE_MINUTES:])
        live[journal] = {key: minutes[key] for key in keys if key[2] is None or key in last}
        final |= {key: minutes[key] for key in timed[:-LIVE_MINUTES]}
    return live, final


def _table(minutes: Mapping[Key, list[int]]) -> pa.RecordBatch:
    keys = sorted(minutes, key=lambda key: (key[1], key[0], key[2] is None, key[2] or 0))
    arrays = [
        *(pa.array([key[number] for key in keys], pa.string()) for number in range(2)),
        pa.array([key[2] for key in keys], pa.int64()).cast(ACTIVITY.field("minute").type),
        *(pa.array([minutes[key][number] for key in keys], pa.int64()) for number in range(2)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ACTIVITY)


def _written(target: Target, batches: Iterable[pa.RecordBatch]) -> list[TableFile]:
    found: list[TableFile] = []
    for batch in batches:
        sink = TableSink(target)
        sink.add(batch)
        found += sink.finish().values()
    return found


def _written_live(target: Target, live: Mapping[str, Minutes]) -> list[LiveFile]:
    sink = TableSink(target)
    places: dict[tuple[str | None, ...], list[tuple[Place, int]]] = {}
    before: dict[tuple[str | None, ...], int] = {}
    for journal, minutes in live.items():
        sink.add(_table(minutes))
        for partition, rows in sink.rows.items():
            if rows > before.get(partition, 0):
                places.setdefault(partition, []).append(((journal, ""), rows - before.get(partition, 0)))
        before = sink.rows
    return [LiveFile(file, tuple(places[partition])) for partition, file in sink.finish().items()]
