"""Batches that many tasks stage and one publisher publishes: `core/publish/staging.py` for a journal.

A task encodes its records into a file of its own. Before the commit they are joined into the next files of the journal,
with hints, and synced; a batch is a segment, and its last record is the checkpoint that closes it. After the commit the
files are only renamed: a power cut cannot tear a batch, and the names show which files are in place. The manifest has
the id of the first one.

Until it is complete, a batch takes its space twice.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...core.io.disk import REAL_DISK, Disk, File, make_directories, write_all
from ...core.io.lock import Lock
from ...core.publish.manifest import FilesOf, OpenedParts, Part, StagedFile, Target, staged_name, staging_directory
from ...core.publish.staging import PackedFile, StageFiles, give_name, has_name
from ...errors import DamagedJournal, WrongUse
from ..bytes import codec, kernel
from ..bytes.codec import Columns
from ..bytes.layout import HOME_DIRECTORY, MAX_FILE_BYTES, MAX_RECORD_BYTES, file_name
from ..files.opening import journal_to_write
from ..files.writer import BUFFER_BYTES, Writer

if TYPE_CHECKING:
    import pyarrow as pa

_PART: Final = ""
"""The journal is the root itself."""
_NO_LIMIT: Final = 2**62


# --- where they go ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalTarget(Target):
    """The journal of a root."""

    format: ClassVar[str] = "appendfile"

    def check_name(self, part: str) -> None:
        """Raise `WrongUse` for a part: a journal has none."""
        if part != _PART:
            raise WrongUse(f"{part!r} cannot be a part: a journal of this format has none")

    @contextlib.contextmanager
    def open_parts(self, disk: Disk, root: Path, run: str, files_of: FilesOf) -> Iterator[OpenedParts]:
        """The journal, locked, and its new files. An open segment is put aside first."""
        with _PartWriter(disk, root, _lock(disk, root)) as writer:
            if writer.has_data:
                writer.begin_generation()  # neither may the batch become part of it, nor may we say that it is complete
            part = _assembled(disk, root, run, writer, files_of[_PART])
            yield (part,), lambda part: _put(disk, root, part)

    def complete_part(self, disk: Disk, root: Path, part: Part) -> None:
        """Give the files their names that do not have them yet."""
        with _lock(disk, root):
            _put(disk, root, part)

    def refuse_live_writers(self, root: Path, *, disk: Disk) -> None:
        """Raise early if publishing to the journal would fail now."""
        if disk.is_directory(root / HOME_DIRECTORY):
            journal_to_write(disk, root).lock_to_publish().release()

    def check_writable(self, schema: pa.Schema) -> None:
        from .spark_columns import check_writable

        check_writable(schema)

    def stage(self, root: Path, run: str, order: int, *, disk: Disk = REAL_DISK) -> Stage:
        return Stage(root, run, order, self, disk=disk)


# --- staging, in a task -----------------------------------------------------------------------------------------------


class _StageFile(PackedFile):
    """The records of a task."""

    def append(self, columns: Columns) -> None:
        kernel.check_columns(columns)
        row = 0
        while row < columns.count:
            data, count, row = kernel.pack(columns, row, BUFFER_BYTES)
            self.write(data, count)


class Stage(StageFiles[_StageFile]):
    """The file that one task stages: see `core/publish/staging.py`."""

    def __init__(
        self, root: Path | str, run: str, order: int, target: JournalTarget, *, disk: Disk = REAL_DISK
    ) -> None:
        super().__init__(root, run, order, _StageFile, disk)

    def append_batch(self, batch: Any) -> None:
        """Take the rows of an Arrow record batch, each a record of data: in the column `data`, or `value`."""
        from .columns import from_arrow

        for columns in from_arrow(batch):
            if any(bytes(columns.kinds or b"")[: columns.count]):
                raise WrongUse("checkpoints cannot be staged: each batch is closed by its own")
            self._file_of(_PART).append(columns)


# --- what goes into the journal ---------------------------------------------------------------------------------------


class _PartWriter(Writer):
    """The writer of a publisher, which holds the lock already and handles manifests itself."""

    def __init__(self, disk: Disk, home: Path, lock: Lock) -> None:
        self._held_lock = lock
        super().__init__(home, disk=disk)


def _lock(disk: Disk, root: Path) -> Lock:
    """The lock of a journal, which need not exist yet."""
    make_directories(disk, root / HOME_DIRECTORY)
    return journal_to_write(disk, root).lock_to_publish()


def _assembled(disk: Disk, root: Path, run: str, writer: Writer, staged: Sequence[StagedFile]) -> Part:
    """Join the staged files of tasks into the next files of the journal, synced, with names of the same run."""
    first = writer.begin_file()
    assembly = _Assembly(disk, staging_directory(root), run, writer, first)
    try:
        for one in staged:
            assembly.add(one)
        files = assembly.finish()
    finally:
        assembly.close()
    return Part(_PART, first, files)


class _Assembly:
    """Puts the files of a batch together. Its buffer knows where one ends and the next one begins."""

    def __init__(self, disk: Disk, directory: Path, run: str, writer: Writer, first: int) -> None:
        self._disk = disk
        self._directory = directory
        self._run = run
        self._token = secrets.token_hex(8)
        self._buffer = kernel.AppendBuffer(_NO_LIMIT, first, 0, MAX_FILE_BYTES, writer.checked, writer.current)
        self._files: list[StagedFile] = []
        self._file: File | None = None
        self._name = ""
        self._size = 0
        self._records = 0

    def add(self, staged: StagedFile) -> None:
        """The records of one task."""
        path = self._directory / staged.name
        file = self._disk.open(path, "read")
        try:
            count = 0
            for payloads in _payloads(file, path):
                count += len(payloads)
                for payload in payloads:
                    self._buffer.append(payload)
                self._write()
            if count != staged.records:
                raise DamagedJournal(path, 0, f"{count} records are here, {staged.records} were staged")
        finally:
            file.close()

    def finish(self) -> tuple[StagedFile, ...]:
        """Close the segment and the last file; all of them."""
        self._buffer.register()
        self._write()
        self._end_file()
        self._disk.sync_directory(self._directory)
        return tuple(self._files)

    def _write(self) -> None:
        buffer, used, cuts, _ = self._buffer.take()
        start = 0
        with memoryview(buffer) as view:
            for position in [*(cut[0] for cut in cuts), used]:
                self._write_piece(view[start:position])
                if position < used or (len(cuts) and position == cuts[-1][0]):
                    self._end_file()
                start = position

    def _write_piece(self, data: memoryview) -> None:
        if not data:
            return
        if self._file is None:
            self._name = staged_name(self._run, 0, self._token, len(self._files))
            self._file = self._disk.open(self._directory / self._name, "create")
        write_all(self._file, self._size, data)
        self._size += len(data)
        self._records += kernel.walk(data, 0, len(data))[1]

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.sync()
            finally:
                file.close()
            self._files.append(StagedFile(self._name, _PART, self._records, self._size))
            self._size = self._records = 0

    def close(self) -> None:
        """Close the open file after a failure."""
        if self._file is not None:
            self._file.close()


def _payloads(file: File, path: Path) -> Iterator[list[bytes]]:
    """The records of a staged file."""
    position, size = 0, file.size()
    while position < size:
        data = file.read_at(position, 2 * MAX_RECORD_BYTES)
        stop, count, ending, _ = kernel.walk(data, 0, len(data))
        if ending == codec.MALFORMED or not count:
            raise DamagedJournal(path, position + stop, codec.explain(data, stop, len(data)))
        yield kernel.payloads(data, 0, stop, count)
        position += stop


def _put(disk: Disk, root: Path, part: Part) -> None:
    """Give the files of a batch their names, those that do not have them yet."""
    for file_id, staged in enumerate(part.files, part.start):
        path = root / file_name(file_id)
        if not has_name(disk, root, staged, [path]):
            if disk.exists(path):
                raise DamagedJournal(path, 0, "a committed batch is to get this name, and something else has it")
            give_name(disk, root, staged, path)
    disk.sync_directory(root)  # the killed publisher may not have synced the names
