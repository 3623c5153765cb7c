"""Interrupted calls of a journal of segments, and the invariants after them: `tests/contract/test_interrupts.py`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logwright.appendfile.files.reader import Reader
from logwright.appendfile.files.writer import Writer
from logwright.appendfile.model.replay import Segment
from logwright.errors import Poisoned
from tests.support.interrupts import Case, Interrupt, Interrupted

Segments = list[list[bytes]]


class Try(NamedTuple):
    """A call of a writer with two closed segments and an open one on the disk; the unchecked segments after it."""

    call: Callable[[Writer], object]
    outcomes: list[Segments]
    ends: bool = False


FIRST, SECOND, OPEN = [b"1" * 20, b"2" * 20], [b"3" * 20], [b"4" * 20]
ALL = [FIRST, SECOND, OPEN]
TRIES = {
    "append": Try(lambda writer: writer.append(b"x"), [ALL, [FIRST, SECOND, [*OPEN, b"x"]]]),
    "append and begin a file": Try(lambda writer: writer.append(b"x" * 60), [ALL, [FIRST, SECOND, [*OPEN, b"x" * 60]]]),
    "register": Try(lambda writer: writer.register_checkpoint(), [ALL]),
    "check": Try(lambda writer: writer.check_checkpoint(), [ALL, [SECOND, OPEN]]),
    "flush": Try(lambda writer: writer.flush(), [ALL]),
    "sync": Try(lambda writer: writer.sync(), [ALL]),
    "begin a generation": Try(lambda writer: writer.begin_generation(), [ALL]),
    "close": Try(lambda writer: writer.close(), [ALL], ends=True),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "": {"buffer_bytes": 1 << 16},
    ", written at once": {"buffer_bytes": 1},
    ", synced": {"sync": "always"},
}


def segments_of(directory: Path) -> Segments:
    found = Reader(directory).segments()
    return [list(segment.records) for segment in found if not segment.checked and segment.records]


def trial(found: Try, settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    writer = Writer(directory, file_bytes=120, **settings)
    for segment in (FIRST, SECOND):
        for data in segment:
            writer.append(data)
        writer.register_checkpoint()
    writer.append(OPEN[0])
    writer.sync()
    if not interrupt(lambda: found.call(writer)):
        writer.close()
        return
    outcomes = found.outcomes
    if found.ends:
        with suppress(Poisoned):
            writer.close()
    elif writer.refusing:
        calls: list[Callable[[], object]] = [lambda: writer.append(b"no"), writer.flush, writer.sync]
        for call in calls:
            with pytest.raises(Poisoned, match="open"):
                call()
        writer.close()
    else:
        writer.append(b"later")
        writer.close()
        joined = [[*outcome[:-1], [*outcome[-1], b"later"]] for outcome in outcomes]
        outcomes = [*joined, *([*outcome, [b"later"]] for outcome in outcomes)]
    assert segments_of(directory) in outcomes
    with Writer(directory) as writer:
        writer.append(b"again")
    assert [*chain(*segments_of(directory))] in [[*chain(*outcome), b"again"] for outcome in outcomes]


def opening(settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    with Writer(directory, **settings) as writer:
        for data in FIRST:
            writer.append(data)
    if not interrupt(lambda: Writer(directory, **settings)) or interrupt.result is not None:
        interrupt.result.close()
    with Writer(directory) as writer:
        writer.append(b"x")
    assert segments_of(directory) == [[*FIRST, b"x"]]


def three_segments(directory: Path) -> None:
    with Writer(directory, file_bytes=120) as writer:
        for segment in (FIRST, SECOND):
            writer.append_many(segment)
            writer.register_checkpoint()
        writer.append_many(OPEN)


def recovered(directory: Path) -> Segments:
    """All records that the next opening recovers."""
    with Writer(directory, recovering=True) as writer:
        return [list(segment.records) for segment in writer.recovery()]


def opening_to_recover(settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    three_segments(directory)
    if not interrupt(lambda: Writer(directory, recovering=True, **settings)) or interrupt.result is not None:
        interrupt.result.close()
    assert recovered(directory) == ALL
    assert recovered(directory) == []


def walking(settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    """An iteration that is interrupted and continued: nothing is removed before all of it was returned."""
    three_segments(directory)
    writer = Writer(directory, recovering=True, **settings)
    recovery = writer.recovery()
    found: list[Segment] = []

    def walk() -> bool:
        for segment in recovery:
            found.append(segment)
        return True

    is_done = not interrupt(walk)
    with suppress(Interrupted):
        is_done = is_done or walk()
    try:
        writer.close()
    except Poisoned:  # the interrupt was in the middle of a write
        assert interrupt.at is not None
    given = [list(segment.records) for segment in found]
    assert given == ALL[: len(given)]
    assert len(given) == len(ALL) or not is_done
    left = recovered(directory)
    assert left == ALL or (left == [] and len(given) == len(ALL))
    assert not (is_done and left)
    assert recovered(directory) == []


CASES: dict[str, Case] = {}
for _suffix, _settings in SETTINGS.items():
    CASES[f"opening{_suffix}"] = partial(opening, _settings)
    CASES[f"opening to recover{_suffix}"] = partial(opening_to_recover, _settings)
    CASES[f"walk{_suffix}"] = partial(walking, _settings)
    for _name, _found in TRIES.items():
        CASES[f"{_name}{_suffix}"] = partial(trial, _found, _settings)
