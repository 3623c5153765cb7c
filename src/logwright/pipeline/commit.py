"""The directory of the tables for one run of today's tables: files are staged anywhere and moved to any name.

What is published how is in `publish/parquet.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ..core.io.disk import REAL_DISK, Disk, make_directories
from ..core.write.closing import Closing
from .publish.control import HOME, refuse_others
from .publish.parquet import (
    STAGING,
    Manifest,
    Move,
    check_places,
    commit_of,
    is_being_changed,
    lock_output,
    put,
    read_checkpoint,
    recover,
    sync_staged,
    table_files,
)
from .publish.publisher import REPORT, Checkpoint

__all__ = [
    "HOME",
    "REPORT",
    "Checkpoint",
    "Move",
    "Output",
    "Staging",
    "is_being_changed",
    "part_name",
    "read_checkpoint",
    "table_files",
]


def part_name(batch: int, number: int, suffix: str) -> str:
    """The name of a file of a table; `suffix` has no leading dot."""
    return f"part-{batch:08d}-{number:05d}.{suffix}"


class Output(Closing):
    """The directory of the tables, locked by one run.

    The directory is created if it is missing; one that contains other files is refused. Opening it completes or removes
    what an earlier run has left; `completed` says whether a batch was completed.
    """

    def __init__(self, path: Path | str, *, disk: Disk = REAL_DISK) -> None:
        self.path = Path(path)
        self.disk = disk
        self.commit = commit_of(disk, self.path)
        refuse_others(disk, self.path)
        make_directories(disk, self.path / HOME)
        self._lock = lock_output(disk, self.path)
        try:
            self.completed = recover(disk, self.path, self.commit)
            self.checkpoint = read_checkpoint(self.path, disk=disk)
        except BaseException:
            self._lock.release()
            raise

    @property
    def batch(self) -> int:
        """The number of the next batch."""
        return 1 if self.checkpoint is None else self.checkpoint.batch + 1

    def stage(self) -> Staging:
        """A new staging directory for files to be published together."""
        run = secrets.token_hex(8)
        path = self.path / HOME / STAGING / run
        make_directories(self.disk, path)
        return Staging(self, run, path)

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()


class Staging:
    """The files being written for one batch, below `path`: either published together by `publish`, or discarded."""

    def __init__(self, output: Output, run: str, path: Path) -> None:
        self.path = path
        self._output = output
        self._run = run

    def publish(self, moves: Sequence[Move], replaced: Iterable[str], state: Mapping[str, Any]) -> Checkpoint:
        """Move files into place, remove those they replace, and save `state`: all of it or nothing."""
        output = self._output
        disk, out = output.disk, output.path
        manifest = Manifest(self._run, output.batch, tuple(moves), tuple(replaced), dict(state))
        check_places(manifest)
        sync_staged(disk, self.path, moves)
        output.commit.publish(asdict(manifest), partial(put, disk, out, manifest))
        output.checkpoint = Checkpoint(manifest.batch, manifest.state)
        return output.checkpoint

    def discard(self) -> None:
        """Remove the staged files unless the batch is committed. The next run removes what cannot be removed now."""
        self._output.commit.discard()
