"""One thread closes a writer while another waits to sync: closing syncs for both."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from logwright import kestrel, sej


class ClosesFirst:
    """The lock of a writer's syncs, which another thread gets first in order to close the writer."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._lock: threading.Lock = writer._syncing
        writer._syncing = self

    def __enter__(self) -> None:
        self._writer._syncing = self._lock
        self._writer.close()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("kind", ["messages", "queue"])
def test_sync_after_close_counts_as_done(kind: str, tmp_path: Path) -> None:
    if kind == "messages":
        writer: Any = sej.Writer(tmp_path / "messages")
        writer.append(b"value")
    else:
        writer = kestrel.Writer(tmp_path / "queue")
        writer.addx(b"value", added=1)
    ClosesFirst(writer)
    writer.sync()
    written = [path for path in tmp_path.rglob("*") if path.is_file() and b"value" in path.read_bytes()]
    assert len(written) == 1
    writer.close()
