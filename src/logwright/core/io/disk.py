"""Disk: the one door to the file system.

Every file operation of the library goes through a `Disk` and the `File`s that it opens, so that a test can put another
one in its place: one that fails the k-th call, tears a write, or forgets at a crash whatever was not synced.

What one may rely on, and a replacement must keep:
- `File.write` may write less than it was given, as `write(2)` may;
- `File.sync` makes the contents and the length of the file durable, not its name;
- `Disk.sync_directory` makes the names in a directory durable, not the contents of its files;
- no call follows a symbolic link in the last part of a path: a link in a journal is an error, never a way out of it;
- whatever the system refuses comes as `StorageFailed` (or `NotFound`, `Locked`), with the path in it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from ...errors import Locked, LogwrightError, NotFound, StorageFailed
from .watch import Watch, watch_directory

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock
    fcntl = None  # type: ignore[assignment]

Buffer: TypeAlias = bytes | bytearray | memoryview
OpenMode: TypeAlias = Literal["read", "update", "create"]
"""`read` an existing file; `update` one, creating it when it is missing; `create` one that must not exist."""

_ALWAYS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Follow no link, and do not wait on a pipe that somebody has put in place of a file."""
_FLAGS: dict[str, int] = {
    "read": os.O_RDONLY | _ALWAYS,
    "update": os.O_RDWR | os.O_CREAT | _ALWAYS,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL | _ALWAYS,
}
_PIECE_BYTES = 1 << 20
_NO_RESERVE = 0x4000 if sys.platform == "linux" and os.uname().machine in ("x86_64", "aarch64") else 0
"""MAP_NORESERVE: a private mapping may be larger than the memory that there is, for little of it will be stored to."""
_ZEROS = memoryview(bytes(_PIECE_BYTES))
"""Made once: nobody writes to them, so they cost no memory, and to make them each time would cost more than writing."""
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_NO_SUCH_NAME = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Answers to the question whether a name is there. Any other error is no answer, and must not pass for "no"."""


class File(Protocol):
    """An open file. Positions are explicit: there is no cursor to get wrong."""

    path: Path

    def read_at(self, position: int, size: int) -> bytes:
        """The bytes at `position`, fewer than `size` only at the end of the file."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; how many bytes there were, less than its length only at the end."""

    def write_at(self, position: int, data: Buffer) -> int:
        """Write some of `data` at `position`; how many bytes were written, at least one."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def identity(self) -> tuple[int, int]:
        """Device and inode: two names with the same identity are the same file."""

    def has_name(self) -> bool:
        """Whether the file still has a name: not if it was removed, or another one was renamed over it."""

    def sync(self) -> None:
        """Make contents and length durable."""

    def lock(self) -> None:
        """Take an exclusive lock without waiting, or raise `Locked`; closing the file gives it back.

        A child that was forked meanwhile neither keeps it nor gives it back.
        """

    def close(self) -> None: ...


@runtime_checkable
class Mappable(Protocol):
    """A file that can be memory as well: what is stored there is with the system at once, as if it had been written."""

    def map(self, size: int, *, private: bool = False) -> mmap.mmap:
        """The first `size` bytes, which the file must have. They stay mapped for as long as anybody holds them.

        What is stored in a `private` mapping is seen there only: the file stays as it is.
        """

    def allocate(self, size: int) -> None:
        """Reserve space for the first `size` bytes, which the file has then; those that it had stay as they are.

        What is stored in a mapping needs it: there is nobody to be told that the disk is full.
        """


@runtime_checkable
class Sparse(Protocol):
    """A file that knows where nothing was ever written to it: there it has zeros, and takes no space."""

    def data_from(self, position: int) -> int:
        """The first place from a position on that may have been written to; the size of the file if there is none."""


class Disk(Protocol):
    """The file operations that the library uses, and no others."""

    def open(self, path: Path, mode: OpenMode) -> File: ...

    def list_directory(self, path: Path) -> list[str]:
        """The names in a directory, sorted; `NotFound` when there is none."""

    def is_directory(self, path: Path) -> bool: ...

    def is_link(self, path: Path) -> bool:
        """Whether the name stands for something elsewhere. False when there is no such name."""

    def exists(self, path: Path) -> bool:
        """True also for a link that leads nowhere: the name is taken."""

    def file_size(self, path: Path) -> int: ...

    def identity(self, path: Path) -> tuple[int, int] | None:
        """Device and inode of what the name stands for now, None when it is gone."""

    def make_directory(self, path: Path) -> None:
        """Create one directory; no error when it is there, unless as a link to one elsewhere.

        Its name is durable after a sync of the parent.
        """

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it."""

    def remove(self, path: Path) -> None:
        """Remove a file; no error when it is gone already."""

    def remove_directory(self, path: Path) -> None:
        """Remove a directory that is empty; no error when it is gone already."""

    def sync_directory(self, path: Path) -> None: ...

    def free_bytes(self, path: Path) -> int: ...

    def watch(self, path: Path) -> Watch:
        """Something that wakes up when a file below this directory changes."""


