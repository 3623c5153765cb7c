"""Opening for writing takes the same steps in the same order in every format. If a step refuses, nothing is changed.

1. the lock 2. a waiting batch 3. an interrupted repair 4. a torn tail
"""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.core.io.disk import Disk, make_directories
from logwright.core.io.lock import Lock
from logwright.core.repair import plan as repairs
from logwright.core.repair.plan import Plan
from logwright.core.repair.steps import Patch
from logwright.errors import DamagedJournal, Locked, WrongUse
from tests.contract.staging import ROOT, STAGING, StagingSubject
from tests.contract.staging_subjects import STAGING_SUBJECTS
from tests.contract.subject import HOME, Subject
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, read_file, read_tree, write_file

MANIFEST = HOME / ".logwright" / "staging" / "run.manifest"


def interrupt_a_repair(disk: Disk, home: Path, format: str, file: str) -> None:
    """Leave a repair of a file as if it had been killed after its only step."""
    last = read_file(disk, home / file)[-1:]
    position = disk.file_size(home / file) - 1
    done = repairs.apply(disk, home, Plan(format, (Patch(file, position, last, bytes([last[0] ^ 1]), "rot"),)))
    done.state, done.done = "applying", 0
    done.save(disk)


def torn(subject: Subject) -> tuple[SimulatedDisk, Path]:
    """A disk with a journal that has a torn tail, and the path of its lock file, which exists."""
    disk = SimulatedDisk()
    records = subject.records(1, 6)
    subject.lay_out(disk, HOME, subject.torn_file(subject.encode(records)[: subject.ends(records)[-1] - 1]))
    other = disk.copy()
    subject.open_session(other, HOME).close()
    locks = [name for name in read_tree(other, HOME) if name.endswith(".lck")]
    (name,) = [name for name in locks if not name.endswith("losses.lck")]  # the account has a lock of its own
    make_directories(disk, (HOME / name).parent)
    write_file(disk, HOME / name, b"")
    return disk, HOME / name


def refused(subject: Subject, disk: SimulatedDisk, kind: type[Exception], reason: str) -> None:
    """Opening raises this, changes nothing and leaves nothing open."""
    before, files = read_tree(disk, HOME), disk.open_files
    with pytest.raises(kind, match=reason):
        subject.open_session(disk, HOME)
    assert read_tree(disk, HOME) == before
    assert disk.open_files == files


def test_first_step_that_refuses_is_reported_and_nothing_is_changed(subject: Subject) -> None:
    disk, lock_path = torn(subject)
    interrupt_a_repair(disk, HOME, subject.name, subject.file)
    make_directories(disk, MANIFEST.parent)
    write_file(disk, MANIFEST, b"{}")
    with Lock.acquire(disk, lock_path):
        refused(subject, disk, Locked, "is locked")
    if subject.name in STAGING_SUBJECTS:
        refused(subject, disk, DamagedJournal, "this manifest of a batch is damaged")
    disk.remove(MANIFEST)
    refused(subject, disk, WrongUse, "was interrupted; `logwright repair` finishes it")
    repairs.undo(disk, HOME)
    cut = subject.recover(disk, HOME).cut
    assert cut is not None
    assert cut.kind == "torn_tail"
    assert list(subject.read(disk, HOME)) == subject.records(1, 5)
    assert disk.open_files == 0


@pytest.mark.parametrize(
    "staging",
    [staging for staging in STAGING_SUBJECTS.values() if set(staging.alone) & set(staging.none)],
    ids=lambda staging: staging.name,
)
def test_batch_is_not_published_to_a_half_repaired_journal(staging: StagingSubject) -> None:
    for part in set(staging.alone) & set(staging.none):
        disk = staging.committed()
        interrupt_a_repair(disk, ROOT, staging.name, file_of(read_tree(disk, ROOT), part))
        before = read_tree(disk, ROOT)
        reason = "was interrupted; `logwright repair` finishes it"
        with pytest.raises(WrongUse, match=reason) as refused:
            staging.open_writer(disk, part)
        assert "The batch is committed" in refused.value.__notes__[0]
        assert disk.exists(STAGING / "run.manifest")
        if part == next(iter(staging.alone)):  # otherwise other journals of the batch come first, and are complete
            assert read_tree(disk, ROOT) == before
        with pytest.raises(WrongUse, match=reason):
            staging.publish(disk, "another", [staging.stage(disk, "another", 0, staging.rows(4, 9))])
        repairs.undo(disk, ROOT)
        staging.open_writer(disk, part).close()
        assert staging.contents(disk) == staging.everything
        assert disk.open_files == 0


def file_of(tree: Tree, part: str) -> str:
    """A file of a journal in a root."""
    found = [name for name, data in tree.items() if data and not name.startswith(".") and name.startswith(part)]
    return next(name for name in found if not name.endswith((".idx", ".lck")))
