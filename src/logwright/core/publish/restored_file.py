"""RestoredFile: writes a file again from tables, for formats whose records are numbered by file and position.

The rows of a file come in the order of their positions. If bytes between two records were damaged, or are not in the
tables, the records are written without them, and the range is reported as a gap.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from ...errors import DamagedJournal, LogwrightError
from ..io.disk import REAL_DISK, Disk, make_directories, write_all
from ..read.chunk import POSITION_BITS
from .restore import Written


class RestoredFile:
    """Writes one file of a journal. A format has `_encoded`, which returns the bytes of rows, and checks the name."""

    records_name: ClassVar[str] = "records"

    def __init__(self, directory: Path, file: str, *, disk: Disk = REAL_DISK) -> None:
        self._disk = disk
        self._name = file
        path = directory / file
        self._directory = path.parent
        make_directories(disk, self._directory)
        self._file = disk.open(path, "create")
        self._size = 0
        self._records = 0
        self._sequence: int | None = None
        self._end = 0
        """Where the records so far ended in the original file."""
        self._gaps: list[tuple[int, int]] = []

    def _encoded(self, batch: Any) -> Iterator[bytes]:
        """The bytes of the records of a batch of the table `events`, one piece after the other."""
        raise NotImplementedError

    def append_batch(self, batch: Any) -> None:
        """Add rows of the table `events`, which must be of this file and in the order of their positions."""
        if not batch.num_rows:
            return
        self._check_file(batch.column("sequence").to_pylist())
        positions, sizes = batch.column("position").to_pylist(), batch.column("size").to_pylist()
        encoded = self._encoded(batch)
        for position, size in zip(positions, sizes, strict=True):
            if position < self._end:
                reason = f"the tables have two {self.records_name} here, one of them ends at {self._end}"
                raise DamagedJournal(self._name, position, reason)
            if position > self._end:
                self._gaps.append((self._end, position))
            self._end = position + size
        before = self._size
        for data in encoded:
            write_all(self._file, self._size, data)
            self._size += len(data)
        if self._size - before != sum(sizes):
            have, grown = sum(sizes), self._size - before
            reason = f"the tables say that {self.records_name} from here on have {have} bytes, and they have {grown}"
            raise DamagedJournal(self._name, positions[0], reason)
        self._records += batch.num_rows

    def _check_file(self, sequences: list[int | None]) -> None:
        found = set(sequences)
        if self._records:
            found.add(self._sequence)
        if len(found) > 1:
            reason = f"the tables have {self.records_name} of several files under this name"
            raise DamagedJournal(self._name, self._end, reason)
        self._sequence = sequences[0]

    def finish(self) -> list[Written]:
        """Sync and close the file."""
        self._file.sync()
        self._file.close()
        self._disk.sync_directory(self._directory)
        first = (self._sequence or 0) << POSITION_BITS
        gaps = tuple((first + start, first + end) for start, end in self._gaps)
        return [Written(self._name, first, first + self._end, self._records, self._size, gaps=gaps)]

    def discard(self) -> None:
        """Close what is open."""
        with contextlib.suppress(LogwrightError):
            self._file.close()
