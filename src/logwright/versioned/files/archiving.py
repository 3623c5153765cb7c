"""Archiving: the journal that was active becomes a compressed archive, in the background, and only then is removed.

    1. `NAME.jrn.old` up to its position is compressed to `NAME.jrn.t<T>.zz.tmp`, which is synced
    2. that is read again, decompressed, and compared with what it was made of
    3. it becomes `NAME.jrn.t<T>.zz`, and that is synced
    4. `NAME.jrn.old` is removed

A crash before 3 leaves the old journal, and the archive is made again when the store is opened; one before 4 leaves
both, and the old journal is removed then. Nothing is overwritten: a name that is taken by something else stays so.

Writers do not wait: reading, compressing and writing let other threads run. zlib-ng and isal do the same much
faster where one of them is installed; what they write any zlib can read.
"""

from __future__ import annotations

import importlib
import logging
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ...core.bytes.outcome import NEED_MORE, Malformed
from ...core.io.disk import Disk, File, write_all
from ...core.io.threads import Background
from ...errors import DamagedJournal, LogwrightError, NotFound
from ..bytes import codec
from ..bytes.layout import ARCHIVE_LEVEL, HEADER_BYTES, MAX_TIMESTAMP
from .archive_stream import READ_BYTES, InflatedStream, PlainStream
from .buffer import abandon
from .files import Listing, archive_name, list_files, old_name, temporary_archive_name

logger = logging.getLogger("logwright.versioned")
_PIECE_BYTES: Final = 1 << 18
_HEAD_BYTES: Final = 256
_ISAL_LEVEL: Final = 3
"""isal has levels of its own, 0 to 3. This one is four times as fast as zlib's 5, and its archives are as small."""


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# Imported here, and not when an archive is made: an interrupt within an import can leave the lock of the interpreter's
# imports locked, and then every thread waits that imports something.
_ISAL: Final = _library("isal.isal_zlib")
_ZLIB_NG: Final = _library("zlib_ng.zlib_ng")


def new_compressor() -> Any:
    """What compresses fastest of all that are installed, as small as zlib does it."""
    if _ISAL is not None:
        return _ISAL.compressobj(_ISAL_LEVEL)
    if _ZLIB_NG is not None:
        return _ZLIB_NG.compressobj(ARCHIVE_LEVEL)
    return zlib.compressobj(ARCHIVE_LEVEL)


def bulky_compressor() -> Any:
    """One whose archives are an eighth of what was compressed at least: for what would look like a bomb otherwise."""
    return zlib.compressobj(1, strategy=zlib.Z_HUFFMAN_ONLY)


# --- one archive ------------------------------------------------------------------------------------------------------


def journal_bytes(file: File) -> int:
    """How many bytes of a journal are to be archived: those before its position, or all if that makes no sense."""
    size = file.size()
    try:
        found = codec.decode_header(file.read_at(0, HEADER_BYTES))
    except Malformed:
        return size
    return min(size, found[0].position) if isinstance(found, tuple) else size


def _pieces(file: File, size: int) -> Iterator[bytes]:
    position = 0
    while position < size:
        piece = file.read_at(position, min(_PIECE_BYTES, size - position))
        if not piece:
            return
        yield piece
        position += len(piece)


def write_archive(disk: Disk, source: File, size: int, path: Path, compressor: Any) -> None:
    """Compress the first bytes of a file to another, and sync that."""
    disk.remove(path)
    archive = disk.open(path, "create")
    try:
        position = 0
        for piece in _pieces(source, size):
            data = compressor.compress(piece)
            write_all(archive, position, data)
            position += len(data)
        write_all(archive, position, compressor.flush())
        archive.sync()
    except BaseException:
        abandon(disk, archive)
        raise
    archive.close()


def holds(disk: Disk, path: Path, source: File, size: int) -> bool:
    """Whether an archive is whole, begins with the first bytes of a file, and is within the limits of readers."""
    stream, same = _compared(disk, path, source, size)
    return same == size and not stream.problem


