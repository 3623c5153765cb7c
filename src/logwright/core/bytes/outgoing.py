"""Outgoing: the base of every codec's AppendBuffer, which gathers the bytes that a writer will write.

Records are encoded one behind the other; `take` hands over what has gathered. A writer is this and `Appending`: it is
told by `_attend` when `attention_bytes` wait, and while `refusing` is set, every append calls `_refuse`. The kernels
have the same in `_outgoing.pyx`.
"""

from __future__ import annotations

import threading

from ...errors import WrongUse


class Outgoing:
    """Bytes on their way to a file."""

    records_name = "records"

    def __init__(self, attention_bytes: int) -> None:
        self.attention_bytes = attention_bytes
        self.refusing = False
        self._buffer = bytearray()
        self._adding = threading.Lock()  # the kernel needs none: nothing interrupts it

    @property
    def buffered_bytes(self) -> int:
        """How many bytes wait to be taken."""
        return len(self._buffer)

    def take(self) -> tuple[bytearray, int]:
        """What has gathered: a buffer, and how much of it counts. It may be used until the next but one `take`."""
        with self._adding:
            return self._swap()

    def _swap(self) -> tuple[bytearray, int]:
        """What has gathered; `_adding` is held."""
        buffer, self._buffer = self._buffer, bytearray()
        return buffer, len(buffer)

    def _attend(self) -> None:
        """Called when `attention_bytes` wait."""

    def _refuse(self) -> None:
        """Called in place of an append while `refusing` is set; must raise."""
        raise WrongUse(f"this buffer takes no {self.records_name}")
