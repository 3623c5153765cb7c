"""`logwright inspect`: describes a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.read.report import Summary
from ..core.times import shown_time
from .arguments import DAMAGE_FOUND, GOOD, journal_verb, local_option, opened
from .output import format_duration, format_size, print_facts, print_json


@journal_verb(
    "inspect",
    examples=[
        ("what is in this directory", "logwright inspect orders"),
        ("a single file", "logwright inspect orders/jnl/0000000000000000.jnl"),
        ("for a program", "logwright inspect events --json"),
    ],
)
@local_option
def command(path: Path, local: bool, format_name: str | None, as_json: bool) -> int:
    """Describe a journal: format, files, records, bytes, first and last record, health.

    Reads names, sizes and both ends of each file only, so it is fast for any size, but does not find damage in between:
    use `verify` for that. Needs no lock and changes nothing. Exits with 1 if it finds damage; a torn tail is not
    damage. In JSON the value of a first or last record of more than 64 KiB is null.
    """
    with opened(path, format_name) as reader:
        summary = reader.summary()
        scale = reader.time_scale
    if as_json:
        print_json(summary.as_json())
    else:
        print_facts(_facts(summary, scale, local))
    return DAMAGE_FOUND if summary.damaged else GOOD


def _facts(summary: Summary, scale: int, local: bool) -> list[tuple[str, str]]:
    facts = [
        ("path", summary.path),
        ("format", summary.format),
        ("health", summary.health),
        ("files", str(summary.files)),
        ("bytes", f"{summary.bytes} ({format_size(summary.bytes)})"),
        ("records", "unknown without a full read" if summary.records is None else str(summary.records)),
        ("first", _record(summary.first, scale, local)),
        ("last", _record(summary.last, scale, local)),
    ]
    if summary.losses:
        facts.append(("losses", f"{len(summary.losses)} known; `logwright verify` lists them"))
    span = _span(summary.first, summary.last, scale)
    if span is not None:
        facts.append(("span", span))
    for name, detail in summary.details.items():
        facts.extend(_details(name.replace("_", " "), detail))
    return facts


def _record(record: dict[str, Any] | None, scale: int, local: bool) -> str:
    """The place and time of a record, in one line."""
    if record is None:
        return "-"
    parts = [f"offset {record['offset']}"] if "offset" in record else []
    if "op" in record:
        parts.append(record["op"])
    if "timestamp" in record:
        timestamp = record["timestamp"]
        parts.append("no time" if timestamp is None else shown_time(timestamp * scale, local=local))
    if "t" in record:
        parts.append(shown_time(record["t"], local=local))
    if "added" in record:
        parts.append(shown_time(record["added"] * 1_000_000, local=local))
    parts.append(f"{record['size']} bytes at {record['file']} @ {record['position']}")
    return ", ".join(parts)


def _span(first: dict[str, Any] | None, last: dict[str, Any] | None, scale: int) -> str | None:
    """The time between two records."""
    times = [record.get("timestamp", record.get("t")) for record in (first, last) if record is not None]
    if len(times) < 2 or times[0] is None or times[1] is None:
        return None
    return format_duration((times[1] - times[0]) * scale)


def _details(name: str, detail: Any) -> list[tuple[str, str]]:
    """The details of this format: one line each, or one for each entry of a dictionary or list."""
    if isinstance(detail, dict):
        return [(f"{name} {key}", _plain(value)) for key, value in detail.items()] or [(name, "none")]
    if isinstance(detail, list):
        return [(name, _plain(value)) for value in detail] or [(name, "none")]
    return [(name, _plain(detail))]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    return "-" if value is None else str(value)
