"""Stats: the figures of a queue at one moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .engine import Engine


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of a queue. Counters begin at 0 when it is opened.

    items, bytes            waiting items, and the size of their data
    open                    reserved items
    delayed                 items that are not due yet: put with a delay, or to be retried later
    memory_items            waiting items that are in memory
    memory_bytes            the size of their data
    reads_behind            whether some items are not in memory
    waiting                 calls that wait for an item
    age_ms                  how long the head has waited; None if there is none, or if it is unknown
    xid                     the last used transaction id
    journal_files           the number of files of the journal
    journal_bytes           their total size
    put, taken              counters: items added; items removed or confirmed
    expired, discarded      counters: items removed because they expired, or to make room
    moved                   counter: items moved to another queue
    """

    items: int
    bytes: int
    open: int
    delayed: int
    memory_items: int
    memory_bytes: int
    reads_behind: bool
    waiting: int
    age_ms: int | None
    xid: int
    journal_files: int
    journal_bytes: int
    put: int
    taken: int
    expired: int
    discarded: int
    moved: int

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return asdict(self)


def stats_of(engine: Engine) -> Stats:
    """The present figures of an engine."""
    engine.check_process()  # in a fork, a thread of the parent may hold the mutex
    with engine.mutex:
        added = engine.head_added()
        return Stats(
            items=engine.shelf.items,
            bytes=engine.shelf.data_bytes,
            open=len(engine.open_items) - len(engine.delays.retries),
            delayed=len(engine.delays),
            memory_items=engine.shelf.memory_items,
            memory_bytes=engine.shelf.memory_bytes,
            reads_behind=engine.behind_items > 0,
            waiting=engine.shelf.waiting,
            age_ms=max(0, engine.shelf.now() - added) if added else None,
            xid=engine.xid,
            journal_files=engine.journal_files,
            journal_bytes=engine.journal_bytes,
            put=engine.shelf.added - engine.added_before,
            taken=engine.shelf.taken,
            expired=engine.expired,
            discarded=engine.discarded,
            moved=engine.moved,
        )
