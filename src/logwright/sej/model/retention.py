"""Retention: removes old segments that no consumer needs.

Segments are removed only from the old end, so that there is never a gap, and only if all of this is true:
- it is not the last one, and not one of the `keep_segments` newest;
- every consumer has passed it: its committed offset is not in this segment or before it;
- it is beyond a limit: older than `max_age_seconds`, or the journal is larger than `max_bytes` with it. Without limits
  all segments that the consumers have passed are removed.

A consumer that has not committed yet prevents all removals. A consumer whose offset cannot be read is an error.
`ignore_consumers` names consumers to ignore. Without any consumer a limit is required.

The writer's lock is not needed: a writer never changes a segment that has a successor. Several cleaners may run at
once: each removes the oldest segment first, so the result is the same. The names are synced one by one: a power cut
leaves a journal that begins a little earlier, never one with a gap. A consumer that is reset backwards during a removal
may find its messages gone, and reports that when it starts.

Nothing is removed through a link: a journal whose `jnl` is a link is refused, and an `idx` that is a link is not
changed.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from ...core.format import CleaningRules
from ...core.io.disk import REAL_DISK, Disk, File
from ...errors import DamagedJournal, NotFound, StorageFailed, WrongUse
from ..bytes.layout import (
    CHECKSUM_SUFFIX,
    HEAD,
    INDEX_DIRECTORY,
    INDEX_SUFFIX,
    NO_TIMESTAMP,
    SEGMENT_DIRECTORY,
    SEGMENT_SUFFIX,
    parse_segment_name,
)
from ..files.ending import find_end
from ..files.index import Index, remove_index
from ..files.offset_file import list_consumers, stored_offset
from ..files.segment import Segment, list_segments, open_segment, step_back


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a segment is `removed`, and why. `consumers` are those that still need it.

    `next_offset` is where the next segment begins, None for the last one.
    """

    segment: Segment
    bytes: int
    next_offset: int | None
    removed: bool
    reason: str
    consumers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def first(self) -> int:
        return self.segment.first_offset

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return {
            "file": self.segment.name,
            "first": self.segment.first_offset,
            "next": self.next_offset,
            "bytes": self.bytes,
            "remove": self.removed,
            "reason": self.reason,
            "consumers": list(self.consumers),
        }


@dataclass(slots=True)
class Plan:
    """The result or the plan of a cleaning: the segments, oldest first, and the offset of each consumer."""

    directory: Path
    verdicts: list[Verdict] = field(default_factory=list)
    consumers: dict[str, int | None] = field(default_factory=dict)

    @property
    def removed(self) -> list[Verdict]:
        """The segments to remove."""
        return [verdict for verdict in self.verdicts if verdict.removed]

    @property
    def removed_bytes(self) -> int:
        return sum(verdict.bytes for verdict in self.removed)

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return {
            "segments": [verdict.as_json() for verdict in self.verdicts],
            "removed": len(self.removed),
            "removed_bytes": self.removed_bytes,
            "consumers": self.consumers,
        }


@dataclass(frozen=True, slots=True)
class _Rules:
    max_age_seconds: float | None
    max_bytes: int | None
    keep_segments: int
    now_ns: int

    def check(self) -> None:
        if self.keep_segments < 1:
            raise WrongUse(f"keep_segments must be at least 1, not {self.keep_segments}: the last segment always stays")
        if self.max_age_seconds is not None and self.max_age_seconds < 0:
            raise WrongUse(f"a largest age of {self.max_age_seconds} seconds makes no sense")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise WrongUse(f"a size of {self.max_bytes} bytes makes no sense")

    @property
    def limited(self) -> bool:
        return self.max_age_seconds is not None or self.max_bytes is not None


# --- planning -------------------------------------------------------------------------------------------------------


