"""WriteBuffer: the base of every codec's AppendBuffer, which collects the bytes that a writer will write.

Records are encoded one after the other, and `take` returns the bytes so far. A writer derives from this and from
`Appending`. The buffer calls `_attend` when it holds `attention_bytes`; while `refusing` is set, every append calls
`_refuse`. `_write_buffer.pyx` is the same for the kernels.
"""

from __future__ import annotations

import threading

from ...errors import WrongUse


class WriteBuffer:
    """Bytes that wait to be written to a file."""

    records_name = "records"

    def __init__(self, attention_bytes: int, *, first_bytes: int = -1) -> None:
        """`first_bytes` is how large a buffer of the kernel is at first; here it grows by itself."""
        self.attention_bytes = attention_bytes
        self.refusing = False
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

    def _attend(self) -> None:
        """Called when the buffer holds `attention_bytes`."""

    def _refuse(self) -> None:
        """Called instead of an append while `refusing` is set; must raise."""
        raise WrongUse(f"this buffer takes no {self.records_name}")
