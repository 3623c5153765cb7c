"""File access for `pyiceberg` on a local disk that makes what it writes durable before it closes it.

The catalog is a database that syncs its commits. Without this a power cut could leave a commit to a table whose
metadata files are empty.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from ...core.io.disk import REAL_DISK

NAME: Final = f"{__name__}.SyncedFileIO"
"""What the property `py-io-impl` of a catalog must be."""


class SyncedFileIO(PyArrowFileIO):
    """Reads as pyarrow does, and syncs each new file and its name."""

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        return _SyncedFile(file.location, file._path, file._filesystem)


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        return _SyncedStream(super().create(overwrite), Path(self._path))


class _SyncedStream:
    def __init__(self, stream: OutputStream, path: Path) -> None:
        self._stream = stream
        self._path = path
        self.closed = False

    def write(self, b: bytes) -> int:
        return self._stream.write(b)

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        """Closing writes everything."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._stream.close()
        file = REAL_DISK.open(self._path, "read")
        try:
            file.sync()
        finally:
            file.close()
        REAL_DISK.sync_directory(self._path.parent)

    def __enter__(self) -> _SyncedStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
