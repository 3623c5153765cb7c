"""What every writer does in a forked child: it refuses to write, and neither that nor closing waits for anybody."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.core.errors import WrongUse
from logwright.formats.sej import Writer
from logwright.formats.versioned import VersionedKVStore

_DEADLINE_SECONDS = 30


def of_messages(directory: Path, sync: str) -> tuple[Any, Callable[[], object]]:
    writer = Writer(directory / "messages", sync=sync)
    return writer, lambda: writer.append(b"value")


def of_a_store(directory: Path, sync: str) -> tuple[Any, Callable[[], object]]:
    store = VersionedKVStore.open(directory, "store", sync=sync, background=False)
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
def test_a_child_that_was_forked_while_a_thread_was_writing_waits_for_nothing(
    opened: Callable[[Path, str], tuple[Any, Callable[[], object]]], sync: str, tmp_path: Path
) -> None:
    writer, write = opened(tmp_path, sync)
    write()
    with writer._writing, writer._syncing, writer._group._leading, writer._group._mutex:
        child = os.fork()
        if child == 0:
            signal.alarm(_DEADLINE_SECONDS)  # it ends a child that waits for ever
            answers = [outcome(action) for action in (write, writer.sync, writer.close, writer.close)]
            gathers = opened is of_messages and sync != "always"  # and is refused when it should be written
            os._exit(0 if answers == ["done" if gathers else "refused", "refused", "refused", "done"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write()
    writer.close()
