"""Interrupted calls of a journal of messages, and the invariants after them: `tests/contract/test_interrupts.py`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from logwright.errors import Poisoned
from logwright.sej.bytes.records import Message
from logwright.sej.files.reader import Reader
from logwright.sej.files.shard import ShardedReader
from logwright.sej.files.writer import Writer
from logwright.sej.model.offset import Offset
from logwright.sej.model.shard_writer import ShardedWriter
from tests.support.interrupts import Case, Interrupt

VALUES = [b"%d" % number * 10 for number in range(6)]


BATCH = pa.Table.from_batches([pa.record_batch({"value": [value]}) for value in (b"x", b"y" * 200, b"z")])


class Try(NamedTuple):
    """A call of a writer whose journal has `VALUES` on the disk, and the messages that it may have appended."""

    call: Callable[[Writer], object]
    appends: list[bytes]
    waiting: list[bytes] = []  # noqa: RUF012
    ends: bool = False


TRIES = {
    "append": Try(lambda writer: writer.append(b"x"), [b"x"]),
    "append and roll": Try(lambda writer: writer.append(b"x" * 200), [b"x" * 200]),
    "flush": Try(lambda writer: writer.flush(), [], [b"a", b"b" * 200, b"c"]),
    "sync": Try(lambda writer: writer.sync(), [], [b"a", b"b" * 200, b"c"]),
    "append a batch": Try(lambda writer: writer.append_batch(BATCH), [b"x", b"y" * 200, b"z"]),
    "close": Try(lambda writer: writer.close(), [], [b"a", b"b" * 200], ends=True),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "": {"buffer_bytes": 1 << 16},
    ", written at once": {"buffer_bytes": 1},
    ", synced": {"sync": "always"},
    ", with checksums": {"buffer_bytes": 1, "checksums": True},
}


def values_of(directory: Path) -> list[bytes]:
    return [message.value for message in Reader(directory)]


def trial(found: Try, settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    writer = Writer(directory, segment_size=250, **settings)
    for value in VALUES:
        writer.append(value)
    writer.sync()
    for value in found.waiting:
        writer.append(value)
    if not interrupt(lambda: found.call(writer)):
        writer.close()
        return
    more = [*found.waiting, *found.appends]
    if found.ends:
        with suppress(Poisoned):
            writer.close()
    elif writer.refusing:
        for call in (lambda: writer.append(b"no"), writer.flush, writer.sync):
            with pytest.raises(Poisoned, match="open"):
                call()
        writer.close()
    else:
        writer.append(b"later")
        writer.close()
        assert values_of(directory) in (
            [*VALUES, *found.waiting, b"later"],
            [*VALUES, *more, b"later"],
        )
        return
    with Writer(directory) as writer:
        after = values_of(directory)
        assert after in [[*VALUES, *more[:number]] for number in range(len(more) + 1)]
        writer.append(b"again")
    assert values_of(directory) == [*after, b"again"]


def opening(settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    with Writer(directory, segment_size=250, **settings) as writer:
        for value in VALUES:
            writer.append(value)
    if not interrupt(lambda: Writer(directory, **settings)) or interrupt.result is not None:
        interrupt.result.close()
    with Writer(directory) as writer:
        writer.append(b"x")
    assert values_of(directory) == [*VALUES, b"x"]


class ShardTry(NamedTuple):
    """A call of a writer of two shards that have `VALUES` on the disk, and the messages that it may have appended."""

    call: Callable[[ShardedWriter], object]
    appends: list[bytes]
    waiting: list[bytes] = []  # noqa: RUF012


SHARD_TRIES = {
    "append to a shard": ShardTry(lambda writer: writer.append(b"x"), [b"x"]),
    "append to a new shard": ShardTry(lambda writer: writer.append(b"new"), [b"new"]),
    "append a batch to shards": ShardTry(lambda writer: writer.append_batch(BATCH), [b"x", b"y" * 200, b"z"]),
    "flush shards": ShardTry(lambda writer: writer.flush(), [], [b"a", b"b"]),
    "sync shards": ShardTry(lambda writer: writer.sync(), [], [b"a", b"b"]),
    "close shards": ShardTry(lambda writer: writer.close(), [], [b"a", b"b"]),
}


def shard_of(message: Message) -> int:
    return 2 if message.value == b"new" else message.value[0] & 1


def shards(directory: Path, settings: dict[str, Any]) -> ShardedWriter:
    return ShardedWriter(directory, "s", 2, shard_of, segment_size=250, **settings)


def values_in_shards(directory: Path) -> list[bytes]:
    return sorted(message.value for message in ShardedReader(directory))


def trial_of_shards(found: ShardTry, settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    writer = shards(directory, settings)
    for value in VALUES:
        writer.append(value)
    writer.sync()
    for value in found.waiting:
        writer.append(value)
    was_interrupted = interrupt(lambda: found.call(writer))
    is_poisoned = any(shard.refusing for shard in writer.writers.values())
    with suppress(Poisoned) if was_interrupted else nullcontext():
        writer.close()
    after = values_in_shards(directory)
    whole = sorted([*VALUES, *found.waiting, *found.appends])
    if not was_interrupted:
        assert after == whole
    elif not is_poisoned:
        assert after in (sorted([*VALUES, *found.waiting]), whole)
    assert set(VALUES) <= set(after) <= set(whole)
    assert len(after) == len(set(after))
    with shards(directory, settings) as writer:
        for value in VALUES:
            writer.append(value + b"again")
    assert values_in_shards(directory) == sorted([*after, *(value + b"again" for value in VALUES)])


def committing(directory: Path, interrupt: Interrupt) -> None:
    with Writer(directory) as writer:
        for value in VALUES:
            writer.append(value)
    offset = Offset(directory, "me")
    offset.commit(2)
    if interrupt(lambda: offset.commit(4)):
        try:
            offset.commit(offset.value)
        except Poisoned:
            pass
        else:
            assert offset.value in (2, 4)
    offset.close()
    with Offset(directory, "me") as offset:
        assert offset.value in (2, 4)


def opening_offset(directory: Path, interrupt: Interrupt) -> None:
    Writer(directory).close()
    if not interrupt(lambda: Offset(directory, "me")) or interrupt.result is not None:
        interrupt.result.close()
    Offset(directory, "me").close()


def closing_offset(directory: Path, interrupt: Interrupt) -> None:
    Writer(directory).close()
    offset = Offset(directory, "me")
    interrupt(offset.close)
    offset.close()
    Offset(directory, "me").close()


CASES: dict[str, Case] = {
    "commit an offset": committing,
    "open an offset": opening_offset,
    "close an offset": closing_offset,
}
for _suffix, _settings in SETTINGS.items():
    CASES[f"opening{_suffix}"] = partial(opening, _settings)
    for _name, _found in TRIES.items():
        CASES[f"{_name}{_suffix}"] = partial(trial, _found, _settings)
    for _name, _tried in SHARD_TRIES.items():
        CASES[f"{_name}{_suffix}"] = partial(trial_of_shards, _tried, _settings)
