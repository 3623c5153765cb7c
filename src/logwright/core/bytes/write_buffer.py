"""WriteBuffer: the base of every codec's AppendBuffer, which collects the bytes that a writer will write.

Records are encoded one after the other, and `take` returns the bytes so far. The writer that owns the buffer sets two
functions: `attend` is called when the buffer holds `attention_bytes`; while `refusing` is set, every append calls
`refuse`, which raises. `_write_buffer.pyx` is the same for the kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...errors import WrongUse


class WriteBuffer:
    """Bytes that wait to be written to a file."""

    def __init__(self, attention_bytes: int, *, first_bytes: int = -1) -> None:
        """`first_bytes` is how large a buffer of the kernel is at first; here it grows by itself."""
        self.attention_bytes = attention_bytes
        self.refusing = False
        self.attend: Callable[[], object] = _ignore
        self.refuse: Callable[[], object] = _refuse
        self._buffer = bytearray()
        self._adding = threading.Lock()  # the kernel needs none: it holds the GIL throughout

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes in the buffer."""
        return len(self._buffer)

    def take(self) -> tuple[bytearray, int]:
        """The buffer and the number of bytes in it. It is valid until `take` has been called twice more."""
        with self._adding:
            return self._swap()

    def _swap(self) -> tuple[bytearray, int]:
        """The same; the caller holds `_adding`."""
        buffer, self._buffer = self._buffer, bytearray()
        return buffer, len(buffer)


def _ignore() -> None:
    """The buffer is full, and grows."""


def _refuse() -> None:
    raise WrongUse("this buffer takes no more records")
