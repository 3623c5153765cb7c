"""Disks on which the stories of databases run, and the checks after a crash.

The database has the state after one of its transactions, none earlier than the last acknowledged one. Its lists are
whole. Opening it once more changes nothing. It stays usable.
"""

from __future__ import annotations

from tests.support.simulated_disk import SimulatedDisk
from tests.yeltsin.databases import HOME, JOURNAL, TABLE, Story


def check(story: Story, disk: SimulatedDisk, least: int | None = None, *, continues: bool = True) -> None:
    """Open a database after a crash, and find one of the allowed states."""
    done = max(disk.marks, default=0) if least is None else least
    allowed = story.states[done : done + 2]
    with story.opened(disk) as db:
        found = [state for state in allowed if state.is_in(db)]
        assert found, f"{db.pages()}, free {db.free_pages()} are left after {done} transactions"
        assert db.verify().problems == []
    before = contents(disk)
    with story.opened(disk) as db:
        assert (db.recovered, db.redone) == (None, ())
    assert contents(disk) == before
    if continues:
        with story.opened(disk) as db:
            with db.transaction() as transaction:
                page = transaction.allocate()
                transaction.modify(page, 5, b"more")
            assert db.read(page, 4, 6) == b"\0more\0"


def contents(disk: SimulatedDisk) -> tuple[bytes, bytes]:
    """The bytes of the table and of its journal."""
    return disk.open(TABLE, "read").read_at(0, 1 << 30), disk.open(JOURNAL, "read").read_at(0, 1 << 30)


def fresh() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.settle()
    return disk


def begun(story: Story) -> SimulatedDisk:
    """A disk on which a story begins."""
    disk = fresh()
    if not story.creates:
        story.opened(disk).close()
        disk.settle()
    return disk


def crashed(story: Story, sync: str = "always") -> SimulatedDisk:
    """A disk on which a story has run, and which may have crashed at any point of it."""
    disk = begun(story)
    story.run(disk, disk.mark, sync)
    return disk