def is_half_of(disk: Disk, path: Path, source: File, size: int) -> bool:
    """Whether an archive ends too early, and has nothing but the first bytes of a file: it was not finished."""
    stream, same = _compared(disk, path, source, size)
    return stream.is_short and same == stream.bytes_out


def _compared(disk: Disk, path: Path, source: File, size: int) -> tuple[InflatedStream, int]:
    """What came out of an archive, to its end, and how many bytes of that are the first ones of a file."""
    archive = disk.open(path, "read")
    try:
        stream = InflatedStream(archive)
        piece = memoryview(bytearray(READ_BYTES))
        position = 0
        while position < size:
            count = stream.read_into(piece[: size - position])
            if not count or piece[:count] != source.read_at(position, count):
                break
            position += count
        stream.drain()
        return stream, position
    finally:
        archive.close()


def compress(disk: Disk, source: File, size: int, path: Path) -> None:
    """Make an archive of the first bytes of a file, synced and read again."""
    for compressor in (new_compressor(), bulky_compressor()):
        write_archive(disk, source, size, path, compressor)
        if holds(disk, path, source, size):
            return
    disk.remove(path)
    raise DamagedJournal(path, 0, "the archive is not what was compressed")


def archives_of_old(disk: Disk, listing: Listing, active_begun: int) -> tuple[list[int], list[int]]:
    """The archives of the old journal beside an active one, by their times: those that have all of it, and half ones.

    Archives of other journals begin at another time. Of one that has not even a beginning only the name says something:
    it is not earlier than the journal.
    """
    path = listing.path(old_name(listing.store))
    begun = initialized_of(disk, path, compressed=False)
    if begun is None or (begun == listing.last_timestamp != active_begun):
        return [], []  # that is as it is while the archive is made: the last one is of the journal before
    old = disk.open(path, "read")
    whole, half = [], []
    try:
        size = journal_bytes(old)
        for timestamp in listing.archives:
            archive = listing.path(archive_name(listing.store, timestamp))
            since = initialized_of(disk, archive, compressed=True)
            if since != begun and (since is not None or not (timestamp == active_begun or timestamp > begun)):
                continue
            if holds(disk, archive, old, size):
                whole.append(timestamp)
            elif is_half_of(disk, archive, old, size):
                half.append(timestamp)
    finally:
        old.close()
    return whole, half


def archive_old(disk: Disk, directory: Path, store: str, timestamp: int) -> int:
    """Make the archive of the old journal, which ended at a time, and remove it; the time in the archive's name."""
    old = disk.open(directory / old_name(store), "read")
    try:
        size = journal_bytes(old)
        taken = list_files(disk, directory, store).archives
        while timestamp in taken:
            if holds(disk, directory / archive_name(store, timestamp), old, size):
                break
            timestamp = following(timestamp)
        else:
            temporary = directory / temporary_archive_name(store, timestamp)
            compress(disk, old, size, temporary)
            disk.rename(temporary, directory / archive_name(store, timestamp))
        disk.sync_directory(directory)
    finally:
        old.close()
    disk.remove(directory / old_name(store))
    return timestamp


def following(timestamp: int) -> int:
    """The next time. There is none behind the last."""
    if timestamp >= MAX_TIMESTAMP:
        raise LogwrightError("there is no later time than 2^64 - 1 nanoseconds, and its archive is there already")
    return timestamp + 1


# --- in the background ------------------------------------------------------------------------------------------------


