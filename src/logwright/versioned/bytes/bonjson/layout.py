"""The layout of BONJSON, in the dialect that bd-bonjson writes: type codes, and the limits on what is read.

A document is one value. Its first byte, the type code, says what kind of value it is, and holds the value itself where
that is small. All numbers are little-endian.

    00-64  integer 0..100            6d 6e 6f  null, false, true       99  array:  values, then 9b
    65-67  reserved                  70-77     unsigned, 1..8 bytes    9a  object: key, value, key, value, then 9b
    68     long string               78-7f     signed, 1..8 bytes      9b  the end of an array or object
    69     big number, not supported 80-8f     string of 0..15 bytes   9c-ff  integer -100..-1
    6a 6b 6c  float of 2, 4, 8 bytes 90-98     reserved

A long string is a list of chunks: a length field, and as many bytes. The payload of the field is length * 2, plus 1
when another chunk follows. A field of k = 1..8 bytes has the number `payload << k | 1 << (k - 1)`, so the zero bits at
the low end of its first byte give k. A payload of more than 56 bits is the byte 00, and then its 8 bytes.

The published specification went on to other codes in 2026: they would be a second table of kinds beside this one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Final

from ....errors import WrongUse

(
    INTEGER_IN_CODE,
    UNSIGNED,
    SIGNED,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    NULL,
    FALSE,
    TRUE,
    SHORT_STRING,
    LONG_STRING,
    ARRAY,
    OBJECT,
    CONTAINER_END,
    BIG_NUMBER,
    RESERVED,
) = range(16)
"""The kinds of values that a type code can announce."""

RANGES: Final = (
    (0x00, 0x64, INTEGER_IN_CODE),
    (0x65, 0x67, RESERVED),
    (0x68, 0x68, LONG_STRING),
    (0x69, 0x69, BIG_NUMBER),
    (0x6A, 0x6A, FLOAT16),
    (0x6B, 0x6B, FLOAT32),
    (0x6C, 0x6C, FLOAT64),
    (0x6D, 0x6D, NULL),
    (0x6E, 0x6E, FALSE),
    (0x6F, 0x6F, TRUE),
    (0x70, 0x77, UNSIGNED),
    (0x78, 0x7F, SIGNED),
    (0x80, 0x8F, SHORT_STRING),
    (0x90, 0x98, RESERVED),
    (0x99, 0x99, ARRAY),
    (0x9A, 0x9A, OBJECT),
    (0x9B, 0x9B, CONTAINER_END),
    (0x9C, 0xFF, INTEGER_IN_CODE),
)
"""First code, last code, kind."""
KINDS: Final = bytes(kind for first, last, kind in RANGES for _ in range(first, last + 1))
"""The kind of each type code."""

SMALLEST_IN_CODE: Final = -100
LARGEST_IN_CODE: Final = 100
SHORT_STRING_BYTES: Final = 15
"""The longest string whose length is in its type code."""
MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**64 - 1

LONG_STRING_CODE: Final = 0x68
FLOAT16_CODE: Final = 0x6A
FLOAT32_CODE: Final = 0x6B
FLOAT64_CODE: Final = 0x6C
NULL_CODE: Final = 0x6D
FALSE_CODE: Final = 0x6E
TRUE_CODE: Final = 0x6F
UNSIGNED_CODE: Final = 0x70
SIGNED_CODE: Final = 0x78
SHORT_STRING_CODE: Final = 0x80
ARRAY_CODE: Final = 0x99
OBJECT_CODE: Final = 0x9A
END_CODE: Final = 0x9B

NO_LIMIT: Final = 2**63 - 1
"""No limit except the size of the buffer: every length is checked against it before it is used."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a document may be, the same for reading and for writing.

    `depth` counts the containers around a value: a document that is a number has 0, `[]` has 1. `container_items` are
    the values of an array or the pairs of an object, `string_bytes` the bytes of one string or key.
    """

    depth: int = 500
    document_bytes: int = NO_LIMIT
    string_bytes: int = NO_LIMIT
    container_items: int = NO_LIMIT

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or not 0 <= value <= NO_LIMIT:
                raise WrongUse(f"the limit {field.name} is {value!r}, and must be an integer from 0 on")


DEFAULT_LIMITS: Final = Limits()
"""500 containers deep, and otherwise no limits."""

assert len(KINDS) == 256
assert all(before[1] + 1 == after[0] for before, after in pairwise(RANGES))
