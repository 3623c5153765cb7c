"""kill -9 of a process that makes transactions, repeatedly: acknowledged transactions are there, complete."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from logwright.torture.database import numbers_in
from logwright.yeltsin.model.database import Database
from tests.support.counts import COUNTS
from tests.yeltsin.killed_database import Changing

KILLS = 15
SETTINGS = [("none", 0), ("always", 0), ("none", 20000), ("always", 20000), ("interval(1)", 0)]


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_killed_process_leaves_every_acknowledged_transaction(tmp_path: Path, sync: str, checkpoint_bytes: int) -> None:
    chance = random.Random(f"{sync} {checkpoint_bytes}")
    count = 0
    for _ in range(KILLS):
        changing = Changing(chance.choice((1, 4, 12)), tmp_path, count, sync, checkpoint_bytes)
        assert changing.kill() == -signal.SIGKILL
        with Database(tmp_path / "t.ydb", tmp_path / "t.jrnl") as db:
            (count,) = numbers_in(db)  # the same everywhere
            assert count >= changing.count
            assert (db.verify().problems, db.verify().anomalies) == ([], [])
        COUNTS.add("kill -9", 1, "yeltsin")
