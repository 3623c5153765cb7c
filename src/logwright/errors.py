"""The errors of Logwright.

    LogwrightError
    ├── WrongUse            the call was wrong; nothing was read or written (also a ValueError)
    │   ├── TooLarge        a record, key or value is larger than the format can hold
    │   └── UnknownOption   there is no option of this name (also a TypeError)
    ├── UnknownFormat       no format recognises these files
    │   └── AmbiguousFormat   several formats do
    ├── NotFound            there is no journal, file, segment or consumer of this name (also a FileNotFoundError)
    ├── HistoryUnavailable  the answer depends on records that are no longer kept, or are lost
    ├── Empty               a queue has no item to reserve (also a queue.Empty)
    ├── Full                a queue has reached its limit of items or bytes (also a queue.Full)
    │   └── CapacityExceeded  a store has reached the limit of its buffer
    ├── Locked              another process holds the journal or the consumer
    ├── Closed              the reader or writer has been closed
    ├── Poisoned            an earlier write or sync failed, or a call was interrupted: this writer accepts nothing more
    ├── StorageFailed       the system refused a file operation (also an OSError)
    ├── Truncated           a file became shorter than what was already read of it
    ├── ExpectationFailed   rows do not meet an expectation of the pipeline; its tables have not changed
    ├── HandlerFailed       a consumer's handler kept failing on a record
    └── DamagedJournal      bytes that break the format's rules
        └── Gap             records are missing between two files

Whatever the bytes of a journal are, reading raises no other errors.
"""

from __future__ import annotations

import errno
import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, Final

_NO_FILE: Final = (errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.EINVAL, errno.ENXIO)
"""The errors of opening a path that is not a plain file."""

_NO_ACCESS: Final = (errno.EACCES, errno.EPERM)

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LogwrightError(Exception):
    """The root of all errors of this library."""


class WrongUse(LogwrightError, ValueError):
    """The call itself was wrong; nothing was read or written."""


class TooLarge(WrongUse):
    """A record, a key or a value is larger than the format can hold."""


class UnknownOption(WrongUse, TypeError):
    """There is no option of this name; the message says which one was probably meant."""


class UnknownFormat(LogwrightError):
    """No format recognises these files, or more than one does."""


class AmbiguousFormat(UnknownFormat):
    """More than one format recognises these files; the message says how to name one."""


class NotFound(LogwrightError, FileNotFoundError):
    """There is no journal, file or consumer of this name."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class HistoryUnavailable(LogwrightError):
    """The answer depends on records that are too old, whose archive is gone, or that are lost."""


class Empty(LogwrightError, queue.Empty):
    """A queue has no item to reserve, and none arrived within the timeout."""


class Full(LogwrightError, queue.Full):
    """A queue has reached its limit of items or bytes."""


class CapacityExceeded(Full):
    """The state of a store and the new value do not fit the largest buffer that it may have."""


class Locked(LogwrightError):
    """Another process, or another object of this one, holds the lock.

    `holder` names it, such as `process 812, python3` or `this process`; None if the system does not say. It is part of
    the message.
    """

    def __init__(self, message: str, holder: str | None = None) -> None:
        super().__init__(message if holder is None else f"{message} ({holder})")
        self.holder = holder


class Closed(LogwrightError):
    """The object has been closed."""


class Poisoned(LogwrightError):
    """A write or a sync failed earlier, or a call was interrupted half-way; this writer accepts nothing more.

    Open a new one: it recovers what was acknowledged.
    """


class StorageFailed(LogwrightError, OSError):
    """The operating system refused a file operation: disk full, input/output error, no permission."""

    def __init__(self, action: str, path: PurePath | str, cause: OSError) -> None:
        hint = "; give this user access to it, then run this again" if cause.errno in _NO_ACCESS else ""
        super().__init__(cause.errno, f"{action} {path}: {cause.strerror or cause}{hint}")
        self.action = action
        self.path = path

    def __str__(self) -> str:
        return str(self.args[1])


class Truncated(LogwrightError):
    """A file became shorter than what had already been read of it."""


class ExpectationFailed(LogwrightError):
    """Rows do not meet an expectation of the pipeline whose action is `fail`. The tables have not changed."""


class HandlerFailed(LogwrightError):
    """A consumer's handler kept failing on a record; its own error is the cause of this one."""


class DamagedJournal(LogwrightError):
    """Bytes that break the rules of the format.

    `position` is the first damaged byte of `file`, and `reason` is what is wrong with it.
    """

    def __init__(self, file: PurePath | str, position: int, reason: str) -> None:
        super().__init__(file, position, reason)
        self.file = file
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file} @ {self.position}: {self.reason}"


class Gap(DamagedJournal):
    """Records are missing between two files, or between two records.

    `after` has the records that follow, with their places, if they were read first: see `Reader.last`.
    """

    after: Sequence[Any] = ()


@contextmanager
def renaming_damage(rename: Callable[[str], PurePath | str]) -> Iterator[None]:
    """Raise damage with the name that `rename` gives to its file."""
    try:
        yield
    except DamagedJournal as error:
        file = rename(str(error.file))
        if str(file) == str(error.file):
            raise
        raise type(error)(file, error.position, error.reason) from error


def is_refusal(error: BaseException) -> bool:
    """Whether opening a file failed for a reason that does not concern the file, such as too many open files.

    A link or directory in place of a file, a read error and missing permissions do concern the file: it is reported as
    a problem, and the other files are still checked.
    """
    if not isinstance(error, StorageFailed) or error.action != "open":
        return False
    return error.errno not in _NO_FILE and error.errno not in _NO_ACCESS


def is_no_file(error: BaseException) -> bool:
    """Whether a path is not a plain file, but a directory, a link or a special file."""
    return isinstance(error, StorageFailed) and error.action == "open" and error.errno in _NO_FILE


def is_no_access(error: BaseException) -> bool:
    """Whether access rights were missing: then the call has changed nothing."""
    return isinstance(error, StorageFailed) and error.errno in _NO_ACCESS


def is_no_space(error: BaseException) -> bool:
    """Whether the disk was full."""
    return isinstance(error, StorageFailed) and error.errno in _NO_SPACE
