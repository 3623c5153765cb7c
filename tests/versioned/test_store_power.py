"""Real power cuts of a store that several threads write to, while it rotates and makes archives in the background.

The device is that of `logwright.torture.power`: ext4 on a loop device, shut down without flushing its log.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import LogwrightError
from logwright.torture.power import Device
from logwright.versioned.files.reader import Reader
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.retention import Retention
from logwright.versioned.model.store import VersionedKVStore
from tests.contract.test_power_cuts import device as device  # the fixture
from tests.support.counts import COUNTS
from tests.support.threads import DEADLINE_SECONDS

CUTS = 5
THREADS = 3
KINDS: list[dict[str, Any]] = [{}, {"retention": Retention(max_archives=2)}]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="logwright")


class Writing:
    """Threads that count up, each in its own key; `acknowledged` is the progress of each."""

    def __init__(self, store: VersionedKVStore, start: list[int], until: int) -> None:
        self.store = store
        self.acknowledged = list(start)
        self.enough = threading.Event()
        self._until = sum(start) + until
        self._threads = [threading.Thread(target=self._count, args=(number,)) for number in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def _count(self, number: int) -> None:
        with contextlib.suppress(LogwrightError):
            while True:
                value = self.acknowledged[number] + 1
                self.store.insert(f"key {number}", [value, "x" * (value * 31 % 150)])
                self.acknowledged[number] = value
                if sum(self.acknowledged) >= self._until:
                    self.enough.set()
        self.enough.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
        with contextlib.suppress(LogwrightError):
            self.store.close()


def cut_again_and_again(device: Device, options: dict[str, Any], cuts: int) -> None:
    home, chance = device.root / "stores", random.Random(str(options))
    counted = [0] * THREADS
    for _ in range(cuts):
        store = VersionedKVStore(home, "cars", 1024, sync="always", **options)
        writing = Writing(store, counted, chance.choice((3, 10, 60, 150)))
        assert writing.enough.wait(DEADLINE_SECONDS)
        acknowledged = list(writing.acknowledged)  # before the cut: the results of a disk without power mean nothing
        device.cut_power()
        writing.join()
        del store, writing
        device.unmount()
        device.mount()
        counted = check(home, acknowledged)
        COUNTS.add("power cuts", 1, "versioned")


def check(home: Path, acknowledged: list[int]) -> list[int]:
    """Everything acknowledged is there, and the past has no holes; the progress of each thread."""
    state = VersionedRecovery.load(home).recover_current()
    with VersionedKVStore(home, "cars", 1024) as store:
        assert dict(store.items()) == state
        earliest = store.earliest()
    found = [state.get(f"key {number}", [0])[0] for number in range(THREADS)]
    assert all(there >= promised for there, promised in zip(found, acknowledged, strict=True))
    assert Reader(home / "cars.jrn").verify().problems == []
    recovery = VersionedRecovery.load(home)
    assert recovery.earliest() == earliest
    for number in range(THREADS):
        counts = [entry.o[0] for entry in recovery.history(f"key {number}")]
        assert counts == list(range(found[number] - len(counts) + 1, found[number] + 1)), "a change is missing"
    return found


@pytest.mark.parametrize("options", KINDS, ids=["", "with retention"])
def test_power_cut_during_writes_and_archiving_loses_nothing_acknowledged(
    device: Device, options: dict[str, Any]
) -> None:
    cut_again_and_again(device, options, CUTS)


@pytest.mark.torture
@pytest.mark.parametrize("options", KINDS, ids=["", "with retention"])
def test_many_power_cuts_lose_no_acknowledged_change(device: Device, options: dict[str, Any]) -> None:
    cut_again_and_again(device, options, 8 * CUTS)
