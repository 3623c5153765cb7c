"""Operations of many callers that are held, and written together once no other caller is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import Closed
from logwright.kestrel.model.engine import Engine
from logwright.kestrel.model.limits import Limits
from logwright.kestrel.model.queue import Queue


def opened(directory: Path) -> Engine:
    return Engine(directory / "q", Limits(), background=False, disk=REAL_DISK)


def size(directory: Path) -> int:
    return (directory / "q").stat().st_size


def test_held_writes_are_written_together_in_order(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    engine.shelf.put(b"1")
    first = size(tmp_path)
    assert first == 22
    engine.hold_writes()
    engine.hold_writes()
    engine.shelf.put(b"2")
    engine.shelf.put(b"3")
    assert engine.shelf.get() == b"1"
    assert engine.reserve_many(2)[1].data == b"3"
    assert size(tmp_path) == first
    engine.release_writes()
    removed, reserved = 1, 2 * 5
    assert size(tmp_path) == 3 * first + removed + reserved
    engine.shelf.put(b"4")
    assert size(tmp_path) == 4 * first + removed + reserved
    engine.release_writes()
    engine.close()
    with Queue(tmp_path, "q") as queue:
        assert list(queue) == [b"2", b"3", b"4"]


def test_journal_rotated_while_writes_are_held_has_everything(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    engine.hold_writes()
    engine.shelf.put(b"1")
    engine.rotate()
    engine.shelf.put(b"2")
    assert size(tmp_path) == 0
    engine.release_writes()
    assert size(tmp_path) == 22
    engine.close()
    with Queue(tmp_path, "q") as queue:
        assert list(queue) == [b"1", b"2"]


def test_closing_writes_held_operations(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    engine.hold_writes()
    engine.shelf.put(b"1")
    engine.close()
    assert size(tmp_path) == 22
    with pytest.raises(Closed):
        engine.release_writes()
