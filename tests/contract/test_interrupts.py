"""A signal handler raises an exception inside a call: the call takes effect or does not, or the writer is poisoned.

Every call is interrupted at moments at which Python may run a signal handler: at thousands of them in total, and with
LOGWRIGHT_INTERRUPTS=1000000 at every one. Then the object is inspected and used, or every call of it raises `Poisoned`.
After it is opened again, every acknowledged record is there once.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logwright.kestrel.model import open_queues
from logwright.kestrel.model.engine import Engine, RemovedItems
from logwright.kestrel.model.memory import Memory
from tests.appendfile import interrupts as appendfile
from tests.kestrel import interrupts as kestrel
from tests.sej import interrupts as sej
from tests.support.counts import COUNTS
from tests.support.interrupts import Case, interrupt_everywhere
from tests.support.threads import DEADLINE_SECONDS, in_a_thread
from tests.versioned import interrupts as versioned
from tests.yeltsin import interrupts as yeltsin

FORMATS = {
    "appendfile": appendfile.CASES,
    "kestrel": kestrel.CASES,
    "sej": sej.CASES,
    "versioned": versioned.CASES,
    "yeltsin": yeltsin.CASES,
}
CASES: dict[tuple[str, str], Case] = {
    (format, name): case for format, cases in FORMATS.items() for name, case in cases.items()
}
MOST = int(os.environ.get("LOGWRIGHT_INTERRUPTS", "12"))
"""The number of moments of a call that are tried; a call has up to a few thousand of them."""
MEMORY = Path("/dev/shm")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory, in memory if possible: thousands of journals are written and synced there."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        yield Path(directory)


@pytest.mark.parametrize(("format", "name"), CASES, ids=[f"{format}: {name}" for format, name in CASES])
def test_interrupted_call_takes_effect_or_does_not(format: str, name: str, place: Path) -> None:
    gc.disable()
    try:
        COUNTS.add("interrupts", interrupt_everywhere(CASES[format, name], place, MOST), format)
    finally:
        gc.enable()
    assert in_a_thread(is_lock_of_queues_free).result(DEADLINE_SECONDS), "other threads would wait for ever"


def is_lock_of_queues_free() -> bool:
    """Whether a thread could open a queue: one lock in the process is held while queues are opened and closed."""
    is_free = open_queues._lock.acquire(blocking=False)
    if is_free:
        open_queues._lock.release()
    return is_free


@pytest.mark.parametrize("name", ["get", "get many", "reserve many"])
def test_items_keep_their_order_at_whichever_bytecode_a_read_is_interrupted(name: str, place: Path) -> None:
    found = kestrel.TRIES[name]
    assert found.outcomes == [kestrel.ITEMS]
    gc.disable()
    try:
        COUNTS.add("interrupts", interrupt_everywhere(kestrel.CASES[name], place, 1_000_000), "kestrel")
    finally:
        gc.enable()


def test_queue_that_returns_items_to_the_tail_is_detected(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_to_tail(self: Engine, removed: RemovedItems) -> None:
        for entry in removed:
            self.shelf.put(entry[0])

    monkeypatch.setattr(Engine, "give_back", give_to_tail)
    with pytest.raises(AssertionError, match="interrupted at bytecode"):
        interrupt_everywhere(kestrel.CASES["get many"], place, 1000)


def test_queue_that_continues_after_an_interrupt_is_detected(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_directly(self: Memory, work: Callable[[], object], *, together: bool = True) -> object:
        return work()

    monkeypatch.setattr(Memory, "atomically", run_directly)
    with pytest.raises(AssertionError, match="interrupted at bytecode"):
        interrupt_everywhere(kestrel.CASES["get many"], place, 1000)
