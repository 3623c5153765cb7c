"""Opening a journal for writing: the steps that every format takes, in this order.

1. The lock. A second writer gets `Locked`.
2. A waiting batch: one that a killed publisher has committed is put in place (`core/publish/staging.py`).
3. An interrupted repair: `WrongUse`; it must be finished or undone first.
4. A torn tail: it is kept and cut off, as the format does it. Other damage is raised.

A step that raises changes nothing, no later step is taken, and the lock is released. A batch is not put in place in a
journal whose repair was interrupted: publishers take the steps 1 and 3 as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...errors import Locked, WrongUse
from ..format import concerns
from ..io.disk import Disk
from ..io.lock import Lock
from ..publish.manifest import is_waiting
from ..publish.staging import complete
from ..repair.plan import find_interrupted

logger = logging.getLogger("logwright.opening")

Opened = TypeVar("Opened")


@dataclass(frozen=True, slots=True)
class JournalToWrite:
    """A journal that is to be opened for writing.

    `places` are the directories whose batches and repairs may concern it, each with the name of the journal there,
    which is empty if the directory is the journal. `what` is the journal in messages. A format without a sink has no
    `batches`.
    """

    disk: Disk
    format: str
    path: Path
    lock_path: Path
    places: tuple[tuple[Path, str], ...]
    what: str = "journal"
    batches: bool = True

    def lock(self) -> Lock:
        """The steps 1 and 2."""
        while True:
            lock = Lock.acquire(self.disk, self.lock_path)
            try:
                root = self._find_waiting()
            except BaseException:
                lock.release()
                raise
            if root is None:
                return lock
            lock.release()  # the publisher takes the locks of all journals of the batch
            for run in complete(root, disk=self.disk):
                logger.warning("%s: put the rest of the committed batch %s in place", root, run)

    def lock_to_publish(self) -> Lock:
        """The steps 1 and 3, for a publisher."""
        try:
            lock = Lock.acquire(self.disk, self.lock_path)
        except Locked as error:
            message = f"{self.path} is open in a writer: close it, then write again"
            raise Locked(message, error.holder) from error
        try:
            self.refuse_half_repaired()
        except BaseException:
            lock.release()
            raise
        return lock

    def refuse_half_repaired(self) -> None:
        """Step 3."""
        for directory, name in self.places:
            repair = find_interrupted(self.disk, directory)
            if repair is not None and repair.plan.format == self.format and concerns(repair, name):
                reason = f"a repair of this {self.what} was interrupted; `logwright repair` finishes it"
                raise WrongUse(f"{repair.log}: {reason}")

    def _find_waiting(self) -> Path | None:
        """The root of a committed batch for this journal that is not yet complete; None if there is none."""
        places = self.places if self.batches else ()
        return next((root for root, name in places if is_waiting(self.disk, root, self.format, name)), None)


def open_for_writing(
    journal: JournalToWrite, recover: Callable[[], Opened], held: Lock | None = None
) -> tuple[Lock, Opened]:
    """Take all steps; the lock, and what `recover` returns, which is step 4.

    What `recover` has opened before it fails is for the caller to close. A publisher that holds the lock passes it.
    """
    lock = journal.lock() if held is None else held
    try:
        journal.refuse_half_repaired()
        return lock, recover()
    except BaseException:
        lock.release()
        raise
