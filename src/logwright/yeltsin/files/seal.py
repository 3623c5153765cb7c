"""The seal: data in our completions, so that a redo needs only the journal and never applies a torn transaction.

A completion may have data, which the format does not interpret. Ours is

    0        4         8                                            32
    | "LWR1" | crc32c  | first page | last page | last free page |  | page, flags, next, previous, rows | ...
                         only if the transaction allocates or removes     27 bytes for each head

- **The checksum** is over `previous` and `timestamp` of the transaction, its operations, and what follows the checksum.
  Links, operations and completion reach the disk by one sync, sector by sector, in any order. A power cut may leave the
  completion and not what is before it; the checksum shows that, and such a transaction counts as one that has no end.
- **The heads** are those of the pages whose links the transaction changes, and the table's own links, as they are
  afterwards: operations do not say what becomes of the neighbours of a page. So everything that applying the
  transaction writes to the table can be written again from the journal alone, whatever is in the table by then.

A completion without a seal is another program's, and is what it looks like. `verify` and `repair` check every seal,
opening only the last ones. The flags of a sealed transaction are ours, so they are 0 or 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Final

from ...core.bytes.buffers import Buffer
from ...core.bytes.crc32c import crc32c
from ..bytes import codec
from ..bytes.layout import OPERATION_HEAD_BYTES, TRANSACTION_HEAD, TRANSACTION_HEAD_BYTES
from ..bytes.records import Transaction
from ..bytes.table_layout import TABLE_LINKS, PageHead, TableLinks

MARK: Final = b"LWR1"
SEAL_HEAD: Final = struct.Struct("<4sI")
SEALED_HEAD: Final = struct.Struct("<QBQQH")
"""page, and its flags, next, previous, rows"""
COVERED_HEAD: Final = struct.Struct("<Qq")
"""previous, timestamp: the part of a transaction's head that the checksum covers; the rest of it changes later"""

CHANGED: Final = "the transaction does not match its seal: its bytes or the seal have changed"

assert SEAL_HEAD.size == 8
assert SEALED_HEAD.size == 27


@dataclass(frozen=True, slots=True)
class Heads:
    """The links of a table and the heads of pages after a transaction."""

    links: TableLinks
    pages: dict[int, PageHead] = field(default_factory=dict)

    def encode(self) -> bytes:
        return self.links.encode() + b"".join(SEALED_HEAD.pack(page, *head) for page, head in self.pages.items())


def seal(previous: int, timestamp: int, operations: Buffer, heads: bytes = b"") -> bytes:
    """The data of the completion of a transaction whose operations are these bytes."""
    value = crc32c(heads, crc32c(operations, crc32c(COVERED_HEAD.pack(previous, timestamp))))
    return SEAL_HEAD.pack(MARK, value) + heads


def is_sealed(end_data: Buffer) -> bool:
    """Whether a completion carries a seal."""
    size = len(end_data) - SEAL_HEAD.size - TABLE_LINKS.size
    return end_data[: len(MARK)] == MARK and (
        len(end_data) == SEAL_HEAD.size or (size >= 0 and size % SEALED_HEAD.size == 0)
    )


def holds(transaction: Transaction, data: Buffer) -> bool:
    """Whether the seal of a transaction matches its bytes, `data`."""
    end_data = transaction.end_data
    operations = memoryview(data)[TRANSACTION_HEAD_BYTES : -OPERATION_HEAD_BYTES - len(end_data)]
    return end_data == seal(transaction.previous, transaction.timestamp, operations, end_data[SEAL_HEAD.size :])


def without_wrong_seal(transaction: Transaction) -> Transaction:
    """A transaction that is copied to this place, without a seal that was made for another place.

    The seal is not computed again: it would prove bytes that nothing has verified.
    """
    if is_sealed(transaction.end_data) and not holds(transaction, codec.encode(transaction)):
        return replace(transaction, end_data=b"")
    return transaction


def begin_seal(head: Buffer, previous: int | None = None) -> int:
    """The checksum of the head of a transaction. Its operations and the heads in the seal are added to it.

    `previous` replaces the value in the head.
    """
    found, _, timestamp, _ = TRANSACTION_HEAD.unpack_from(head)
    return crc32c(COVERED_HEAD.pack(found if previous is None else previous, timestamp))


def sealed_heads(end_data: bytes) -> Heads | None:
    """The heads in a seal; None if the links of no page change, or if there is no seal."""
    if not is_sealed(end_data) or len(end_data) == SEAL_HEAD.size:
        return None
    links = TableLinks(*TABLE_LINKS.unpack_from(end_data, SEAL_HEAD.size))
    found = SEALED_HEAD.iter_unpack(memoryview(end_data)[SEAL_HEAD.size + TABLE_LINKS.size :])
    return Heads(links, {page: PageHead(*head) for page, *head in found})
