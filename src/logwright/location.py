"""The location of a journal: a path of this machine, or a URI that `pyarrow.fs` can read (s3://, gs://, hdfs://, …).

Journals are read by URI, but written only to POSIX file systems. A remote store becomes a `Disk` that can only read, so
that the readers of all formats work on it unchanged. Files are read ahead in large pieces: a request to an object store
takes as long for a mebibyte as for a byte.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyarrow import fs

from .core.io.disk import REAL_DISK, Buffer, Disk, File, OpenMode, RealDisk
from .core.io.watch import PollingWatch, Watch
from .errors import NotFound, StorageFailed, WrongUse

READ_AHEAD_BYTES: Final = 4 << 20
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_SECRETS: Final = re.compile(r"(?<=://)[^/]*@|\?.*$")
"""The secret parts of a URI: user, password and options."""


def locate(location: str | Path) -> tuple[Disk, Path]:
    """The disk, and the path on it, of a path or a URI."""
    text = str(location)
    if text.startswith("file://"):
        return REAL_DISK, Path(fs.FileSystem.from_uri(text)[1])
    if not _SCHEME.match(text):
        return REAL_DISK, Path(location)
    try:
        file_system, path = fs.FileSystem.from_uri(text)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        shown = without_secrets(text)
        raise WrongUse(f"{shown}: {str(error).replace(text, shown)}") from None
    return RemoteDisk(file_system, text[: len(text) - len(text.split("?")[0].split("://", 1)[1])]), Path(path)


def joined(location: str, name: str) -> str:
    """The location of a name in a directory. The options of a URI stay at its end."""
    place, mark, options = location.partition("?") if _SCHEME.match(location) else (location, "", "")
    return f"{place.rstrip('/')}/{name}{mark}{options}"


class RemoteFile:
    """A file of a remote store, opened for reading."""

    def __init__(self, path: Path, source: Any) -> None:
        self.path = path
        self._source = source
        self._ahead = b""
        self._ahead_at = 0

    def read_at(self, position: int, size: int) -> bytes:
        start = position - self._ahead_at
        if not 0 <= start <= start + size <= len(self._ahead):
            try:
                if position > self._source.size():  # which is an error in S3, and none in a local file
                    return b""
                self._ahead = self._source.read_at(max(size, READ_AHEAD_BYTES), position)
            except OSError as error:
                raise StorageFailed("read", self.path, error) from error
            self._ahead_at, start = position, 0
        return self._ahead[start : start + size]

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def size(self) -> int:
        size: int = self._source.size()
        return size

    def identity(self) -> tuple[int, int]:
        return 0, hash(str(self.path))

    def has_name(self) -> bool:
        return True

    def close(self) -> None:
        self._source.close()

    def _refuse(self, action: str) -> NoReturn:
        raise StorageFailed(action, self.path, OSError(errno.EROFS, "remote stores are read-only"))

    def write_at(self, position: int, data: Buffer) -> int:
        self._refuse("write")

    def truncate(self, size: int) -> None:
        self._refuse("truncate")

    def sync(self) -> None:
        self._refuse("sync")

    def lock(self) -> None:
        self._refuse("lock")


class RemoteDisk:
    """A file system of `pyarrow.fs` as a `Disk` for reading. It can be pickled and sent to another machine."""

    def __init__(self, file_system: fs.FileSystem, origin: str) -> None:
        self.file_system = file_system
        self.origin = origin

    def _info(self, path: Path) -> fs.FileInfo:
        try:
            return self.file_system.get_file_info(path.as_posix())
        except OSError as error:
            raise StorageFailed("stat", path, error) from error

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode != "read":
            self._refuse("open", path)
        info = self._info(path)
        if info.type != fs.FileType.File:
            raise NotFound(f"{self.origin}{path}: no such file")
        try:
            return RemoteFile(path, self.file_system.open_input_file(path.as_posix()))
        except OSError as error:
            raise StorageFailed("open", path, error) from error

    def list_directory(self, path: Path) -> list[str]:
        try:
            found = self.file_system.get_file_info(fs.FileSelector(path.as_posix()))
        except FileNotFoundError:
            raise NotFound(f"{self.origin}{path}: no such directory") from None
        except OSError as error:
            raise StorageFailed("list", path, error) from error
        return sorted(info.base_name for info in found)

    def is_directory(self, path: Path) -> bool:
        return bool(self._info(path).type == fs.FileType.Directory)

    def is_link(self, path: Path) -> bool:
        return False

    def exists(self, path: Path) -> bool:
        return bool(self._info(path).type != fs.FileType.NotFound)

    def file_size(self, path: Path) -> int:
        info = self._info(path)
        if info.type != fs.FileType.File:
            raise NotFound(f"{self.origin}{path}: no such file")
        return int(info.size)

    def identity(self, path: Path) -> tuple[int, int] | None:
        return (0, hash(str(path))) if self.exists(path) else None

    def watch(self, path: Path) -> Watch:
        return PollingWatch()

    def free_bytes(self, path: Path) -> int:
        return 0

    def _refuse(self, action: str, path: Path) -> NoReturn:
        raise StorageFailed(action, path, OSError(errno.EROFS, "remote stores are read-only"))

    def make_directory(self, path: Path) -> None:
        self._refuse("create directory", path)

    def rename(self, source: Path, target: Path) -> None:
        self._refuse("rename", source)

    def remove(self, path: Path) -> None:
        self._refuse("remove", path)

    def remove_directory(self, path: Path) -> None:
        self._refuse("remove directory", path)

    def sync_directory(self, path: Path) -> None:
        self._refuse("sync directory", path)


def is_local(disk: Disk) -> bool:
    """Whether a disk is the file system of this machine."""
    return isinstance(disk, RealDisk)


def without_secrets(location: str) -> str:
    """A path or URI without user, password and options."""
    return _SECRETS.sub("", location) if "://" in location else location
