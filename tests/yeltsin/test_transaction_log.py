"""The journal of a database: its state after an append that fails."""

from __future__ import annotations

from pathlib import Path

from logwright.errors import StorageFailed
from logwright.yeltsin.files.opening import open_journal
from logwright.yeltsin.model.transaction_log import TransactionLog
from tests.support.faulty_disk import WRITES, failing_calls
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_file
from tests.yeltsin.samples import CREATED, numbered, sealed

FILE = Path("/journal/t.jrnl")
BEFORE = sealed(*numbered(2))


def laid_out() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(FILE.parent)
    write_file(disk, FILE, BEFORE)
    return disk


def test_transaction_is_absent_after_its_write_or_link_failed() -> None:
    left = []
    for faulty in failing_calls(laid_out, partial=True, only=WRITES, format="yeltsin"):
        log = TransactionLog(open_journal(faulty, FILE))
        try:
            log.append(CREATED, b"")
        except StorageFailed:
            left.append(read_file(faulty.inner, FILE))
        finally:
            log.close()
    assert left[:2] == [BEFORE, BEFORE]
    assert len(left) == 3, "the name in the header is written last"
