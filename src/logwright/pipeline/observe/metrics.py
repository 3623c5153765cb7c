"""Metrics for Prometheus in a text file, as the textfile collector of the node exporter reads it.

The file is replaced after every batch, and while a run with `follow` finds nothing new, every few seconds. A reader
sees the old file or the new one. All metrics have the label `pipeline`, the place of the tables, so that several
pipelines may write into the same directory.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from ...core.io.disk import REAL_DISK, Disk, replace_file
from ...errors import LogwrightError
from ...location import without_secrets
from .observer import BatchFigures, Observer

_PREFIX: Final = "logwright_pipeline"
IDLE_SECONDS: Final = 10.0
"""How often the file is replaced while nothing is new."""

Labels: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric and its values, each with labels."""

    name: str
    kind: str
    about: str
    values: tuple[tuple[Labels, float], ...]


class MetricsFile(Observer):
    """Writes the metrics of a run to a file."""

    def __init__(self, path: str, out: str, *, disk: Disk = REAL_DISK) -> None:
        self._path = Path(path)
        self._out = without_secrets(out)
        self._disk = disk
        self._last: BatchFigures | None = None
        self._last_batch: BatchFigures | None = None
        self._written_at = 0.0

    def begin(self) -> None:
        """Leave the metrics of the last run until there are new ones."""

    def batch(self, figures: BatchFigures) -> None:
        self._last = figures
        if figures.seconds is not None:
            self._last_batch = figures
        elif time.monotonic() - self._written_at < IDLE_SECONDS:
            return
        self._write(has_failed=False)

    def end(self, error: BaseException | None) -> None:
        self._write(has_failed=error is not None)

    def _write(self, *, has_failed: bool) -> None:
        text = render(self._metrics(has_failed), {"pipeline": self._out})
        temporary = self._path.with_name(f"{self._path.name}.tmp")  # the collector reads names that end with .prom
        try:
            replace_file(self._disk, self._path, text.encode(), temporary)
            self._written_at = time.monotonic()
        except (LogwrightError, OSError) as error:
            self.problem = f"the metrics could not be written: {error}"

    def _metrics(self, has_failed: bool) -> list[Metric]:
        found = [_one("failed", "gauge", "Whether the last run has failed.", int(has_failed))]
        if self._last is not None:
            found += _of_tables(self._last)
        if self._last_batch is not None:
            found += _of_batch(self._last_batch)
        return found


def _of_tables(last: BatchFigures) -> list[Metric]:
    records: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    damage: Counter[tuple[str, str]] = Counter()
    for found in last.journals.values():
        records[found.format] += found.records
        sizes[found.format] += found.bytes
        for kind, count in found.damage.items():
            damage[found.format, kind] += count
    tables = last.tables.items()
    metrics = [
        _one("batches_total", "counter", "Batches published to the tables.", last.number),
        _by("records_total", "counter", "Records in the tables.", "format", records.items()),
        _by("bytes_total", "counter", "Bytes of the records in the tables.", "format", sizes.items()),
        Metric(
            *("damage_total", "counter", "Damaged ranges and losses."),
            tuple(({"format": format, "kind": kind}, count) for (format, kind), count in damage.items()),
        ),
        _by("table_rows", "gauge", "Rows of a table.", "table", ((name, one.rows) for name, one in tables)),
        _by("table_files", "gauge", "Data files of a table.", "table", ((name, one.files) for name, one in tables)),
        _by("table_bytes", "gauge", "Bytes of the data files.", "table", ((name, one.bytes) for name, one in tables)),
        Metric(
            *("expectation_failed_rows", "gauge", "Rows that do not meet an expectation."),
            tuple(
                ({"expectation": each.name, "table": each.table, "action": each.action}, each.failed)
                for each in last.expectations
            ),
        ),
    ]
    if last.has_all:
        about = "All records that were complete at this time are in the tables; time() minus this is the lag."
        metrics.append(_one("complete_timestamp_seconds", "gauge", about, last.looked_at))
    return metrics


def _of_batch(batch: BatchFigures) -> list[Metric]:
    return [
        _one("batch_timestamp_seconds", "gauge", "When the last batch was published.", batch.published_at),
        _one("batch_seconds", "gauge", "How long the last batch took.", batch.seconds or 0.0),
        _one(
            *("batch_lag_seconds", "gauge", "From the look at the journals to the publication of the last batch."),
            batch.published_at - batch.looked_at,
        ),
        _one("batch_records", "gauge", "Records of the last batch.", sum(one.records for one in batch.new.values())),
        _one("batch_bytes", "gauge", "Bytes of these records.", sum(one.bytes for one in batch.new.values())),
    ]


def _one(name: str, kind: str, about: str, value: float) -> Metric:
    return Metric(name, kind, about, (({}, value),))


def _by(name: str, kind: str, about: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    return Metric(name, kind, about, tuple(({label: value}, number) for value, number in values))


def render(metrics: Iterable[Metric], shared: Labels) -> str:
    """Metrics in the text format of Prometheus. Those without values are left out."""
    lines = []
    for metric in metrics:
        full = f"{_PREFIX}_{metric.name}"
        if metric.values:
            lines += [f"# HELP {full} {metric.about}", f"# TYPE {full} {metric.kind}"]
        for labels, value in metric.values:
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in {**shared, **labels}.items())
            lines.append(f"{full}{{{inside}}} {value}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
