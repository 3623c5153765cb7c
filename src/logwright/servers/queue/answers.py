"""The answers to clients.

A request that is answered with ERROR, CLIENT_ERROR or SERVER_ERROR has changed nothing, except a `flush_all` that could
not flush some of the queues. So if one key of a `get` fails, the answer has the items of the others, which have been
removed.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from ...errors import (
    DamagedJournal,
    Full,
    Locked,
    LogwrightError,
    StorageFailed,
    TooLarge,
    WrongUse,
    is_no_file,
    is_no_space,
)

STORED: Final = b"STORED\r\n"
NOT_STORED: Final = b"NOT_STORED\r\n"
DELETED: Final = b"DELETED\r\n"
NOT_FOUND: Final = b"NOT_FOUND\r\n"
END: Final = b"END\r\n"
OK: Final = b"OK\r\n"
FLUSHED_ALL: Final = b"Flushed all queues.\r\n"
"""As Kestrel answers."""
RESET: Final = b"RESET\r\n"
ERROR: Final = b"ERROR\r\n"

BAD_LINE: Final = b"CLIENT_ERROR bad command line format\r\n"
BAD_DATA: Final = b"CLIENT_ERROR bad data chunk\r\n"
BAD_NAME: Final = b"CLIENT_ERROR invalid queue name\r\n"
BAD_OPTIONS: Final = b"CLIENT_ERROR invalid options\r\n"
BAD_STATUS: Final = b"CLIENT_ERROR unknown status\r\n"
BINARY: Final = b"CLIENT_ERROR the binary protocol is not spoken here\r\n"
LONG_LINE: Final = b"CLIENT_ERROR line too long\r\n"
UNAUTHENTICATED: Final = b"CLIENT_ERROR unauthenticated\r\n"
BAD_TOKEN: Final = b"CLIENT_ERROR authentication failure\r\n"

TOO_LARGE: Final = b"SERVER_ERROR object too large for cache\r\n"
NO_MEMORY: Final = b"SERVER_ERROR out of memory storing object\r\n"
NO_SPACE: Final = b"SERVER_ERROR out of disk space\r\n"
FAILED: Final = b"SERVER_ERROR the queue's journal failed\r\n"
DAMAGED: Final = b"SERVER_ERROR the queue's journal is damaged\r\n"
LOCKED: Final = b"SERVER_ERROR another process has locked the queue\r\n"
NO_FILE: Final = b"SERVER_ERROR a directory or a link has the name of the queue\r\n"
MANY_CLIENTS: Final = b"SERVER_ERROR too many connections\r\n"
MANY_QUEUES: Final = b"SERVER_ERROR too many queues\r\n"
NOT_SAVED: Final = b"SERVER_ERROR the status could not be saved\r\n"
READ_ONLY: Final = b"SERVER_ERROR the server is read-only\r\n"
QUIESCENT: Final = b"SERVER_ERROR the server is quiescent\r\n"
_MOST_NAMES: Final = 5
"""The most queues that are named in an answer."""


def failure(error: BaseException) -> bytes:
    """The answer for an error. Paths are logged, but not sent to clients."""
    if isinstance(error, Full):
        return NOT_STORED
    if isinstance(error, TooLarge):
        return TOO_LARGE
    if isinstance(error, WrongUse):
        return BAD_NAME
    if is_full_disk(error):
        return NO_SPACE
    if isinstance(error, DamagedJournal):
        return DAMAGED
    if isinstance(error, Locked):
        return LOCKED
    return NO_FILE if is_no_file(error) else FAILED


def not_flushed(names: Sequence[bytes]) -> bytes:
    """The answer to a `flush_all` that could not flush some queues; it has flushed the others."""
    more = b" and %d more" % (len(names) - _MOST_NAMES) if len(names) > _MOST_NAMES else b""
    return b"SERVER_ERROR not flushed: %b%b\r\n" % (b", ".join(names[:_MOST_NAMES]), more)


def without(answer: bytes, names: Container[bytes]) -> bytes:
    """The answer to a `get` without the items of some queues; any other answer is empty then."""
    kept = []
    position = 0
    while answer.startswith(b"VALUE ", position):
        end = answer.index(b"\r\n", position) + 2
        words = answer[position:end].split()
        after = end + int(words[3]) + 2
        if words[1].partition(b"/")[0] not in names:
            kept.append(answer[position:after])
        position = after
    return b"".join([*kept, END]) if kept else b""


def is_full_disk(error: BaseException | None) -> bool:
    """Whether a full disk caused an error, now or earlier."""
    while isinstance(error, LogwrightError):
        if isinstance(error, StorageFailed):
            return is_no_space(error)
        error = error.__cause__
    return False
