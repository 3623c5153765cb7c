"""Checks the other files of a journal: offset files, side files, locks, and leftovers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...core.io.disk import Disk
from ...core.read.report import Problem, Report
from ...core.repair.plan import TEMPORARY_SUFFIX, report_repairs
from ...errors import DamagedJournal, LogwrightError
from ..bytes.layout import (
    CHECKSUM_SUFFIX,
    INDEX_DIRECTORY,
    INDEX_SUFFIX,
    LOCK_NAME,
    OFFSET_DIRECTORY,
    OFFSET_LOCK_SUFFIX,
    OFFSET_SUFFIX,
    SEGMENT_DIRECTORY,
)
from .index import index_path
from .offset_file import stored_offset
from .segment import Segment

_LEFTOVERS: Final = (".tmp", TEMPORARY_SUFFIX)


def check_surroundings(
    disk: Disk, directory: Path, segments: list[Segment], following: int | None, report: Report
) -> None:
    """Check everything but the segments; `following` is the offset after the last message."""
    first = segments[0].first_offset if segments else 0
    _check_segment_names(disk, directory, segments, report)
    _check_index_names(disk, directory, segments, report)
    _check_offsets(disk, directory, first, first if following is None else following, report)
    _check_lock(disk, directory, LOCK_NAME, report)
    report_repairs(disk, directory, report)


def _names(disk: Disk, directory: Path, folder: str) -> list[str]:
    return disk.list_directory(directory / folder) if disk.is_directory(directory / folder) else []


def _odd(report: Report, file: str, kind: str, message: str, position: int = 0) -> None:
    report.anomalies.append(Problem(file, position, kind, message))


def _check_segment_names(disk: Disk, directory: Path, segments: list[Segment], report: Report) -> None:
    known = {segment.path.name for segment in segments}
    for name in _names(disk, directory, SEGMENT_DIRECTORY):
        file = f"{SEGMENT_DIRECTORY}/{name}"
        if name in known or name.removesuffix(CHECKSUM_SUFFIX) in known:
            continue
        if name.endswith(_LEFTOVERS):
            _odd(report, file, "leftover", "a temporary file that was left behind")
        elif name.endswith(CHECKSUM_SUFFIX):
            _odd(report, file, "side_file", "checksums of a segment that is not there")
        else:
            _odd(report, file, "foreign_file", "this is no segment's name")


def _check_index_names(disk: Disk, directory: Path, segments: list[Segment], report: Report) -> None:
    known = {index_path(segment).name for segment in segments}
    for name in _names(disk, directory, INDEX_DIRECTORY):
        file = f"{INDEX_DIRECTORY}/{name}"
        if name in known:
            continue
        if name.endswith(_LEFTOVERS):
            _odd(report, file, "leftover", "a temporary file that was left behind")
        elif name.endswith(INDEX_SUFFIX):
            _odd(report, file, "side_file", "the index of a segment that is not there")
        else:
            _odd(report, file, "foreign_file", "this is no index's name")


def _check_offsets(disk: Disk, directory: Path, first: int, following: int, report: Report) -> None:
    for name in _names(disk, directory, OFFSET_DIRECTORY):
        file = f"{OFFSET_DIRECTORY}/{name}"
        if name.endswith(OFFSET_SUFFIX):
            _check_offset(disk, directory, name.removesuffix(OFFSET_SUFFIX), first, following, report)
        elif name.endswith(OFFSET_LOCK_SUFFIX):
            _check_lock(disk, directory, file, report)
        elif name.endswith(_LEFTOVERS):
            _odd(report, file, "leftover", "a commit that was not finished")
        else:
            _odd(report, file, "foreign_file", "this is no offset's name")


def _check_offset(disk: Disk, directory: Path, name: str, first: int, following: int, report: Report) -> None:
    file = f"{OFFSET_DIRECTORY}/{name}{OFFSET_SUFFIX}"
    try:
        offset = stored_offset(disk, directory, name)
    except DamagedJournal as error:
        report.problems.append(Problem(file, error.position, "offset_file", error.reason))
        return
    except LogwrightError as error:
        report.problems.append(Problem(file, 0, "unreadable", str(error)))
        return
    if offset is not None and offset > following:
        _odd(report, file, "consumer_ahead", f"the consumer is at {offset}, but the next message gets {following}")
    elif offset is not None and offset < first:
        _odd(report, file, "consumer_behind", f"the consumer is at {offset}, but the journal begins with {first}")


def _check_lock(disk: Disk, directory: Path, name: str, report: Report) -> None:
    """A lock file is empty and of the ordinary kind; anything else keeps programs from locking it, or is not theirs."""
    path = directory / name
    if not disk.exists(path):
        return
    try:
        file = disk.open(path, "read")
    except LogwrightError as error:
        _odd(report, name, "lock_file", f"it cannot be locked: {error}")
        return
    try:
        size = file.size()
    finally:
        file.close()
    if size:
        _odd(report, name, "lock_file", f"it has {size} bytes, where lock files are empty")
