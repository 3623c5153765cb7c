"""SimulatedDisk: a file system in memory that remembers what was synced, and can crash.

It keeps the promises of `logwright.core.io.disk`, and no others. Syncing a file makes its contents and length durable,
not its name. Syncing a directory makes the names in it durable, not the contents of the files. Every change is recorded
in a list of operations. `crash_states` (see `crashes.py`) derives from it the disks that a power cut could leave, and
`process_kills` those that the death of the process could leave.

    disk = SimulatedDisk()
    disk.make_directory(Path("/journal"))
    disk.settle()                            everything so far is durable and cannot be lost
    ... disk.mark("5 acknowledged") ...      the test's own remarks between the operations
    for after in disk.crash_states():
        recover(after); assert after.marks ...

Disks share the contents of files until one of them writes, so a copy is cheap. A lock belongs to an open file, as with
flock, and is gone after a crash. Paths begin at the root; links do not exist.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from logwright.core.io.disk import Buffer, OpenMode
from logwright.errors import Locked, NotFound, StorageFailed

if TYPE_CHECKING:
    from tests.support.crashes import Crash

ROOT = 1
"""The inode of the root directory."""
DEVICE = 77
UNLIMITED_BYTES = 1 << 40


# --- what is remembered of each change ------------------------------------------------------------------------------


class Write(NamedTuple):
    path: str
    inode: int
    position: int
    data: bytes

    def __str__(self) -> str:
        return f"write {len(self.data)} bytes at {self.position} of {self.path}"


class Truncate(NamedTuple):
    path: str
    inode: int
    size: int

    def __str__(self) -> str:
        return f"truncate {self.path} to {self.size}"


class Link(NamedTuple):
    """A new name in a directory, for a new file or a new directory."""

    path: str
    directory: int
    name: str
    inode: int
    is_directory: bool = False

    def __str__(self) -> str:
        return f"create {'directory ' if self.is_directory else ''}{self.path}"


class Unlink(NamedTuple):
    path: str
    directory: int
    name: str
    inode: int

    def __str__(self) -> str:
        return f"remove {self.path}"


class Rename(NamedTuple):
    path: str
    target_path: str
    directory: int
    name: str
    target_directory: int
    target_name: str
    inode: int

    def __str__(self) -> str:
        return f"rename {self.path} to {self.target_path}"


class Sync(NamedTuple):
    path: str
    inode: int

    def __str__(self) -> str:
        return f"sync {self.path}"


class SyncDirectory(NamedTuple):
    path: str
    directory: int

    def __str__(self) -> str:
        return f"sync directory {self.path}"


class Mark(NamedTuple):
    """A remark of the test; it changes nothing on the disk."""

    label: Any

    def __str__(self) -> str:
        return f"mark {self.label!r}"


Operation = Write | Truncate | Link | Unlink | Rename | Sync | SyncDirectory | Mark
Contents = dict[int, bytes]
Directories = dict[int, dict[str, int]]


def apply_to_file(content: bytearray, operation: Write | Truncate) -> None:
    """Change the contents of a file as the operation did. Bytes that were never written read as zeros."""
    if isinstance(operation, Truncate):
        missing = operation.size - len(content)
        if missing < 0:
            del content[operation.size :]
        else:
            content.extend(bytes(missing))
        return
    if operation.position > len(content):
        content.extend(bytes(operation.position - len(content)))
    content[operation.position : operation.position + len(operation.data)] = operation.data


# --- the disk -------------------------------------------------------------------------------------------------------


class SimulatedDisk:
    """A `Disk` in memory.

    `operations` are the changes since everything was durable; the first `inherited` of them were made by a process that
    has been killed. `marks` are the remarks so far. `crash` is the crash that left this disk, if any. `open_files` is
    the number of open files.
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self._begin({}, {ROOT: {}}, [], {}, {ROOT: {}}, ROOT + 1)
        self.capacity_bytes = capacity_bytes

    def _begin(
        self,
        durable_files: Contents,
        durable_directories: Directories,
        operations: list[Operation],
        files: Mapping[int, bytes | bytearray],
        directories: Directories,
        next_inode: int,
    ) -> None:
        """Start with durable contents, the operations since, and their result. The arguments are not changed."""
        self.durable_files = durable_files
        self.durable_directories = durable_directories
        self.operations = operations
        self.inherited = len(operations)
        self.crash: Crash | None = None
        self.marks: list[Any] = []
        self.capacity_bytes = None
        self.open_files = 0
        self.next_inode = next_inode
        self._files: dict[int, bytes | bytearray] = dict(files)
        self._directories = dict(directories)
        self._own_directories: set[int] = set()
        self._locks: dict[int, SimulatedFile] = {}
        self._mutex = threading.Lock()

    @classmethod
    def restore(
        cls,
        durable_files: Contents,
        durable_directories: Directories,
        next_inode: int,
        operations: list[Operation] | None = None,
        files: Contents | None = None,
        directories: Directories | None = None,
    ) -> SimulatedDisk:
        """A disk with these contents, which are shared and never changed."""
        disk = cls.__new__(cls)
        disk._begin(
            durable_files,
            durable_directories,
            [] if operations is None else operations,
            durable_files if files is None else files,
            durable_directories if directories is None else directories,
            next_inode,
        )
        return disk

    # operations of a test on the whole disk

    def mark(self, label: Any) -> None:
        """Record that something has happened by now, such as an acknowledgement; crash states have it in `marks`."""
        self.operations.append(Mark(label))
        self.marks.append(label)

    def settle(self) -> None:
        """Make everything durable, and forget the operations and marks so far."""
        self.durable_files = {inode: bytes(content) for inode, content in self._files.items()}
        self._files = dict(self.durable_files)
        self.durable_directories = dict(self._directories)
        self._own_directories.clear()
        self.operations = []
        self.inherited = 0
        self.marks = []

    def copy(self) -> SimulatedDisk:
        """Another disk with the same contents, all of it durable, nothing open or locked."""
        files = {inode: bytes(content) for inode, content in self._files.items()}
        directories = {inode: dict(names) for inode, names in self._directories.items()}
        disk = SimulatedDisk.restore(files, directories, self.next_inode)
        disk.capacity_bytes = self.capacity_bytes
        return disk

    def fingerprint(self) -> int:
        """A number that is the same for disks with the same names and contents."""
        from tests.support.crashes import fingerprint

        return fingerprint(self._files, self._directories)

    def crash_states(self, **choices: Any) -> Iterator[SimulatedDisk]:
        """The disks that a power cut could leave after each operation: see `crashes.crash_states`."""
        from tests.support.crashes import crash_states

        return crash_states(self, **choices)

    def process_kills(self, **choices: Any) -> Iterator[SimulatedDisk]:
        """The disks that the death of the process could leave: see `crashes.process_kills`."""
        from tests.support.crashes import process_kills

        return process_kills(self, **choices)

    def unsynced(self) -> list[str]:
        """Everything that a power cut could lose: `contents of PATH`, and `name PATH` for an added or removed name."""
        from tests.support.crashes import unsynced

        return unsynced(self, {inode for names in self._directories.values() for inode in names.values()})

    def moved_unnamed(self) -> list[str]:
        """The files that a file system without a journal could lose while they move to another directory."""
        from tests.support.crashes import moved_unnamed

        return moved_unnamed(self)

    @property
    def story(self) -> str:
        """The history of this disk, in words."""
        return "a disk that never crashed" if self.crash is None else str(self.crash)

    # the Disk protocol

    def open(self, path: Path, mode: OpenMode) -> SimulatedFile:
        with self._mutex:
            directory = self._directory_of(path, "open")
            inode = self._directories[directory].get(path.name) if path.name else directory
            if inode is None:
                if mode == "read":
                    raise _missing(path)
                inode = self._new_inode()
                self._files[inode] = b""
                self._names(directory)[path.name] = inode
                self.operations.append(Link(str(path), directory, path.name, inode))
            elif mode == "create":
                raise _refused("open", path, errno.EEXIST)
            elif inode in self._directories:
                raise _refused("open", path, errno.EINVAL if mode == "read" else errno.EISDIR)
            self.open_files += 1
            return SimulatedFile(self, path, inode, writable=mode != "read")

    def list_directory(self, path: Path) -> list[str]:
        return sorted(self._directories[self._find_directory(path, "list")])

    def is_directory(self, path: Path) -> bool:
        return self._find(path) in self._directories

    def is_link(self, path: Path) -> bool:
        return False  # there are no links here

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def file_size(self, path: Path) -> int:
        directory = self._directory_of(path, "stat")
        inode = self._directories[directory].get(path.name) if path.name else directory
        if inode is None:
            raise _missing(path)
        return len(self._files.get(inode, b""))

    def is_named(self, inode: int) -> bool:
        """Whether a directory has a name for a file."""
        return any(inode in names.values() for names in self._directories.values())

    def identity(self, path: Path) -> tuple[int, int] | None:
        try:
            directory = self._directory_of(path, "stat")
        except NotFound:
            return None
        inode = self._directories[directory].get(path.name) if path.name else directory
        return None if inode is None else (DEVICE, inode)

    def make_directory(self, path: Path) -> None:
        with self._mutex:
            parent = self._directory_of(path, "create directory")
            inode = self._directories[parent].get(path.name) if path.name else parent
            if inode is None:
                inode = self._new_inode()
                self._directories[inode] = {}
                self._own_directories.add(inode)
                self._names(parent)[path.name] = inode
                self.operations.append(Link(str(path), parent, path.name, inode, is_directory=True))
            elif inode not in self._directories:
                raise _refused("create directory", path, errno.EEXIST)

    def rename(self, source: Path, target: Path) -> None:
        with self._mutex:
            directory = self._directory_of(source, "rename")
            target_directory = self._directory_of(target, "rename", source)
            inode = self._directories[directory].get(source.name)
            replaced = self._directories[target_directory].get(target.name)
            if inode is None:
                raise _missing(source)
            if replaced == inode:
                return
            self._check_rename(source, target, inode, replaced)
            del self._names(directory)[source.name]
            self._names(target_directory)[target.name] = inode
            operation = Rename(str(source), str(target), directory, source.name, target_directory, target.name, inode)
            self.operations.append(operation)

    def remove(self, path: Path) -> None:
        with self._mutex:
            try:
                directory = self._directory_of(path, "remove")
            except NotFound:
                return
            inode = self._directories[directory].get(path.name)
            if inode is None:
                return
            if inode in self._directories:
                raise _refused("remove", path, errno.EISDIR)
            del self._names(directory)[path.name]
            self.operations.append(Unlink(str(path), directory, path.name, inode))

    def remove_directory(self, path: Path) -> None:
        with self._mutex:
            try:
                directory = self._directory_of(path, "remove directory")
            except NotFound:
                return
            inode = self._directories[directory].get(path.name)
            if inode is None:
                return
            if inode not in self._directories:
                raise _refused("remove directory", path, errno.ENOTDIR)
            if self._directories[inode]:
                raise _refused("remove directory", path, errno.ENOTEMPTY)
            del self._names(directory)[path.name]
            self.operations.append(Unlink(str(path), directory, path.name, inode))

    def sync_directory(self, path: Path) -> None:
        with self._mutex:
            directory = self._find_directory(path, "sync directory")
            self.operations.append(SyncDirectory(str(path), directory))

    def free_bytes(self, path: Path) -> int:
        self._find_directory(path, "stat")
        return UNLIMITED_BYTES if self.capacity_bytes is None else max(0, self.capacity_bytes - self._used_bytes())

    def watch(self, path: Path) -> SimulatedWatch:
        return SimulatedWatch(self)

    # names

    def _directory_of(self, path: PurePath, action: str, named: PurePath | None = None) -> int:
        """The inode of the directory that contains the last name of a path."""
        parts = path.parts
        inode = ROOT
        for part in parts[1 if parts[:1] == ("/",) else 0 : -1]:
            if part == "..":
                raise ValueError(f"{path}: a simulated disk has no '..'")
            names = self._directories.get(inode)
            if names is None:
                raise _refused(action, named or path, errno.ENOTDIR)
            following = names.get(part)
            if following is None:
                raise _missing(named or path)
            inode = following
        if inode not in self._directories:
            raise _refused(action, named or path, errno.ENOTDIR)
        return inode

    def _find(self, path: PurePath) -> int | None:
        try:
            directory = self._directory_of(path, "stat")
        except (NotFound, StorageFailed):
            return None
        return self._directories[directory].get(path.name) if path.name else directory

    def _find_directory(self, path: PurePath, action: str) -> int:
        directory = self._directory_of(path, action)
        inode = self._directories[directory].get(path.name) if path.name else directory
        if inode is None:
            raise _missing(path)
        if inode not in self._directories:
            raise _refused(action, path, errno.ENOTDIR)
        return inode

    def _names(self, directory: int) -> dict[str, int]:
        """The names in a directory, as a dictionary that may be changed."""
        if directory not in self._own_directories:
            self._directories[directory] = dict(self._directories[directory])
            self._own_directories.add(directory)
        return self._directories[directory]

    def _check_rename(self, source: PurePath, target: PurePath, inode: int, replaced: int | None) -> None:
        if source in target.parents:
            raise _refused("rename", source, errno.EINVAL)
        if target in source.parents:
            raise _refused("rename", source, errno.ENOTEMPTY)
        if replaced in self._directories:
            if inode not in self._directories:
                raise _refused("rename", source, errno.EISDIR)
            if self._directories[replaced]:
                raise _refused("rename", source, errno.ENOTEMPTY)
        elif replaced is not None and inode in self._directories:
            raise _refused("rename", source, errno.ENOTDIR)

    def _new_inode(self) -> int:
        inode = self.next_inode
        self.next_inode += 1
        return inode

    # contents, for SimulatedFile

    def content(self, inode: int) -> bytes | bytearray:
        return self._files[inode]

    def change(self, operation: Write | Truncate) -> None:
        with self._mutex:
            content = self._files[operation.inode]
            if not isinstance(content, bytearray):
                content = self._files[operation.inode] = bytearray(content)
            apply_to_file(content, operation)
            self.operations.append(operation)

    def writable_bytes(self, inode: int, position: int, size: int) -> int:
        """The number of bytes, at most `size`, that still fit on the disk."""
        if self.capacity_bytes is None:
            return size
        growth = max(0, position + size - len(self._files[inode]))
        free = max(0, self.capacity_bytes - self._used_bytes())
        return size - max(0, growth - free)

    def _used_bytes(self) -> int:
        """Files with a name take space; files that are only open do not count."""
        named = {inode for names in self._directories.values() for inode in names.values()}
        return sum(len(content) for inode, content in self._files.items() if inode in named)

    def take_lock(self, file: SimulatedFile, inode: int) -> None:
        with self._mutex:
            holder = self._locks.setdefault(inode, file)
        if holder is not file:
            raise Locked(f"{file.path} is locked by another process or another open journal")

    def forget(self, file: SimulatedFile, inode: int) -> None:
        """Close a file, which releases its lock."""
        with self._mutex:
            self.open_files -= 1
            if self._locks.get(inode) is file:
                del self._locks[inode]


