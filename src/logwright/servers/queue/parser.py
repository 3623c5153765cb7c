r"""Parse the bytes of a client, in pieces of any size, into requests of the text protocol.

A request is a line, and for storage commands a block of data of the size that the line names, which ends with \r\n.
A line ends with \n or \r\n. Its words are separated by white space. If a line with a valid size is refused, its block
is skipped, and never parsed as requests; if a block does not end where it should, the rest of that line is skipped too.

`feed` returns the complete requests, a tuple each:

    (SET, key, expiry, data, quiet)     `set`: the expiry as the client gave it; quiet is `noreply`
    (GET, keys, with_number)            `get` or `gets`, at least one key
    (OTHER, words)                      any other line that is not empty, as words
    (REFUSED, answer)                   an error; the answer is empty if the client wants none
    (HANG_UP, answer)                   the same, and nothing after it can be parsed

The parser buffers at most one line, or one block of an allowed size.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from .answers import BAD_DATA, BAD_LINE, BINARY, ERROR, LONG_LINE, NO_MEMORY, TOO_LARGE
from .limits import ServerLimits

Request: TypeAlias = tuple[Any, ...]

SET: Final = 0
GET: Final = 1
OTHER: Final = 2
REFUSED: Final = 3
HANG_UP: Final = 4

_STORAGE: Final = {b"set": 5, b"add": 5, b"replace": 5, b"append": 5, b"prepend": 5, b"cas": 6}
"""The number of words, without `noreply`."""
_NOREPLY: Final = b"noreply"
_LINE: Final = 0
"""The next bytes are a line."""
_BLOCK: Final = 1
_SKIPPED: Final = 2
"""They are the rest of a line that is skipped."""
_NOTHING: Final = 3
"""Nothing more is parsed."""
_BINARY: Final = 0x80
"""The first byte of requests of memcached's binary protocol."""
_END: Final = b"\r\n"
_MOST_BLOCK_BYTES: Final = 2**31 - 3
_MOST_FLAGS: Final = 2**32 - 1
_MOST_EXPIRY: Final = 253_402_300_799
"""The last second of the year 9999."""


class Arriving:
    """The size of partly received items, of all clients together."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Count an item that begins to arrive; False if it exceeds the limit."""
        if self.bytes + size > self.most_bytes:
            return False
        self.bytes += size
        return True

    def give_back(self, size: int) -> None:
        """An item has arrived, or never will."""
        self.bytes -= size


