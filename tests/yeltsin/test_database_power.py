"""Real power cuts of a database in the middle of its transactions, checkpoints and recoveries.

The device is that of `logwright.torture.power`: ext4 on a loop device, shut down without flushing its log.
Another process makes the transactions, because a removed disk kills a process that accesses mapped files.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from logwright.torture.database import numbers_in
from logwright.torture.power import Device
from logwright.yeltsin.model.database import Database
from tests.contract.test_power_cuts import device as device  # the fixture
from tests.support.counts import COUNTS
from tests.yeltsin.killed_database import Changing

CUTS = 6
SETTINGS = [("always", 0), ("always", 20_000), ("always", 1 << 30), ("interval(2)", 0)]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="logwright")


def cut_again_and_again(device: Device, sync: str, checkpoint_bytes: int, cuts: int) -> None:
    home, chance, count = device.root / "pages", random.Random(f"{sync} {checkpoint_bytes}"), 0
    for _ in range(cuts):
        changing = Changing(chance.choice((1, 3, 10, 40)), home, count, sync, checkpoint_bytes)
        acknowledged = changing.count  # before the cut: the results of a disk without power mean nothing
        device.cut_power()
        changing.kill()
        device.unmount()
        device.mount()
        count = check(home, chance)
        assert count >= acknowledged or sync != "always"
        COUNTS.add("power cuts", 1, "yeltsin")


def check(home: Path, chance: random.Random) -> int:
    """Recover, with any settings: transactions are complete or absent; their number."""
    table, journal = home / "t.ydb", home / "t.jrnl"
    sync, checkpoint_bytes = chance.choice(SETTINGS)
    with Database(table, journal, sync=sync, checkpoint_bytes=checkpoint_bytes) as db:
        numbers = numbers_in(db)  # the same everywhere, if there is any
        assert len(numbers) == 1 or db.pages() == [30]
        assert (db.verify().problems, db.verify().anomalies) == ([], [])
    before = table.read_bytes(), journal.read_bytes()
    with Database(table, journal) as db:
        assert (db.recovered, db.redone) == (None, ())
    assert (table.read_bytes(), journal.read_bytes()) == before
    return max(numbers, default=0)


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_power_cut_leaves_all_of_a_transaction_or_none_and_all_that_was_acknowledged(
    device: Device, sync: str, checkpoint_bytes: int
) -> None:
    cut_again_and_again(device, sync, checkpoint_bytes, CUTS)


@pytest.mark.torture
@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_many_power_cuts_lose_no_acknowledged_transaction(device: Device, sync: str, checkpoint_bytes: int) -> None:
    cut_again_and_again(device, sync, checkpoint_bytes, 10 * CUTS)
