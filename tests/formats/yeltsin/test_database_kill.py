"""kill -9 of a process that makes transactions, again and again: what it had acknowledged is there, as a whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logwright.formats.yeltsin.database import Database
from tests.formats.yeltsin.killed_database import COUNT, change_for_ever, numbers_in
from tests.support.counts import COUNTS
from tests.support.forks import fork_server
from tests.support.threads import DEADLINE_SECONDS

KILLS = 15
SETTINGS = [("none", 0), ("always", 0), ("none", 20000), ("always", 20000), ("interval(1)", 0)]


def kill_one(reports: int, *arguments: object) -> int:
    """Start a process, kill it after so many reports; how many transactions it had acknowledged by then."""
    context = fork_server()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=change_for_ever, args=(*arguments, sender))
    process.start()
    sender.close()
    count = 0
    try:
        for _ in range(reports):
            assert receiver.poll(DEADLINE_SECONDS), "the process reports nothing"
            (count,) = COUNT.unpack(receiver.recv_bytes())
    finally:
        process.kill()
        process.join(DEADLINE_SECONDS)
    assert process.exitcode == -9
    while receiver.poll():  # what it had sent before it died was acknowledged as well
        try:
            (count,) = COUNT.unpack(receiver.recv_bytes())
        except EOFError:
            break
    receiver.close()
    process.close()
    return count


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_a_killed_process_leaves_every_transaction_that_it_acknowledged(
    tmp_path: Path, sync: str, checkpoint_bytes: int
) -> None:
    chance = random.Random(f"{sync} {checkpoint_bytes}")
    count = 0
    for _ in range(KILLS):
        acknowledged = kill_one(chance.choice((1, 4, 12)), str(tmp_path), count, sync, checkpoint_bytes)
        with Database.open(tmp_path / "t.ydb", tmp_path / "t.jrnl") as db:
            (count,) = numbers_in(db)  # one and the same everywhere
            assert count >= acknowledged
            assert (db.verify().problems, db.verify().anomalies) == ([], [])
        COUNTS.add("kill -9", 1, "yeltsin")