def plan(
    directory: Path | str,
    *,
    max_age_seconds: float | None = None,
    max_bytes: int | None = None,
    keep_segments: int = 1,
    ignore_consumers: Collection[str] = (),
    now_ns: int | None = None,
    disk: Disk = REAL_DISK,
) -> Plan:
    """What `clean` would do, without doing it."""
    rules = _Rules(max_age_seconds, max_bytes, keep_segments, time.time_ns() if now_ns is None else now_ns)
    rules.check()
    home = Path(directory)
    segments, sizes = _segments(disk, home)
    consumers = _consumers(disk, home, ignore_consumers)
    if not consumers and not rules.limited:
        raise WrongUse(f"{home} has no consumer to go by: say how old or how large it may be")
    found = Plan(home, consumers=consumers)
    total = sum(sizes)
    going = True
    for number in range(len(segments)):
        verdict = _judge(disk, segments, number, sizes[number], total, consumers, rules)
        if going and not verdict.removed:
            going = False
        elif not going and verdict.removed:
            verdict = _stays(segments, number, sizes[number], "an older segment stays")
        if verdict.removed:
            total -= verdict.bytes
        found.verdicts.append(verdict)
    return found


def _segments(disk: Disk, directory: Path) -> tuple[list[Segment], list[int]]:
    """The segments and their sizes, without those that another cleaner removes meanwhile."""
    home = directory / SEGMENT_DIRECTORY
    if disk.is_link(home):
        raise StorageFailed("clean", home, OSError(errno.ELOOP, "this is a link, and the segments are another's"))
    try:
        listed = list_segments(disk, directory)
    except NotFound:
        raise NotFound(f"{directory}: no sej journal is here") from None
    segments, sizes = [], []
    for segment in listed:
        with contextlib.suppress(NotFound):
            sizes.append(disk.file_size(segment.path))
            segments.append(segment)
    return segments, sizes


def _consumers(disk: Disk, directory: Path, ignored: Collection[str]) -> dict[str, int | None]:
    if isinstance(ignored, str):
        raise WrongUse(f"ignore_consumers is a collection of names: [{ignored!r}], not {ignored!r}")
    names = list_consumers(disk, directory)
    unknown = sorted(set(ignored) - set(names))
    if unknown:
        raise NotFound(f"{directory}: there is no consumer {unknown[0]!r} to ignore")
    found: dict[str, int | None] = {}
    for name in names:
        if name in ignored:
            continue
        try:
            found[name] = stored_offset(disk, directory, name)
        except DamagedJournal as error:
            reason = f"{error.reason}; where the consumer {name!r} is cannot be known: reset it or ignore it"
            raise DamagedJournal(error.file, error.position, reason) from None
    return found


def _judge(
    disk: Disk,
    segments: list[Segment],
    number: int,
    size: int,
    total: int,
    consumers: dict[str, int | None],
    rules: _Rules,
) -> Verdict:
    segment = segments[number]
    behind = len(segments) - number
    if behind == 1:
        return _stays(segments, number, size, "it is the last one")
    if behind <= rules.keep_segments:
        return _stays(segments, number, size, f"the newest {rules.keep_segments} are kept")
    next_offset = segments[number + 1].first_offset
    holding = _holding(consumers, next_offset)
    if holding:
        return _stays(segments, number, size, f"needed by {', '.join(holding)}", holding)
    reason = _beyond_limit(disk, segment, total, rules)
    if reason is None:
        return _stays(segments, number, size, "within the limits")
    return Verdict(segment, size, next_offset, True, reason)


def _holding(consumers: dict[str, int | None], next_offset: int) -> tuple[str, ...]:
    """The consumers that still need something before `next_offset`."""
    return tuple(name for name, offset in consumers.items() if offset is None or offset < next_offset)


def _stays(segments: list[Segment], number: int, size: int, reason: str, consumers: tuple[str, ...] = ()) -> Verdict:
    after = segments[number + 1].first_offset if number + 1 < len(segments) else None
    return Verdict(segments[number], size, after, False, reason, consumers)


