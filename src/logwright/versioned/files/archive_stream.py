"""Archives as streams: what zlib made small comes back piece by piece, and never more of it than is allowed.

An archive says nothing about how large it will become, and a few bytes can become gigabytes. So at most `READ_BYTES`
come out at a time, and before more do it is checked that there are not too many in all, and not too many for what went
in. A small archive may be as dense as zlib can make it: only from `free_bytes` on the ratio counts.

`isal` or `zlib-ng` do the work where one of them is installed: the same format, several times faster.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import Disk, File
from ...core.options import NamedOptions
from ...errors import WrongUse

READ_BYTES: Final = 256 * 1024
_COMPRESSED_BYTES: Final = 64 * 1024
_SALVAGED_BYTES: Final = 1024
_ZLIB_HEADER_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class ArchiveLimits(NamedOptions):
    """How large an archive may become: in bytes, and from `free_bytes` on at most `ratio` for each byte of its own."""

    total_bytes: int = 16 << 30
    ratio: int = 250
    free_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        if self.total_bytes < 0 or self.ratio < 1 or self.free_bytes < 0:
            raise WrongUse(f"these limits for archives cannot be kept: {self}")


DEFAULT_LIMITS: Final = ArchiveLimits()


def _decompressors() -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """What makes decompressors, the fastest that is installed, and the errors that it knows."""
    for name in ("isal.isal_zlib", "zlib_ng.zlib_ng"):
        try:
            library = import_module(name)
        except ImportError:
            continue
        return library.decompressobj, (library.error, zlib.error)
    return zlib.decompressobj, (zlib.error,)


_MAKE, _ERRORS = _decompressors()


class PlainStream:
    """The bytes of a file that is not compressed, from a position on."""

    problem = ""

    def __init__(self, file: File, position: int = 0) -> None:
        self._file = file
        self._position = position

    def read_into(self, buffer: memoryview) -> int:
        """Fill a buffer; how many bytes there were, less than its length only at the end."""
        count = self._file.read_into(self._position, buffer)
        self._position += count
        return count


class InflatedStream:
    """What an archive holds, from its beginning on.

    At the end, or where it cannot go on, it gives no more bytes; then `problem` says what is wrong, and is empty if all
    of it was there and its checksum fits.
    """

    def __init__(
        self, file: File, limits: ArchiveLimits = DEFAULT_LIMITS, *, read_bytes: int = _COMPRESSED_BYTES
    ) -> None:
        self.problem = ""
        self.is_refused = False
        """Whether the problem is a limit, and not the archive."""
        self.is_short = False
        """Whether the problem is that the archive ends too early."""
        self.bytes_in = 0
        self.bytes_out = 0
        self._file = file
        self._limits = limits
        self._read_bytes = read_bytes
        self._inflate = _MAKE()
        self._waiting = b""
        self._ready = b""
        self._ended = False
        self._rest: Iterator[bytes] | None = None

    def read_into(self, buffer: memoryview) -> int:
        """Fill a buffer; how many bytes there were, less than its length only at the end."""
        have = 0
        while have < len(buffer):
            if not self._ready:
                self._ready = self._next(len(buffer) - have)
                if not self._ready:
                    break
            count = min(len(self._ready), len(buffer) - have)
            buffer[have : have + count] = self._ready[:count]
            self._ready = self._ready[count:]
            have += count
        return have

    @property
    def end(self) -> int:
        """Where the compressed data ends in the file, once its end was reached and its checksum fits; 0 before."""
        return self.bytes_in - len(self._inflate.unused_data) if self._ended and self._inflate.eof else 0

    def drain(self) -> None:
        """Go to the end, so that the checksum is looked at."""
        self._ready = b""
        while self._next(READ_BYTES):
            pass

    def _next(self, most: int) -> bytes:
        """Some more bytes, none at the end."""
        if self._rest is not None:
            return next(self._rest, b"")
        while not self._ended:
            if not self._waiting:
                self._waiting = self._file.read_at(self.bytes_in, self._read_bytes)
                self.bytes_in += len(self._waiting)
            try:
                found: bytes = self._inflate.decompress(self._waiting, min(most, READ_BYTES))
            except _ERRORS as error:
                self.problem = f"this is no zlib data: {error}"
                self._rest = self._salvaged()
                return next(self._rest, b"")
            at_end = not self._waiting
            self._waiting = self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._ended = True
                if self._inflate.unused_data or self._file.read_at(self.bytes_in, 1):
                    self.problem = "bytes follow the end of the compressed data"
            elif at_end and not found:
                self.is_short = True
                return self._stop("the compressed data ends too early")
            self.bytes_out += len(found)
            if self._is_too_much():
                self.is_refused = True
                return self._stop(self.problem)
            if found:
                return found
        return b""

    def _salvaged(self) -> Iterator[bytes]:
        """What still comes out before the bad bytes: a decompressor that fails gives nothing of its last piece."""
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)  # without the checksum, which may be all that is wrong
        position, skipped = _ZLIB_HEADER_BYTES, 0
        while data := self._file.read_at(position, _SALVAGED_BYTES):
            position += len(data)
            while data:
                try:
                    found = inflate.decompress(data, _SALVAGED_BYTES)
                except zlib.error:
                    return
                data = inflate.unconsumed_tail
                given = max(0, min(len(found), self.bytes_out - skipped))
                skipped += given
                if found[given:]:
                    self.bytes_out += len(found) - given
                    skipped = self.bytes_out
                    yield found[given:]
                if inflate.eof:
                    return

    def _is_too_much(self) -> bool:
        limits = self._limits
        if self.bytes_out > limits.total_bytes:
            self.problem = f"it becomes more than the {limits.total_bytes} bytes that are allowed"
            return True
        used = self.bytes_in - len(self._waiting)
        if self.bytes_out > limits.free_bytes and self.bytes_out > limits.ratio * used:
            self.problem = f"{used} bytes become {self.bytes_out}: more than the {limits.ratio}-fold that is allowed"
            return True
        return False

    def _stop(self, problem: str) -> bytes:
        self.problem = problem
        self._ended = True
        return b""


def open_stream(
    file: File, *, compressed: bool, limits: ArchiveLimits = DEFAULT_LIMITS
) -> PlainStream | InflatedStream:
    """The bytes of a journal's file, whether it is an archive or not."""
    return InflatedStream(file, limits) if compressed else PlainStream(file)


def is_compressed(disk: Disk, path: Path) -> bool:
    """Whether a file begins like zlib data, and not like a journal."""
    file = disk.open(path, "read")
    try:
        head = file.read_at(0, 2)
    finally:
        file.close()
    return len(head) == 2 and head[0] & 0x0F == 8 and int.from_bytes(head, "big") % 31 == 0
