"""Disk: the interface to the file system.

Every file operation of the library goes through a `Disk` and the `File`s that it opens. Tests replace it by a disk that
fails the k-th call, tears a write, or forgets at a crash what was not synced.

Callers rely on these rules, and a replacement must keep them:
- `File.write` may write less than it was given, as `write(2)` may;
- `File.sync` makes the contents and the length of the file durable, not its name;
- `Disk.sync_directory` makes the names in a directory durable, not the contents of its files;
- no call follows a symbolic link in the last part of a path: a link in a journal is an error;
- errors of the system are raised as `StorageFailed` (or `NotFound`, `Locked`), with the path in the message.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal, NoReturn, Protocol, TypeAlias, runtime_checkable

from ...errors import Locked, LogwrightError, NotFound, StorageFailed, WrongUse
from .watch import Watch, watch_directory

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock
    fcntl = None  # type: ignore[assignment]

Buffer: TypeAlias = bytes | bytearray | memoryview
OpenMode: TypeAlias = Literal["read", "update", "create"]
"""`read` an existing file; `update` one, creating it when it is missing; `create` one that must not exist."""

_ALWAYS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Follow no link, and do not block on a pipe in place of a file."""
_FLAGS: dict[str, int] = {
    "read": os.O_RDONLY | _ALWAYS,
    "update": os.O_RDWR | os.O_CREAT | _ALWAYS,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL | _ALWAYS,
}
_PIECE_BYTES = 1 << 20
_NO_RESERVE = 0x4000 if sys.platform == "linux" and os.uname().machine in ("x86_64", "aarch64") else 0
"""MAP_NORESERVE: a private mapping may be larger than memory, because little of it is written."""
_ZEROS = memoryview(bytes(_PIECE_BYTES))
"""Allocated once: pages that are never written take no memory, and allocating them costs more than writing a file."""
_HELD_LOCK = re.compile(r"^\d+: \w+ +\w+ +\w+ +(\d+) +([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)
"""A lock in `/proc/locks`: the process that holds it, and the file. A process that waits for one has `->` there."""
_OTHERS = {None: "another process or another open journal", "this process": "another open journal"}
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_NO_SUCH_NAME = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors that mean that a name does not exist. Any other error must be raised."""


class File(Protocol):
    """An open file. Positions are explicit: there is no current position."""

    path: Path

    def read_at(self, position: int, size: int) -> bytes:
        """The bytes at `position`, fewer than `size` only at the end of the file."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`. Returns the number of bytes read, less than its length only at the end."""

    def write_at(self, position: int, data: Buffer) -> int:
        """Write some of `data` at `position`. Returns the number of bytes written, at least one."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def identity(self) -> tuple[int, int]:
        """Device and inode: two names with the same identity are the same file."""

    def has_name(self) -> bool:
        """Whether the file still has a name: not if it was removed, or another one was renamed over it."""

    def sync(self) -> None:
        """Make contents and length durable."""

    def lock(self) -> None:
        """Take an exclusive lock without waiting, or raise `Locked`. Closing the file releases it.

        A child process forked in between neither keeps nor releases it.
        """

    def close(self) -> None: ...


class FileView:
    """The base of a `File` that reads another file, changed or checked. It cannot be written to."""

    def __init__(self, file: File) -> None:
        self.path: Path = file.path
        self.file = file

    def _refuse(self) -> NoReturn:
        raise WrongUse(f"{self.path}: this view of the file is for reading only")

    def write_at(self, position: int, data: Buffer) -> int:
        self._refuse()

    def truncate(self, size: int) -> None:
        self._refuse()

    def size(self) -> int:
        return self.file.size()

    def identity(self) -> tuple[int, int]:
        return self.file.identity()

    def has_name(self) -> bool:
        return self.file.has_name()

    def sync(self) -> None:
        """Nothing was written."""

    def lock(self) -> None:
        self._refuse()

    def close(self) -> None:
        self.file.close()


@runtime_checkable
class Mappable(Protocol):
    """A file that can be mapped into memory. A store to the mapping has the effect of a write."""

    def map(self, size: int, *, private: bool = False) -> mmap.mmap:
        """The first `size` bytes, which the file must have. They stay mapped while the mapping is referenced.

        Stores to a `private` mapping do not change the file.
        """

    def allocate(self, size: int) -> None:
        """Reserve space for the first `size` bytes, and extend the file to this size. Its contents stay.

        Do this before storing to a mapping: a store cannot report that the disk is full.
        """


@runtime_checkable
class Sparse(Protocol):
    """A file that knows its holes: ranges that were never written, read as zeros, and take no space."""

    def data_from(self, position: int) -> int:
        """The first position from here on that may hold data; the size of the file if there is none."""


class Disk(Protocol):
    """The file operations that the library uses, and no others."""

    def open(self, path: Path, mode: OpenMode) -> File: ...

    def list_directory(self, path: Path) -> list[str]:
        """The names in a directory, sorted; `NotFound` when there is none."""

    def is_directory(self, path: Path) -> bool: ...

    def is_link(self, path: Path) -> bool:
        """Whether the name is a symbolic link. False if it does not exist."""

    def exists(self, path: Path) -> bool:
        """Whether the name exists; also True for a broken link."""

    def file_size(self, path: Path) -> int: ...

    def identity(self, path: Path) -> tuple[int, int] | None:
        """Device and inode of the file with this name; None if it does not exist."""

    def make_directory(self, path: Path) -> None:
        """Create one directory. An existing directory is no error, but a link to one is.

        Its name is durable after a sync of the parent.
        """

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing the target."""

    def remove(self, path: Path) -> None:
        """Remove a file; a missing file is no error."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; a missing directory is no error."""

    def sync_directory(self, path: Path) -> None: ...

    def free_bytes(self, path: Path) -> int: ...

    def watch(self, path: Path) -> Watch:
        """A watch that wakes up when a file in this directory changes."""


@contextlib.contextmanager
def translated(action: str, path: Path) -> Iterator[None]:
    """Convert errors of the system to ours, with the action and the path."""
    try:
        yield
    except LogwrightError:
        raise  # some of ours are an OSError too, and name the action and the path already
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file or directory") from None
    except OSError as error:
        raise StorageFailed(action, path, error) from error


class RealFile:
    """A file of the operating system. `descriptor` is -1 once it is closed."""

    __slots__ = ("_locked_by", "descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self._locked_by = 0
        """The id of the process that took the lock, 0 for none."""

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
                return position  # this system or file system does not know

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
            holder = _lock_holder(self.descriptor)
            other = _OTHERS.get(holder, "another program")
            raise Locked(f"{self.path} is locked by {other}", holder) from None
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
        """Release the lock: closing alone would leave it to a child process that has the file open too."""
        if self._locked_by == os.getpid():
            with contextlib.suppress(OSError):  # it is released when the last process closes the file
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def __del__(self) -> None:
        # A file and its lock must not outlive the object that forgot to close it.
        with contextlib.suppress(Exception):
            self.close()


def _sync_data(descriptor: int) -> None:
    """Sync contents and length, including the cache of the drive."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:  # pragma: no cover - macOS: only F_FULLFSYNC reaches the medium
        full_sync = getattr(fcntl, "F_FULLFSYNC", None)
        if full_sync is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, full_sync)


def _lock_holder(descriptor: int) -> str | None:
    """The process that holds the lock of an open file, for people; None where the system does not say."""
    with contextlib.suppress(OSError):
        file = os.fstat(descriptor)
        locks = Path("/proc/locks").read_text(errors="replace")
        for pid, major, minor, inode in _HELD_LOCK.findall(locks):
            if int(inode) != file.st_ino:
                continue
            # Some file systems, such as btrfs, have another device number there than in the status of a file.
            if os.makedev(int(major, 16), int(minor, 16)) == file.st_dev or _has_open(int(pid), descriptor):
                return "this process" if int(pid) == os.getpid() else f"process {pid}, {_command_name(pid)}"
    return None


def _has_open(pid: int, descriptor: int) -> bool:
    """Whether a process has the file of a descriptor open as well, by its path; OSError if that cannot be seen.

    The path is read from the system's table of open files: no file system is asked, which could block.
    """
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    for other in map(int, os.listdir(f"/proc/{pid}/fd")):
        with contextlib.suppress(FileNotFoundError):  # it is closed by now
            if (pid, other) != (os.getpid(), descriptor) and os.readlink(f"/proc/{pid}/fd/{other}") == path:
                return True
    return False


def _command_name(pid: str) -> str:
    """The name of the command that a process runs; OSError if there is no such process."""
    name = Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    return "".join(letter if letter.isprintable() else "?" for letter in name)  # a process may call itself anything


def _link_refused(action: str, path: Path, number: int) -> StorageFailed:
    return StorageFailed(action, path, OSError(number, "is a symbolic link, and links in a journal are not followed"))


def directory_stamp(path: Path) -> tuple[int, int, int, int]:
    """What changes when a name in a directory is added, removed or replaced: first the time of the last change."""
    with translated("list", path):
        found = os.stat(path)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino


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


def skip_hole(file: File, position: int, end: int) -> int:
    """The end of the hole at a position, at most `end`; the position itself if there is none."""
    return min(end, file.data_from(position)) if isinstance(file, Sparse) else position


def write_all(file: File, position: int, data: Buffer) -> None:
    """Write all of `data` at `position`, continuing after short writes."""
    count = file.write_at(position, data) if data else 0
    if count == len(data):  # the usual case
        return
    view = memoryview(data)[count:]
    while view:
        position += count
        count = file.write_at(position, view)
        view = view[count:]


def write_zeros(file: File, start: int, end: int) -> None:
    """Fill a range of a file by writing zeros: writing to space that was only reserved is slower later."""
    for at in range(start, end, _PIECE_BYTES):
        write_all(file, at, _ZEROS[: end - at])


def replace_file(disk: Disk, path: Path, data: Buffer, temporary: Path) -> None:
    """Replace the contents of `path` by `data`: a crash leaves either the old contents or the new ones.

    The new file is synced before it is renamed, and the name is synced before this returns.
    """
    disk.remove(temporary)
    with closing(disk.open(temporary, "create")) as file:
        write_all(file, 0, data)
        file.sync()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def remove_tree(disk: Disk, path: Path) -> None:
    """Remove a directory and all that is in it. A missing directory is no error. Links are removed, not followed."""
    if disk.is_link(path) or not disk.is_directory(path):
        disk.remove(path)
        return
    for name in disk.list_directory(path):
        remove_tree(disk, path / name)
    disk.remove_directory(path)


def make_directories(disk: Disk, path: Path) -> None:
    """Create a directory and its missing parents, and sync each name.

    The name of the innermost existing directory is synced too: the process that created it may have been killed before
    its sync. The directory itself must not be a link.
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
        if error.errno not in (errno.EACCES, errno.EPERM):  # a directory that we cannot read was not created by us
            raise
    if not missing:
        disk.make_directory(path)
    for directory in reversed(missing):
        disk.make_directory(directory)
        disk.sync_directory(directory.parent)