class SimulatedFile:
    """An open file of a `SimulatedDisk`. It stays usable if its name is removed or given to another file."""

    __slots__ = ("_disk", "_inode", "_writable", "path")

    def __init__(self, disk: SimulatedDisk, path: Path, inode: int, *, writable: bool) -> None:
        self.path = path
        self._disk: SimulatedDisk | None = disk
        self._inode = inode
        self._writable = writable

    def _opened(self, action: str, *, to_write: bool = False) -> SimulatedDisk:
        if self._disk is None or (to_write and not self._writable):
            raise _refused(action, self.path, errno.EBADF)
        return self._disk

    def read_at(self, position: int, size: int) -> bytes:
        content = self._opened("read").content(self._inode)
        if position < 0 or size < 0:
            raise _refused("read", self.path, errno.EINVAL)
        return bytes(content[position : position + size])

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, position: int, data: Buffer) -> int:
        disk = self._opened("write", to_write=True)
        if position < 0:
            raise _refused("write", self.path, errno.EINVAL)
        data = bytes(data)
        size = disk.writable_bytes(self._inode, position, len(data))
        if data and size <= 0:
            raise _refused("write", self.path, errno.ENOSPC)
        if data:
            disk.change(Write(str(self.path), self._inode, position, data[:size]))
        return size

    def truncate(self, size: int) -> None:
        disk = self._opened("truncate")
        if size < 0 or not self._writable:  # ftruncate(2) says EINVAL where write(2) says EBADF
            raise _refused("truncate", self.path, errno.EINVAL)
        disk.change(Truncate(str(self.path), self._inode, size))

    def size(self) -> int:
        return len(self._opened("stat").content(self._inode))

    def identity(self) -> tuple[int, int]:
        self._opened("stat")
        return DEVICE, self._inode

    def has_name(self) -> bool:
        return self._opened("stat").is_named(self._inode)

    def sync(self) -> None:
        self._opened("sync").operations.append(Sync(str(self.path), self._inode))

    def lock(self) -> None:
        self._opened("lock").take_lock(self, self._inode)

    def close(self) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            disk.forget(self, self._inode)


class SimulatedWatch:
    """Reports whether anything has changed since the last call, and never waits."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._seen = len(disk.operations)

    def wait(self, timeout_seconds: float) -> bool:
        changed = len(self._disk.operations) != self._seen
        self.drain()
        return changed

    def descriptor(self) -> int | None:
        return None

    def drain(self) -> None:
        self._seen = len(self._disk.operations)

    def add(self, path: Path) -> None:
        """The whole disk is watched."""

    def close(self) -> None:
        """There is nothing to release."""


def _missing(path: PurePath) -> NotFound:
    return NotFound(f"{path}: no such file or directory")


def _refused(action: str, path: PurePath, number: int) -> StorageFailed:
    return StorageFailed(action, path, OSError(number, os.strerror(number)))