@contextlib.contextmanager
def translated(action: str, path: Path) -> Iterator[None]:
    """Turn the system's errors into ours, with what was tried and where."""
    try:
        yield
    except LogwrightError:
        raise  # some of ours are also an OSError, and say already what was tried and where
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file or directory") from None
    except OSError as error:
        raise StorageFailed(action, path, error) from error


class RealFile:
    """A file of the operating system. `descriptor` is the system's number for it, -1 once it is closed."""

    __slots__ = ("_locked_by", "descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self._locked_by = 0
        """The process that has taken the lock, 0 for none."""

    def read_at(self, position: int, size: int) -> bytes:
        with translated("read", self.path):
            data = os.pread(self.descriptor, size, position)
            if len(data) in (0, size):
                return data
            parts = [data]
            have = len(data)
            while have < size and (more := os.pread(self.descriptor, size - have, position + have)):
                parts.append(more)
                have += len(more)
            return b"".join(parts)

    def read_into(self, position: int, buffer: memoryview) -> int:
        with translated("read", self.path):
            have = 0
            while have < len(buffer):
                count = os.preadv(self.descriptor, [buffer[have:]], position + have)
                if count == 0:
                    break
                have += count
            return have

    def data_from(self, position: int) -> int:
        with translated("read", self.path):
            try:
                return os.lseek(self.descriptor, position, os.SEEK_DATA)
            except (AttributeError, OSError) as error:
                if isinstance(error, OSError) and error.errno == errno.ENXIO:
                    return max(position, os.fstat(self.descriptor).st_size)
                if isinstance(error, OSError) and error.errno not in _NOT_SUPPORTED:
                    raise
                return position  # a system or a file system that does not tell

    def write_at(self, position: int, data: Buffer) -> int:
        try:
            return os.pwrite(self.descriptor, data, position)
        except OSError as error:
            raise StorageFailed("write", self.path, error) from error

    def map(self, size: int, *, private: bool = False) -> mmap.mmap:
        flags = mmap.MAP_PRIVATE | _NO_RESERVE if private else mmap.MAP_SHARED
        with translated("map", self.path):
            return mmap.mmap(self.descriptor, size, flags)

    def allocate(self, size: int) -> None:
        with translated("allocate", self.path):
            try:
                os.posix_fallocate(self.descriptor, 0, size)
            except (AttributeError, OSError) as error:
                if isinstance(error, OSError) and error.errno not in _NOT_SUPPORTED:
                    raise
                # macOS, and some file systems: only writing reserves anything
                for position in range(os.fstat(self.descriptor).st_size, size, 1 << 20):
                    os.pwrite(self.descriptor, bytes(min(1 << 20, size - position)), position)

    def truncate(self, size: int) -> None:
        with translated("truncate", self.path):
            os.ftruncate(self.descriptor, size)

    def size(self) -> int:
        with translated("stat", self.path):
            return os.fstat(self.descriptor).st_size

    def identity(self) -> tuple[int, int]:
        with translated("stat", self.path):
            status = os.fstat(self.descriptor)
            return status.st_dev, status.st_ino

    def has_name(self) -> bool:
        try:
            return os.fstat(self.descriptor).st_nlink > 0
        except OSError as error:
            raise StorageFailed("stat", self.path, error) from error

    def sync(self) -> None:
        try:
            _sync_data(self.descriptor)
        except OSError as error:
            raise StorageFailed("sync", self.path, error) from error

    def lock(self) -> None:
        if fcntl is None:  # pragma: no cover - Windows
            raise StorageFailed("lock", self.path, OSError(errno.ENOSYS, "this system has no flock"))
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(f"{self.path} is locked by another process or another open journal") from None
        except OSError as error:
            raise StorageFailed("lock", self.path, error) from error
        self._locked_by = os.getpid()

    def close(self) -> None:
        if self.descriptor >= 0:
            self._unlock(self.descriptor)
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)  # right after the line above: nothing can be raised in between
            except OSError as error:
                raise StorageFailed("close", self.path, error) from error

    def _unlock(self, descriptor: int) -> None:
        """Give the lock back: closing alone would leave it with a child that has the file open as well."""
        if self._locked_by == os.getpid():
            with contextlib.suppress(OSError):  # then it goes with the last one who closes the file
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def __del__(self) -> None:
        # A file, and the lock on it, must not outlive what forgot to close it.
        with contextlib.suppress(Exception):
            self.close()


