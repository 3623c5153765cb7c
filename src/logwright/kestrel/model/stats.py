"""Stats: what there is to know about a queue at a moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .engine import Engine


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of a queue. Those that count what has happened begin when it was opened.

    items, bytes            what waits, and how much data that is
    open                    what is reserved
    memory_items            how many of the items are in memory
    memory_bytes            and how much data that is
    reads_behind            whether some are not
    waiting                 how many calls wait for an item
    age_ms                  how long the head has been waiting, None without one, or if unknown
    xid                     the last used transaction id
    journal_files           how many files the journal has
    journal_bytes           how large they are together
    put, taken              how many items came; how many were removed, or confirmed
    expired, discarded      how many were removed because they expired; to make room
    moved                   how many went to another queue
    """

    items: int
    bytes: int
    open: int
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
        return asdict(self)


def stats_of(engine: Engine) -> Stats:
    """The figures of an engine now."""
    engine.check_process()  # in a fork a thread of the parent may hold the mutex
    with engine.mutex:
        added = engine.head_added()
        return Stats(
            items=engine.shelf.items,
            bytes=engine.shelf.data_bytes,
            open=len(engine.open_items),
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
