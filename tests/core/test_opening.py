"""The steps of opening for writing, apart from any format: whose repair refuses it, and that the lock is released."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logwright.core.io.lock import Lock
from logwright.core.repair import plan as repairs
from logwright.core.repair.plan import Plan
from logwright.core.repair.steps import Patch
from logwright.core.write.opening import JournalToWrite, open_for_writing
from logwright.errors import Locked, WrongUse
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_tree

HOME = Path("/home")
REFUSED = "a repair of this journal was interrupted; `logwright repair` finishes it"


@pytest.fixture
def disk() -> SimulatedDisk:
    """A disk with a repair of `a` in the format sej that was killed after its only step."""
    found = SimulatedDisk()
    write_tree(found, HOME, {"a": b"1", "lock": b""})
    done = repairs.apply(found, HOME, Plan("sej", (Patch("a", 0, b"1", b"2", "rot"),)))
    done.state, done.done = "applying", 0
    done.save(found)
    return found


def journal_on(disk: SimulatedDisk, *names: str, format: str = "sej") -> JournalToWrite:
    places = tuple((HOME, name) for name in names)
    return JournalToWrite(disk, format, HOME, HOME / "lock", places)


@pytest.mark.parametrize(
    ("names", "format", "refused"),
    [
        (("",), "sej", True),
        (("a",), "sej", True),
        (("b", "a"), "sej", True),
        (("b",), "sej", False),
        (("",), "versioned", False),
        (("a",), "versioned", False),
        ((), "sej", False),
    ],
)
def test_interrupted_repair_of_the_same_journal_and_format_refuses_a_writer_and_a_publisher(
    disk: SimulatedDisk, names: tuple[str, ...], format: str, refused: bool
) -> None:
    journal = journal_on(disk, *names, format=format)
    ways: list[Callable[[], Lock]] = [lambda: open_for_writing(journal, lambda: None)[0], journal.lock_to_publish]
    for take_lock in ways:
        if refused:
            with pytest.raises(WrongUse, match=REFUSED):
                take_lock()
        else:
            lock = take_lock()
            with pytest.raises(Locked):
                Lock.acquire(disk, HOME / "lock")
            lock.release()
        assert disk.open_files == 0


def test_lock_is_released_when_the_last_step_fails(disk: SimulatedDisk) -> None:
    with pytest.raises(ZeroDivisionError):
        open_for_writing(journal_on(disk), lambda: 1 // 0)
    assert disk.open_files == 0


def test_given_lock_is_not_taken_again(disk: SimulatedDisk) -> None:
    with Lock.acquire(disk, HOME / "lock") as lock:
        assert open_for_writing(journal_on(disk), lambda: 7, lock) == (lock, 7)


def test_publisher_that_finds_a_writer_says_what_to_do(disk: SimulatedDisk) -> None:
    with Lock.acquire(disk, HOME / "lock"), pytest.raises(Locked, match=r"^/home is open in a writer: close it"):
        journal_on(disk).lock_to_publish()