def _beyond_limit(disk: Disk, segment: Segment, total: int, rules: _Rules) -> str | None:
    """Why a segment that no consumer needs is removed; None if the limits keep it."""
    if not rules.limited:
        return "every consumer has passed it"
    if rules.max_bytes is not None and total > rules.max_bytes:
        return f"the journal has more than {rules.max_bytes} bytes"
    if rules.max_age_seconds is None:
        return None
    try:
        newest = newest_timestamp(disk, segment)
    except NotFound:
        return "another cleaner has removed it"
    if newest is None or rules.now_ns - newest <= rules.max_age_seconds * 1e9:
        return None
    return f"its newest message is {(rules.now_ns - newest) / 1e9:.0f} seconds old"


def newest_timestamp(disk: Disk, segment: Segment) -> int | None:
    """The largest timestamp of a finished segment by its index, else the one of its last message; None for none."""
    file = open_segment(disk, segment)
    try:
        index = Index.load(disk, segment, file.size())
        times = index.times(file) if index is not None else None
        newest = times[1] if times is not None else _last_timestamp(disk, segment, file)
    finally:
        file.close()
    return None if newest == NO_TIMESTAMP else newest


def _last_timestamp(disk: Disk, segment: Segment, file: File) -> int:
    last = step_back(file, find_end(disk, segment, file).position)
    if last is None:
        return NO_TIMESTAMP
    timestamp: int = HEAD.unpack(file.read_at(last[1].start, HEAD.size))[1]
    return timestamp


# --- cleaning -------------------------------------------------------------------------------------------------------


def clean(
    directory: Path | str, *, now_ns: int | None = None, disk: Disk = REAL_DISK, **rules: Unpack[CleaningRules]
) -> Plan:
    """Remove the old segments that no consumer needs; the verdict on each segment. See `plan` for the rules."""
    found = plan(directory, now_ns=now_ns, disk=disk, **rules)
    for number, verdict in enumerate(found.verdicts):
        if not verdict.removed:
            break
        assert verdict.next_offset is not None
        # Looked up again for each: removing a gigabyte takes time, in which a consumer may have been reset.
        holding = _holding(_consumers(disk, found.directory, rules.get("ignore_consumers", ())), verdict.next_offset)
        if holding:
            _withdraw(found, number, holding)
            break
        remove_segment(disk, found.directory, verdict.segment)
    _remove_orphans(disk, found.directory)
    return found


def _withdraw(found: Plan, number: int, holding: tuple[str, ...]) -> None:
    """Keep the segments from `number` on."""
    for later, verdict in enumerate(found.verdicts[number:], number):
        if verdict.removed:
            reason = f"needed by {', '.join(holding)} meanwhile"
            found.verdicts[later] = replace(verdict, removed=False, reason=reason, consumers=holding)


def remove_segment(disk: Disk, directory: Path, segment: Segment) -> None:
    """Remove a segment and the files beside it. This cannot be undone."""
    if not disk.is_link(directory / INDEX_DIRECTORY):
        remove_index(disk, segment)
    disk.remove(segment.path.with_name(segment.path.name + CHECKSUM_SUFFIX))
    disk.remove(segment.path)
    disk.sync_directory(directory / SEGMENT_DIRECTORY)


def _remove_orphans(disk: Disk, directory: Path) -> None:
    """Remove files beside segments that no longer exist: a power cut or another program may have left them."""
    segments = list_segments(disk, directory)
    if not segments:
        return
    for folder, suffix in ((INDEX_DIRECTORY, INDEX_SUFFIX), (SEGMENT_DIRECTORY, SEGMENT_SUFFIX + CHECKSUM_SUFFIX)):
        if disk.is_link(directory / folder):
            continue
        with contextlib.suppress(NotFound):
            for name in disk.list_directory(directory / folder):
                first_offset = parse_segment_name(name.removesuffix(suffix) + SEGMENT_SUFFIX)
                if name.endswith(suffix) and first_offset is not None and first_offset < segments[0].first_offset:
                    disk.remove(directory / folder / name)
