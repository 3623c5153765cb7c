"""A copy compared with a list as its model: for any puts in any order, both have the same results and contents."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import LogwrightError
from logwright.sej import Reader
from logwright.sej.bytes.wire import number_field
from logwright.servers.hub import Conflict, Limits, OutOfStep
from logwright.servers.hub.copies import Copies, Copy
from logwright.servers.hub.requests import BEGINS, SEGMENT, read_put
from tests.servers.hub.support import message
from tests.servers.hub.wire_messages import PutRequest
from tests.support.counts import COUNTS

LARGE = (2**31, 2**63 - 1, 2**63, 2**64 - 3)
STEPS = 400


@dataclass
class Model:
    """The expected contents of a copy: messages from `first` on, in segments that begin with these offsets."""

    first: int | None = None
    values: list[bytes] = field(default_factory=list)
    segments: set[int] = field(default_factory=set)

    @property
    def next(self) -> int:
        return (self.first or 0) + len(self.values)

    def put(self, offset: int, values: list[bytes], segment: int | None, begins: bool) -> object:
        """The next offset of the copy, or the kind of the error."""
        if not values:
            if segment is None:
                return self.next
            offset = segment
        if self.first is None:
            if offset and not begins:
                return OutOfStep if values else 0
            self.first = offset
            self.segments.add(offset)
        if offset > self.next:
            return OutOfStep
        for place, value in enumerate(values, start=offset):
            if self.first <= place < self.next and self.values[place - self.first] != value:
                return Conflict
        new = values[self.next - offset :]
        if segment == offset == self.next:
            self.segments.add(segment)
        self.values += new
        return self.next


def random_put(chance: random.Random, model: Model) -> tuple[int, list[bytes], int | None, bool]:
    following = model.next
    offset = chance.choice([following, following, max(0, following - 1), max(0, following - 4), following + 1])
    if model.first is None and chance.random() < 0.5:
        offset = chance.choice(LARGE)
    begins = chance.random() < 0.3
    count = chance.choice([0, 1, 1, 2, 5])
    # Mostly what the source would send again; occasionally something else.
    values = [b"%d" % (place if chance.random() < 0.98 else 0) for place in range(offset, offset + count)]
    segment = chance.choice([None, None, offset, max(0, offset - 1)])
    return offset, values, segment, begins


def as_put(offset: int, values: list[bytes], segment: int | None, begins: bool) -> Any:
    messages = [message(place, value) for place, value in enumerate(values, start=offset)]
    data = PutRequest(ClientID="web", JournalDir="orders", Messages=messages).SerializeToString()
    data += b"" if segment is None else number_field(SEGMENT, segment, always=True)
    return read_put(data + number_field(BEGINS, int(begins)), 1 << 20)


@pytest.mark.parametrize("seed", range(6))
def test_copy_behaves_like_a_list_for_any_puts(seed: int, tmp_path: Path) -> None:
    chance, model = random.Random(seed), Model()
    copies = Copies(tmp_path, Limits())
    copy = Copy(copies, tmp_path / "web.orders")
    try:
        for step in range(STEPS):
            put = random_put(chance, model)
            if put[0] + len(put[1]) > 2**64 - 1 or (put[2] or 0) > put[0]:
                continue
            (answer,) = copy.take([as_put(*put)])
            found = type(answer) if isinstance(answer, LogwrightError) else answer
            assert found == model.put(*put), f"step {step}: {put}"
            if chance.random() < 0.05:
                copy.close()
            COUNTS.add("hostile inputs", 1, "hub")
    finally:
        copy.close()
        copies.shut()
    assert model.first is not None
    reader = Reader(tmp_path / "web.orders")
    assert [found.value for found in reader] == model.values
    assert (reader.first, reader.next) == (model.first, model.next)
    assert {segment.first_offset for segment in reader.segments()} == model.segments
    assert reader.verify().sound
