"""Closing: what is closed at the end of its `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self


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
        self.close()