class Parser:
    """The parser of one client."""

    __slots__ = (
        "_answer",
        "_arriving",
        "_block",
        "_left",
        "_max_line",
        "_need",
        "_next",
        "_request",
        "_taken",
        "is_within",
        "max_item_bytes",
    )

    def __init__(self, limits: ServerLimits, arriving: Arriving) -> None:
        self.max_item_bytes = limits.max_item_bytes
        self._max_line = limits.max_line_bytes
        self._arriving = arriving
        self.is_within = False
        """Whether a request has arrived in part."""
        self._next = _LINE
        """What the next bytes are."""
        self._left = b""
        self._need = self._taken = 0
        self._block: bytearray | None = None
        self._request: tuple[bytes, int, bool] = b"", 0, False
        self._answer = b""

    def close(self) -> None:
        """The client sends no more."""
        self._arriving.give_back(self._taken)
        self._taken = 0
        self._block, self._left, self._next = None, b"", _NOTHING

    def feed(self, data: bytes) -> list[Request]:
        """The requests that are complete with these bytes."""
        found: list[Request] = []
        if self._next != _NOTHING:
            self._parse(data, found)
            self.is_within = self._left != b"" or self._next == _BLOCK or self._next == _SKIPPED
        return found

    def _parse(self, data: bytes, found: list[Request]) -> None:
        position = 0
        if self._next != _LINE:
            position = self._continue(data, 0, found)
        elif self._left:
            data = self._left + data
            self._left = b""
        size = len(data)
        while position < size:
            if data[position] == _BINARY:
                found.append((HANG_UP, BINARY))
                self._next = _NOTHING
                return
            end = data.find(b"\n", position)
            if (size if end < 0 else end) - position > self._max_line:
                found.append((HANG_UP, LONG_LINE))
                self._next = _NOTHING
                return
            if end < 0:
                self._left = data[position:]
                return
            words = data[position:end].split()
            position = end + 1
            if not words:
                found.append((REFUSED, ERROR))
                continue
            command = words[0]
            if command == b"get" and len(words) > 1:
                found.append((GET, words[1:], False))
            elif command == b"set" or command.lower() in _STORAGE:
                position = self._storage(words, data, position, found)
            elif command.lower() in (b"get", b"gets"):
                keys = words[1:]
                found.append((GET, keys, len(command) == 4) if keys else (REFUSED, ERROR))
            else:
                found.append((OTHER, words))

    # --- storage commands -------------------------------------------------------------------------------------------

    def _storage(self, words: list[bytes], data: bytes, start: int, found: list[Request]) -> int:
        """Parse a storage command whose block begins at `start`; returns the position after it."""
        command = words[0].lower()
        usual = _STORAGE[command]
        count = len(words)
        if not usual <= count <= usual + 1:
            found.append((REFUSED, ERROR))
            return start
        size = _number(words[4], _MOST_BLOCK_BYTES)
        if size < 0:
            found.append((REFUSED, BAD_LINE))
            return start
        quiet = count > usual and words[usual] == _NOREPLY
        expiry = words[3]
        sign = -1 if expiry[:1] == b"-" else 1
        seconds = _number(expiry[1:] if sign < 0 else expiry, _MOST_EXPIRY)
        answer = b""
        if command != b"set":
            answer = ERROR
        elif seconds < 0 or _number(words[2], _MOST_FLAGS) < 0:
            answer = BAD_LINE
        elif size > self.max_item_bytes:
            answer = TOO_LARGE
        stop = start + size
        if not answer and data[stop : stop + 2] == _END:
            found.append((SET, words[1], sign * seconds, data[start:stop], quiet))
            return stop + 2
        return self._begin_block(data, start, size, (words[1], sign * seconds, quiet), answer, found)

    def _begin_block(
        self, data: bytes, start: int, size: int, request: tuple[bytes, int, bool], answer: bytes, found: list[Request]
    ) -> int:
        """Begin a block that is refused, ends wrongly, or is incomplete; returns the position after it."""
        self._block = None
        if not answer:
            if self._arriving.take(size):
                self._taken = size
                self._block = bytearray()
            else:
                answer = NO_MEMORY
        self._next, self._need, self._request, self._answer = _BLOCK, size, request, answer
        return self._continue(data, start, found)

    def _continue(self, data: bytes, position: int, found: list[Request]) -> int:
        """Continue with a block, or with the rest of a skipped line; returns the position after it.

        The bytes after that are not copied: a client may send very many blocks at once.
        """
        if self._next == _BLOCK:
            if self._need:
                part = data[position : position + self._need]
                if self._block is not None:
                    self._block += part
                self._need -= len(part)
                position += len(part)
                if self._need:
                    return position
            begun = self._left
            end = begun + data[position : position + 2 - len(begun)]
            if len(end) < 2:
                self._left = end
                return len(data)
            self._left = b""
            self._finish_block(end == _END, found)
            self._next = _LINE
            if end == _END:
                return position + 2 - len(begun)
            if begun == b"\n":
                return position
            self._next = _SKIPPED
        stop = data.find(b"\n", position)
        if stop < 0:
            return len(data)
        self._next = _LINE
        return stop + 1

    def _finish_block(self, ends_well: bool, found: list[Request]) -> None:
        key, expiry, quiet = self._request
        answer = self._answer or (b"" if ends_well else BAD_DATA)
        if answer:
            found.append((REFUSED, b"" if quiet else answer))
        else:
            found.append((SET, key, expiry, bytes(self._block or b""), quiet))
        self._arriving.give_back(self._taken)
        self._taken, self._block = 0, None


def _number(word: bytes, most: int) -> int:
    """The number in a word of digits, -1 if it is not one or too large."""
    if len(word) > 12 or not word.isdigit():
        return -1
    number = int(word)
    return number if number <= most else -1
