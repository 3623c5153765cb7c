"""Closing: the base of classes that are closed at the end of their `with` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from ...errors import LogwrightError, Poisoned
from ..options import NamedOptions


class Closing(NamedOptions):
    """Adds the `with` statement to a class that has `close`."""

    __slots__ = ()

    def close(self) -> None:
        """Release all resources. A second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with at_the_end_of_a_block(error):
            self.close()


@contextmanager
def at_the_end_of_a_block(error: BaseException | None) -> Iterator[None]:
    """Raise the error that ends a `with` block, often an interrupt, instead of the `Poisoned` that the interrupt
    caused.

    The `Poisoned` becomes a note of the error. A failure to write or to sync is raised.
    """
    try:
        yield
    except Poisoned as poisoned:
        if error is None or is_failure(poisoned.__cause__):
            raise
        error.add_note(str(poisoned))


def is_failure(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is a failure of the system or the library.

    Other errors are interrupts: a signal handler raised them.
    """
    while error is not None:
        if isinstance(error, LogwrightError | OSError):
            return True
        error = error.__cause__ or error.__context__
    return False