def _sync_data(descriptor: int) -> None:
    """Sync contents and length, past the drive's own cache where the system needs to be told so."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:  # pragma: no cover - macOS: only F_FULLFSYNC reaches the medium
        full_sync = getattr(fcntl, "F_FULLFSYNC", None)
        if full_sync is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, full_sync)


def _link_refused(action: str, path: Path, number: int) -> StorageFailed:
    return StorageFailed(action, path, OSError(number, "is a symbolic link, and links in a journal are not followed"))


class RealDisk:
    """The file system of this machine."""

    def open(self, path: Path, mode: OpenMode) -> RealFile:
        with translated("open", path):
            try:
                descriptor = os.open(path, _FLAGS[mode], 0o644)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise _link_refused("open", path, error.errno) from None
                raise
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise StorageFailed("open", path, OSError(errno.EINVAL, "is not a regular file"))
            return RealFile(path, descriptor)

    def list_directory(self, path: Path) -> list[str]:
        with translated("list", path):
            return sorted(os.listdir(path))

    def is_directory(self, path: Path) -> bool:
        with translated("stat", path):
            try:
                return stat.S_ISDIR(os.stat(path).st_mode)
            except OSError as error:
                if error.errno in _NO_SUCH_NAME:
                    return False
                raise

    def is_link(self, path: Path) -> bool:
        with translated("stat", path):
            try:
                return stat.S_ISLNK(os.stat(path, follow_symlinks=False).st_mode)
            except OSError as error:
                if error.errno in _NO_SUCH_NAME:
                    return False
                raise

    def exists(self, path: Path) -> bool:
        with translated("stat", path):
            try:
                os.stat(path, follow_symlinks=False)
            except OSError as error:
                if error.errno in _NO_SUCH_NAME:
                    return False
                raise
            return True

    def file_size(self, path: Path) -> int:
        with translated("stat", path):
            return os.stat(path, follow_symlinks=False).st_size

    def identity(self, path: Path) -> tuple[int, int] | None:
        try:
            status = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed("stat", path, error) from error
        return status.st_dev, status.st_ino

    def make_directory(self, path: Path) -> None:
        with translated("create directory", path):
            try:
                os.mkdir(path)
            except FileExistsError:
                mode = os.stat(path, follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode):
                    raise _link_refused("create directory", path, errno.EEXIST) from None
                if not stat.S_ISDIR(mode):
                    raise

    def rename(self, source: Path, target: Path) -> None:
        with translated("rename", source):
            os.replace(source, target)

    def remove(self, path: Path) -> None:
        with translated("remove", path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        with translated("remove directory", path), contextlib.suppress(FileNotFoundError):
            os.rmdir(path)

    def sync_directory(self, path: Path) -> None:
        with translated("sync directory", path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def free_bytes(self, path: Path) -> int:
        with translated("stat", path):
            status = os.statvfs(path)
            return status.f_bavail * status.f_frsize

    def watch(self, path: Path) -> Watch:
        return watch_directory(path)


REAL_DISK = RealDisk()


def behind_hole(file: File, position: int, end: int) -> int:
    """Where to read on from a position, at most from `end`: up to there the file has zeros that nobody has written."""
    return min(end, file.data_from(position)) if isinstance(file, Sparse) else position


def write_all(file: File, position: int, data: Buffer) -> None:
    """Write the whole of `data` at `position`, going on after short writes."""
    count = file.write_at(position, data) if data else 0
    if count == len(data):  # as nearly always
        return
    view = memoryview(data)[count:]
    while view:
        position += count
        count = file.write_at(position, view)
        view = view[count:]


def write_zeros(file: File, start: int, end: int) -> None:
    """Fill a range of a file with zeros, by writing them: space that was only promised costs time later."""
    for at in range(start, end, _PIECE_BYTES):
        write_all(file, at, _ZEROS[: end - at])


def replace_file(disk: Disk, path: Path, data: Buffer, temporary: Path) -> None:
    """Put `data` in place of `path` so that a crash leaves the old contents or the new ones, whole.

    The new bytes are synced before they get the name, and the name is synced before this returns.
    """
    disk.remove(temporary)
    file = disk.open(temporary, "create")
    try:
        write_all(file, 0, data)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def remove_tree(disk: Disk, path: Path) -> None:
    """Remove a directory and all that is in it; no error when it is gone already. A link in it goes, not its target."""
    if disk.is_link(path) or not disk.is_directory(path):
        disk.remove(path)
        return
    for name in disk.list_directory(path):
        remove_tree(disk, path / name)
    disk.remove_directory(path)


def make_directories(disk: Disk, path: Path) -> None:
    """Create a directory and its missing parents, each name synced into the directory above it.

    The name of the last one that is there already is synced too: whoever created it may have been killed before that.
    The directory itself must not be a link: what is put there would leave the journal.
    """
    missing = []
    current = path
    while not disk.is_directory(current):
        missing.append(current)
        if current.parent == current:
            break
        current = current.parent
    try:
        disk.sync_directory(current.parent)
    except StorageFailed as error:
        if error.errno not in (errno.EACCES, errno.EPERM):  # where we may not even look, we have created nothing
            raise
    if not missing:
        disk.make_directory(path)
    for directory in reversed(missing):
        disk.make_directory(directory)
        disk.sync_directory(directory.parent)
