"""The requests and answers of a hub as bytes, and the names in them. Protobuf, as in the original, with more fields.

    PutRequest    1 ClientID string   2 JournalDir string   3 Messages     30 Segment uint64   31 Begins uint64
                                                                           29 Lost uint64
    PutResponse                                                            30 Next uint64
    GetRequest    1 ClientID string   2 JournalDir string   3 Offset uint64
    GetResponse                                             1 Messages     30 Segment uint64   29 Lost uint64
    ListRequest   1 ClientID string
    ListResponse                                            1 Journals repeated string

The original has no fields from 29 on, and skips them. `Segment` is the first offset of the segment of the messages;
without messages it says that a segment begins there. `Begins` is 1 if the journal has no earlier messages, because they
were cleaned. `Next` is the offset that the copy continues with. `Lost` is the offset of the first of the messages that
the journal has lost right before these, according to its account of losses.

A client's name has letters, digits, `_` and `-`. A journal's name may also have single dots inside, as those of shards
have. The whole name is matched: slashes, `..` and control characters are rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ...errors import WrongUse
from ...sej.bytes import wire
from ...sej.model.copying import Batch

PUT: Final = "/hub.Hub/Put"
GET: Final = "/hub.Hub/Get"
LIST: Final = "/hub.Hub/List"

CLIENT, JOURNAL, PUT_MESSAGES, OFFSET = 1, 2, 3, 3
GET_MESSAGES = 1
LOST, SEGMENT, NEXT, BEGINS = 29, 30, 30, 31
EXPECTED_KEY: Final = "logwright-expected"
"""The metadata of an error with the offset that a copy continues with."""
MOST_CHARACTERS: Final = 100
"""Of each name, so that two of them and a dot are a valid directory name on every system."""
_CLIENT: Final = re.compile(r"[A-Za-z0-9_-]+")
_JOURNAL: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


# --- names ----------------------------------------------------------------------------------------------------------


def check_client(client: str) -> None:
    """Raise `WrongUse` if this is not a valid name of a client."""
    _check("client", client, _CLIENT, "letters, digits, _ and -")


def check_journal(journal: str) -> None:
    """Raise `WrongUse` if this is not a valid name of a journal."""
    _check("journal", journal, _JOURNAL, "letters, digits, _ and -, and single dots between them")


def is_journal(name: str) -> bool:
    """Whether this is a valid name of a journal."""
    return len(name) <= MOST_CHARACTERS and _JOURNAL.fullmatch(name) is not None


def _check(what: str, name: str, pattern: re.Pattern[str], allowed: str) -> None:
    if len(name) > MOST_CHARACTERS:
        raise WrongUse(f"a {what}'s name of {len(name)} characters is too long: the limit is {MOST_CHARACTERS}")
    if not pattern.fullmatch(name):
        raise WrongUse(f"{name!r} is not a valid name of a {what}: use {allowed}")


# --- fields ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Put:
    """Messages for the copy of a journal. Without messages and segment, it asks where the copy continues."""

    client: str
    journal: str
    batch: Batch
    begins: bool

    @property
    def is_question(self) -> bool:
        """Whether there is nothing to write."""
        return not self.batch.count and self.batch.segment is None


@dataclass(frozen=True, slots=True)
class Get:
    """A request for the messages of a copy from an offset on."""

    client: str
    journal: str
    offset: int


def _text(fields: dict[int, int | bytes], field: int) -> str:
    value = fields.get(field, b"")
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else ""
    except UnicodeDecodeError:
        raise WrongUse("a name in the request is not UTF-8") from None


def _number(fields: dict[int, int | bytes], field: int) -> int | None:
    value = fields.get(field)
    return value if isinstance(value, int) else None


def _lost_from(fields: dict[int, int | bytes], first: int, segment: int | None) -> int | None:
    """The offset of the first lost message before these. A gap is only possible at the beginning of a segment."""
    lost_from = _number(fields, LOST)
    return lost_from if lost_from is not None and lost_from < first == segment else None


# --- put ------------------------------------------------------------------------------------------------------------


def put_head(client: str, journal: str, segment: int | None, begins: bool, lost_from: int | None = None) -> bytes:
    """A PutRequest without its messages, which follow it."""
    return b"".join(
        (
            wire.bytes_field(CLIENT, client.encode()),
            wire.bytes_field(JOURNAL, journal.encode()),
            b"" if segment is None else wire.number_field(SEGMENT, segment, always=True),
            wire.number_field(BEGINS, int(begins)),
            b"" if lost_from is None else wire.number_field(LOST, lost_from, always=True),
        )
    )


def put_messages(batch: Batch) -> bytes:
    """The messages of a batch as fields of a PutRequest; those of several batches can be joined."""
    return wire.to_wire(batch.frames, 0, len(batch.frames), batch.count, PUT_MESSAGES)


def read_put(data: bytes, most_bytes: int) -> Put:
    """Decode a PutRequest whose messages have at most `most_bytes` in a segment, where they are larger than here.

    Raises `WrongUse` or `TooLarge`.
    """
    frames, first, count, smallest, largest, fields = wire.from_wire(data, PUT_MESSAGES, most_bytes)
    segment = _number(fields, SEGMENT)
    if not count:
        first = segment or 0
    elif segment is not None and segment > first:
        raise WrongUse(f"offset {first} is not in the segment that begins with {segment}")
    batch = Batch(frames, first, count, smallest, largest, segment, _lost_from(fields, first, segment))
    batch.check_offsets()  # before a copy is created that could not store them
    return Put(_text(fields, CLIENT), _text(fields, JOURNAL), batch, bool(_number(fields, BEGINS)))


def put_answer(next_offset: int) -> bytes:
    """A PutResponse."""
    return wire.number_field(NEXT, next_offset, always=True)


def read_put_answer(data: bytes) -> int | None:
    """The offset that the copy continues with; None from a hub that does not say."""
    return _number(wire.from_wire(data, PUT_MESSAGES, 0)[5], NEXT)


# --- get ------------------------------------------------------------------------------------------------------------


def get_request(client: str, journal: str, offset: int) -> bytes:
    """A GetRequest."""
    return put_head(client, journal, None, False) + wire.number_field(OFFSET, offset)


def read_get(data: bytes) -> Get:
    """Decode a GetRequest; its third field is a number, unlike that of a PutRequest."""
    fields = wire.from_wire(data, 15, 0)[5]
    return Get(_text(fields, CLIENT), _text(fields, JOURNAL), _number(fields, OFFSET) or 0)


def get_answer(messages: list[bytes], segment: int | None, lost_from: int | None = None) -> bytes:
    """A GetResponse of messages made by `get_messages`."""
    numbers = [(SEGMENT, segment), (LOST, lost_from)]
    head = [wire.number_field(field, number, always=True) for field, number in numbers if number is not None]
    return b"".join([*head, *messages])


def get_messages(frames: memoryview, count: int) -> bytes:
    """Messages of a segment as fields of a GetResponse."""
    return wire.to_wire(frames, 0, len(frames), count, GET_MESSAGES)


def read_get_answer(data: bytes, offset: int, most_bytes: int) -> Batch:
    """The messages of a GetResponse; without any, an empty batch at the segment that begins there, if any."""
    frames, first, count, smallest, largest, fields = wire.from_wire(data, GET_MESSAGES, most_bytes)
    segment = _number(fields, SEGMENT)
    if not count:
        first = offset if segment is None else segment
    batch = Batch(frames, first, count, smallest, largest, segment, _lost_from(fields, first, segment))
    batch.check_offsets()  # before a journal is created that could not store them
    return batch


# --- list -----------------------------------------------------------------------------------------------------------


def list_request(client: str) -> bytes:
    """A ListRequest."""
    return wire.bytes_field(CLIENT, client.encode())


def read_list(data: bytes) -> str:
    """The client of a ListRequest."""
    return _text(wire.from_wire(data, 15, 0)[5], CLIENT)


def list_answer(journals: list[str]) -> bytes:
    """A ListResponse. Names are ASCII and shorter than 128 characters, so each needs two more bytes."""
    return b"".join(bytes((GET_MESSAGES << 3 | 2, len(name))) + name.encode("ascii") for name in journals)


def read_list_answer(data: bytes) -> list[str]:
    """The journals of a ListResponse."""
    found, position = [], 0
    while position + 2 <= len(data) and data[position] == GET_MESSAGES << 3 | 2:
        size = data[position + 1]
        found.append(data[position + 2 : position + 2 + size].decode("ascii", "replace"))
        position += 2 + size
    if position != len(data) or not all(map(is_journal, found)):
        raise WrongUse("the hub's answer is not a list of journals")
    return found
