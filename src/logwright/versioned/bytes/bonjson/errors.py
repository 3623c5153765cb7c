"""The errors of decoding and encoding BONJSON.

    LogwrightError
    ├── DecodeError     these bytes are no document: at which byte, and why (also a ValueError)
    │   └── Incomplete  they could become one, and end too early
    └── WrongUse
        └── EncodeError this value cannot be written: the path to it, and why

Codec and kernel find the same problems at the same bytes; `decode_error` puts them into words for both.
"""

from __future__ import annotations

import json
from typing import Final

from ....errors import LogwrightError, WrongUse

(
    TRUNCATED,
    RESERVED_CODE,
    BIG_NUMBER_CODE,
    STRAY_END,
    END_FOR_VALUE,
    KEY_NOT_STRING,
    DUPLICATE_KEY,
    NOT_UTF8,
    NOT_FINITE,
    TRAILING_BYTES,
    TOO_DEEP,
    DOCUMENT_TOO_LARGE,
    STRING_TOO_LARGE,
    CONTAINER_TOO_LARGE,
) = range(14)
"""The problems of a document."""

_REASONS: Final = {
    TRUNCATED: "{first} more bytes are due here, and only {second} are there",
    RESERVED_CODE: "the type code {first:#04x} is reserved",
    BIG_NUMBER_CODE: "big numbers are not supported",
    STRAY_END: "the end of a container, and none is open",
    END_FOR_VALUE: "the object ends where the value of a key is due",
    KEY_NOT_STRING: "the key of an object must be a string, and the type code is {first:#04x}",
    DUPLICATE_KEY: "the object has this key already",
    NOT_UTF8: "the string is not UTF-8 from its byte {first} on",
    NOT_FINITE: "the number is infinite or NaN",
    TRAILING_BYTES: "{first} bytes follow the document",
    TOO_DEEP: "nested deeper than the limit of {second}",
    DOCUMENT_TOO_LARGE: "the document is larger than the limit of {second} bytes",
    STRING_TOO_LARGE: "a string of {first} bytes is larger than the limit of {second}",
    CONTAINER_TOO_LARGE: "the container has more items than the limit of {second}",
}


class DecodeError(LogwrightError, ValueError):
    """These bytes are no document. `position` is the byte concerned, counted as the caller does; `reason` says why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"@ {self.position}: {self.reason}"


class Incomplete(DecodeError):
    """The bytes end inside the document; more of them could make it whole."""


class EncodeError(WrongUse):
    """A value that cannot be written. `path` has the keys and indexes that lead to it; `reason` says why."""

    def __init__(self, path: tuple[str | int, ...], reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{path_text(self.path)}: {self.reason}"


def decode_error(problem: int, position: int, first: int = 0, second: int = 0) -> DecodeError:
    """The error for a problem; what `first` and `second` are depends on it."""
    kind = Incomplete if problem == TRUNCATED else DecodeError
    return kind(position, _REASONS[problem].format(first=first, second=second))


def path_text(path: tuple[str | int, ...]) -> str:
    """A path as one writes it: `$.orders[3]["unit price"]`. Of a long one the middle is left out."""
    steps = [_step_text(step) for step in path]
    if len(steps) > 20:
        steps[10:-10] = ["…"]
    return "$" + "".join(steps)


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if step.isascii() and step.isidentifier():
        return f".{step}"
    return f"[{json.dumps(step if len(step) <= 60 else step[:60] + '…')}]"
