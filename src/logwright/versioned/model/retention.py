"""Retention: removes archives that are too old, too many, or too large, but none that the window needs.

An archive is complete in itself, and the journal after it begins with its final state. So removing the oldest archives
does no harm to the others. The state at a time is read from the journal that was active then: an archive that ended at
T is needed only for times before T. A window of an hour therefore keeps every archive that ended within the last hour,
whatever the limits are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.io.disk import Disk
from ...core.options import NamedOptions
from ...errors import NotFound, WrongUse
from ..files.files import archive_name, list_files

_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Retention(NamedOptions):
    """Which archives are kept. None is no limit; without any limit all are kept.

    `max_age_seconds` since an archive ended, `max_archives`, `max_bytes` of all archives together; `window_seconds` is
    the period whose history must stay available, whatever the other three are.
    """

    max_age_seconds: float | None = None
    max_archives: int | None = None
    max_bytes: int | None = None
    window_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_age_seconds", "max_archives", "max_bytes", "window_seconds"):
            limit = getattr(self, name)
            if limit is None and name != "window_seconds":
                continue
            kinds = (int, float) if name.endswith("_seconds") else (int,)
            if type(limit) not in kinds or not 0 <= limit < float("inf"):
                raise WrongUse(f"{name} is {limit!r}, and must be a number, 0 at least")

    @property
    def is_limited(self) -> bool:
        """Whether any archive would ever be removed."""
        return any(limit is not None for limit in (self.max_age_seconds, self.max_archives, self.max_bytes))


KEEP_ALL: Final = Retention()


def choose(retention: Retention, archives: list[tuple[int, int]], now_ns: int) -> list[int]:
    """The times of the archives to remove, given the times and sizes of all, oldest first."""
    removed: list[int] = []
    left, left_bytes = len(archives), sum(size for _, size in archives)
    for timestamp, size in archives:
        too_old = retention.max_age_seconds is not None and _is_before(timestamp, now_ns, retention.max_age_seconds)
        too_many = retention.max_archives is not None and left > retention.max_archives
        too_large = retention.max_bytes is not None and left_bytes > retention.max_bytes
        if not (too_old or too_many or too_large) or not _is_before(timestamp, now_ns, retention.window_seconds):
            break  # only the oldest: limits must not make a hole in the history
        removed.append(timestamp)
        left, left_bytes = left - 1, left_bytes - size
    return removed


def _is_before(timestamp: int, now_ns: int, seconds: float) -> bool:
    """Whether a time is at least this number of seconds ago."""
    return timestamp <= now_ns - round(seconds * _SECOND_NS)


def remove_archives(disk: Disk, directory: Path, store: str, retention: Retention, now_ns: int) -> list[int]:
    """Remove archives by the limits; returns the times of those removed."""
    if not retention.is_limited:
        return []
    archives = []
    for timestamp in list_files(disk, directory, store).archives:
        try:
            archives.append((timestamp, disk.file_size(directory / archive_name(store, timestamp))))
        except NotFound:
            continue
    removed = choose(retention, archives, now_ns)
    for timestamp in removed:
        disk.remove(directory / archive_name(store, timestamp))
        disk.sync_directory(directory)  # one by one: a power cut leaves no hole
    return removed
