"""A queue server for one test, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.queue.support import Client, Serving, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path / "queues") as found:
        yield found


@pytest.fixture
def client(served: Serving) -> Iterator[Client]:
    with Client(served) as found:
        yield found