class Archiver:
    """Makes archives one after the other, in a thread of its own unless `background` is off.

    `done` is called with the time of each archive. While `pending` there is an old journal, and another must not take
    its place.
    """

    def __init__(
        self, disk: Disk, directory: Path, store: str, *, background: bool, done: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._store = store
        self._background = background
        self._done = done
        self._not_archived = Standing(logger, f"{store}: the last journal is not archived yet")
        self._not_removed = Standing(logger, f"{store}: old archives are not removed")
        self._thread: Background | None = None
        self._busy = False
        self._mutex = threading.Lock()
        self.timestamp: int | None = None
        """Of the old journal that is to be archived."""
        self.failure: Exception | None = None

    @property
    def pending(self) -> bool:
        return self.timestamp is not None

    def begin(self, timestamp: int) -> None:
        """There is an old journal, which ended at this time: make its archive."""
        self.note(timestamp)
        self.resume()

    def note(self, timestamp: int) -> None:
        """There is an old journal, which ended at this time; `resume` makes its archive."""
        with self._mutex:
            self.timestamp = timestamp

    def resume(self) -> None:
        """Make the archive that is to be made, again if that has failed before; nothing while it is being made."""
        is_ours = False
        try:
            with self._mutex:
                if self.timestamp is None or self._busy:
                    return
                self.failure = None
                self._busy = is_ours = True
                if self._background and self._start():
                    is_ours = False
                    return
            self._run()
        except BaseException:  # an interrupt: the next call that asks for the archive makes it
            if is_ours:
                self._stop(None)
            raise

    def _start(self) -> bool:
        """Let a thread do it; False when the system has none for us, and the caller has to."""
        try:
            self._thread = Background(self._run)
        except RuntimeError as error:
            logger.warning("%s: there is no thread for an archive: %s", self._store, error)
            return False
        return True

    def _run(self) -> None:
        """Make archives until none is to be made, or one cannot be."""
        while (timestamp := self._next()) is not None:
            failure = self._archive(timestamp)
            if failure is not None:
                self._stop(failure)
                return

    def _next(self) -> int | None:
        with self._mutex:
            if self.timestamp is None:  # callers from now on begin a new one
                self._busy, self._thread = False, None
            return self.timestamp

    def _stop(self, failure: Exception | None) -> None:
        with self._mutex:
            self.failure, self._busy, self._thread = failure, False, None

    def _archive(self, timestamp: int) -> Exception | None:
        """Make one archive; what kept it from being made. Whatever that was, the old journal stays where it is."""
        try:
            timestamp = archive_old(self._disk, self._directory, self._store, timestamp)
        except Exception as error:
            self._not_archived.stands(error)
            return error
        self._not_archived.is_over()
        with self._mutex:
            self.timestamp = None  # writers may rotate the next one, while this continues
        try:
            self._done(timestamp)
        except Exception as error:
            self._not_removed.stands(error)
        else:
            self._not_removed.is_over()
        return None

    def wait(self) -> None:
        """Wait for the archive that is being made, and for those to be removed that it makes superfluous."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def raise_failure(self) -> None:
        """Raise why the last archive could not be made."""
        if self.failure is not None:
            raise self.failure


def initialized_of(disk: Disk, path: Path, compressed: bool) -> int | None:
    """Since when a journal was the active one, from its first bytes; None when they do not say, or it is gone."""
    try:
        file = disk.open(path, "read")
    except NotFound:
        return None
    try:
        stream = InflatedStream(file, read_bytes=_HEAD_BYTES) if compressed else PlainStream(file)
        head = bytearray()
        piece = memoryview(bytearray(_HEAD_BYTES))
        while count := stream.read_into(piece):
            head += piece[:count]
            found = codec.decode_metadata(head, HEADER_BYTES) if len(head) > HEADER_BYTES else NEED_MORE
            if isinstance(found, tuple):
                return found[0].initialized
    except Malformed:
        return None
    finally:
        file.close()
    return None


def is_whole_archive(disk: Disk, path: Path) -> bool:
    """Whether a file is an archive that can be read to its end, and whose checksum fits."""
    if initialized_of(disk, path, compressed=True) is None:
        return False
    file = disk.open(path, "read")
    try:
        stream = InflatedStream(file)
        stream.drain()
        return not stream.problem
    finally:
        file.close()


class Standing:
    """Something that may fail for a while: a failure is logged when it begins or changes, not at each attempt."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._reported = ""

    def stands(self, reason: object) -> None:
        """It did not work."""
        if str(reason) != self._reported:
            self._reported = str(reason)
            self._logger.warning("%s: %s", self._what, reason)

    def is_over(self) -> None:
        """It worked: the next failure is logged again."""
        self._reported = ""
