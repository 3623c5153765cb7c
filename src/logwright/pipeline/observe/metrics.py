"""Metrics for Prometheus in a text file, as the textfile collector of the node exporter reads it.

The file is replaced after every batch, and while a run with `follow` finds nothing new, every few seconds. A reader
sees the old file or the new one. All metrics have the label `pipeline`, the place of the tables, so that several
pipelines may write into the same directory.

A metric that a run does not know yet keeps the value that the last run has written: a run that fails at once adds its
failure to the last good figures.
"""

from __future__ import annotations

import re
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
        self._kept: dict[str, list[str]] = {}
        """The lines of each metric in the file that the last run has written."""

    def begin(self) -> None:
        """Leave the metrics of the last run until there are new ones."""
        self._kept = self._lines_of_last_run()

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
        rendered = {
            metric.name: render(metric, {"pipeline": self._out}) for metric in self._metrics(has_failed=has_failed)
        }
        lines = [line for each in (self._kept | rendered).values() for line in each]
        text = "".join(f"{line}\n" for line in lines)
        temporary = self._path.with_name(f"{self._path.name}.tmp")  # the collector reads names that end with .prom
        try:
            replace_file(self._disk, self._path, text.encode(), temporary)
            self._written_at = time.monotonic()
        except (LogwrightError, OSError) as error:
            self.problem = f"the metrics could not be written: {error}"

    def _lines_of_last_run(self) -> dict[str, list[str]]:
        """The lines of each metric of this pipeline in the file; none if it does not exist or cannot be read."""
        try:
            text = self._path.read_text("utf-8")
        except (OSError, ValueError):
            return {}
        found: dict[str, list[str]] = {}
        for line in text.splitlines():
            name = re.match(rf"(?:# (?:HELP|TYPE) )?{_PREFIX}_(\w+)", line)
            if name is not None:
                found.setdefault(name[1], []).append(line)
        own = f'{{pipeline="{_escaped(self._out)}"'
        return {name: lines for name, lines in found.items() if any(own in line for line in lines)}

    def _failures(self) -> int:
        """How many runs had failed before this one."""
        number = re.search(r" (\d+)$", self._kept.get("failures_total", [""])[-1])
        return int(number[1]) if number is not None else 0

    def _metrics(self, *, has_failed: bool) -> list[Metric]:
        failures = self._failures() + has_failed
        found = [
            _one("failed", "gauge", "Whether the last run has failed.", int(has_failed)),
            _one("failures_total", "counter", "Runs that have failed.", failures),
        ]
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
    about = "Whether records that the last look at the journals has found are not in the tables yet."
    metrics.append(_one("behind", "gauge", about, int(not last.has_all)))
    if last.complete_at is not None:
        about = "All records that were complete at this time are in the tables; time() minus this is the lag."
        metrics.append(_one("complete_timestamp_seconds", "gauge", about, last.complete_at))
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


def render(metric: Metric, shared: Labels) -> list[str]:
    """The lines of a metric in the text format of Prometheus; none if it has no values."""
    full = f"{_PREFIX}_{metric.name}"
    lines = [f"# HELP {full} {metric.about}", f"# TYPE {full} {metric.kind}"] if metric.values else []
    for labels, value in metric.values:
        inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in {**shared, **labels}.items())
        lines.append(f"{full}{{{inside}}} {value}")
    return lines


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
