"""Closing: what is closed at the end of its `with` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from ...errors import LogwrightError, Poisoned


class Closing:
    """Gives a class that has `close` its `with` statement."""

    __slots__ = ()

    def close(self) -> None:
        """Give back what is held. A second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with at_the_end_of_a_block(error):
            self.close()


@contextmanager
def at_the_end_of_a_block(error: BaseException | None) -> Iterator[None]:
    """Let the error that ends a `with` block be raised, often an interrupt itself, and not what the interrupt has done.

    That a writer was poisoned by an interrupt becomes a note of the error. A failure to write or to sync is raised.
    """
    try:
        yield
    except Poisoned as poisoned:
        if error is None or is_failure(poisoned.__cause__):
            raise
        error.add_note(str(poisoned))


def is_failure(error: BaseException | None) -> bool:
    """Whether an error says, or was raised while another one said, that the system refused something.

    Others come from outside: a signal handler has raised them.
    """
    while error is not None:
        if isinstance(error, LogwrightError | OSError):
            return True
        error = error.__cause__ or error.__context__
    return False
