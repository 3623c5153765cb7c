"""kill -9 of a writing process, hundreds of times: its acknowledged records are there, and the next writer continues.

The writers are forked from a separate process, which has no threads. A writer reports acknowledged records through a
pipe. It is killed in the middle of its work, after a number of reports, and the journal is recovered. Then another
writer continues the same journal.
"""

from __future__ import annotations

import logging
import random
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import NotFound
from tests.contract import killed_writer
from tests.contract.subject import Recovered, Subject
from tests.contract.subjects import SUBJECTS
from tests.support.counts import COUNTS
from tests.support.forks import fork_server

KILLS = 20
"""The number of writers for each kind of journal."""
DEADLINE_SECONDS = 60.0
KINDS = [
    pytest.param(subject, kind, sync, id=f"{subject.name}, {kind}, {sync}")
    for subject in SUBJECTS.values()
    for kind in subject.options
    for sync in ("always", "none")
]


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """The source of the writers."""
    return fork_server()


def kill_one(context: ForkServerContext, reports: int, *arguments: Any) -> int:
    """Start a writer, kill it after `reports` reports; the number of acknowledged records."""
    receiver, sender = context.Pipe(duplex=False)
    writer = context.Process(target=killed_writer.write_for_ever, args=(*arguments, sender))
    writer.start()
    sender.close()
    acknowledged = 0
    try:
        for _ in range(reports):
            assert receiver.poll(DEADLINE_SECONDS), "the writer reports nothing"
            (acknowledged,) = killed_writer.COUNT.unpack(receiver.recv_bytes())
    finally:
        writer.kill()
        writer.join(DEADLINE_SECONDS)
    assert writer.exitcode == -9
    while receiver.poll():  # records that it had reported before it died were acknowledged as well
        try:
            (acknowledged,) = killed_writer.COUNT.unpack(receiver.recv_bytes())
        except EOFError:
            break
    receiver.close()
    writer.close()
    return acknowledged


def kill_again_and_again(
    context: ForkServerContext, subject: Subject, home: Path, kind: str, sync: str, kills: int
) -> None:
    chance = random.Random(f"{kind}/{sync}")
    seed = chance.randrange(1000)
    count = 0
    for _ in range(kills):
        reports = chance.choice((1, 2, 3, 10, 40, 120))
        acknowledged = kill_one(context, reports, subject.name, str(home), seed, sync, subject.options[kind])
        assert acknowledged >= count
        before = list(subject.read(REAL_DISK, home))
        assert len(before) >= acknowledged
        subject.recover(REAL_DISK, home)
        found = list(subject.read(REAL_DISK, home))
        assert found == before
        assert found == subject.records(seed, len(found))
        assert subject.recover(REAL_DISK, home) == Recovered()
        count = len(found)
        COUNTS.add("kill -9", 1, subject.name)


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


@pytest.mark.parametrize(("subject", "kind", "sync"), KINDS)
def test_killed_writer_leaves_all_acknowledged_records(
    context: ForkServerContext, subject: Subject, kind: str, sync: str, tmp_path: Path
) -> None:
    kill_again_and_again(context, subject, tmp_path / "journal", kind, sync, KILLS)


@pytest.mark.torture
@pytest.mark.parametrize(("subject", "kind", "sync"), KINDS)
def test_many_killed_writers_leave_all_acknowledged_records(
    context: ForkServerContext, subject: Subject, kind: str, sync: str, tmp_path: Path
) -> None:
    kill_again_and_again(context, subject, tmp_path / "journal", kind, sync, 20 * KILLS)


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_writer_killed_at_once_leaves_a_journal_or_nothing(
    context: ForkServerContext, subject: Subject, tmp_path: Path
) -> None:
    for number in range(KILLS):
        home = tmp_path / str(number)
        receiver, sender = context.Pipe(duplex=False)
        writer = context.Process(
            target=killed_writer.write_for_ever, args=(subject.name, str(home), number, "always", {}, sender)
        )
        writer.start()
        while not home.exists() and writer.is_alive():
            writer.join(0)
        writer.kill()
        writer.join(DEADLINE_SECONDS)
        try:
            found = list(subject.read(REAL_DISK, home))
        except NotFound:
            found = []
        assert found == subject.records(number, len(found))
        session = subject.open_session(REAL_DISK, home)
        session.append(subject.record(number, len(found)))
        session.close()
        assert list(subject.read(REAL_DISK, home)) == subject.records(number, len(found) + 1)
        for end in (receiver, sender, writer):
            end.close()
        COUNTS.add("kill -9", 1, subject.name)
