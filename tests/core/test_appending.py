"""Every writer in a forked child, and after an interrupt.

A child cannot write; neither its attempt nor closing waits for anything. After an interrupted flush the writer says
that records may be lost, but never instead of raising the interrupt.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright import appendfile
from logwright.core.io.disk import REAL_DISK
from logwright.errors import Closed, Poisoned, StorageFailed, WrongUse
from logwright.sej import ShardedWriter, Writer
from logwright.versioned import VersionedKVStore

_DEADLINE_SECONDS = 30


def of_messages(directory: Path, sync: str) -> tuple[Any, Callable[[], object]]:
    writer = Writer(directory / "messages", sync=sync)
    return writer, lambda: writer.append(b"value")


def of_a_store(directory: Path, sync: str) -> tuple[Any, Callable[[], object]]:
    store = VersionedKVStore(directory, "store", sync=sync, background=False)
    return store, lambda: store.insert("key", 1)


def outcome(action: Callable[[], object]) -> str:
    try:
        action()
    except WrongUse:
        return "refused"
    return "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("sync", ["none", "interval(1000)", "always"])
@pytest.mark.parametrize("opened", [of_messages, of_a_store])
def test_child_forked_during_a_write_waits_for_nothing(
    opened: Callable[[Path, str], tuple[Any, Callable[[], object]]], sync: str, tmp_path: Path
) -> None:
    writer, write = opened(tmp_path, sync)
    write()
    with writer._writing, writer._syncing, writer._group._leading, writer._group._mutex:
        child = os.fork()
        if child == 0:
            signal.alarm(_DEADLINE_SECONDS)  # ends a child that waits forever
            answers = [outcome(action) for action in (write, writer.sync, writer.close, writer.close)]
            gathers = opened is of_messages and sync != "always"  # refused when it should be written
            os._exit(0 if answers == ["done" if gathers else "refused", "refused", "refused", "done"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write()
    writer.close()


# --- an interrupted flush -------------------------------------------------------------------------------------------

WRITERS: dict[str, Callable[[Path], Any]] = {
    "sej": Writer,
    "sej shards": lambda directory: ShardedWriter(directory, "s", 1),
    "appendfile": appendfile.Writer,
}
LOST = "interrupted half-way .*: records that were not flushed yet may be lost; open it again"
each_writer = pytest.mark.parametrize("opened", WRITERS.values(), ids=WRITERS)


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make the next writes to a file raise an exception, as a signal handler does during a write."""
    file = REAL_DISK.open(tmp_path / "some file", "create")
    file.close()

    def interrupt(error: BaseException) -> None:
        def write_at(*_: object) -> int:
            raise error

        monkeypatch.setattr(type(file), "write_at", write_at)

    return interrupt


@each_writer
def test_closing_after_an_interrupted_flush_says_that_records_may_be_lost(
    opened: Callable[[Path], Any], tmp_path: Path, interrupted: Callable[[BaseException], None]
) -> None:
    writer = opened(tmp_path / "journal")
    writer.append(b"value")
    interrupted(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    with pytest.raises(Poisoned, match=LOST):
        writer.close()
    writer.close()
    with pytest.raises((Poisoned, Closed)):
        writer.append(b"value")


@each_writer
def test_second_close_after_an_interrupted_one_says_that_records_may_be_lost(
    opened: Callable[[Path], Any], tmp_path: Path, interrupted: Callable[[BaseException], None]
) -> None:
    writer = opened(tmp_path / "journal")
    writer.append(b"value")
    interrupted(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        writer.close()
    with pytest.raises(Poisoned, match=LOST):
        writer.close()
    writer.close()


@each_writer
def test_interrupt_leaves_a_with_block_with_a_note_of_possible_loss(
    opened: Callable[[Path], Any], tmp_path: Path, interrupted: Callable[[BaseException], None]
) -> None:
    error = KeyboardInterrupt()

    def block() -> None:
        with opened(tmp_path / "journal") as writer:
            writer.append(b"value")
            interrupted(error)
            writer.flush()

    with pytest.raises(KeyboardInterrupt) as raised:
        block()
    assert raised.value is error
    (note,) = error.__notes__
    assert "may be lost" in note


@each_writer
def test_with_block_that_suppresses_the_interrupt_raises_possible_loss(
    opened: Callable[[Path], Any], tmp_path: Path, interrupted: Callable[[BaseException], None]
) -> None:
    def block() -> None:
        with opened(tmp_path / "journal") as writer:
            writer.append(b"value")
            interrupted(KeyboardInterrupt())
            with contextlib.suppress(KeyboardInterrupt):
                writer.flush()

    with pytest.raises(Poisoned, match=LOST):
        block()


@each_writer
def test_closing_after_a_raised_failure_does_not_raise_it_again(
    opened: Callable[[Path], Any], tmp_path: Path, interrupted: Callable[[BaseException], None]
) -> None:
    writer = opened(tmp_path / "journal")
    writer.append(b"value")
    interrupted(StorageFailed("write", tmp_path, OSError(5, "broken")))
    with pytest.raises(StorageFailed):
        writer.flush()
    writer.close()
