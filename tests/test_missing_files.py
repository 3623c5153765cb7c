"""Files that are missing, as other files of a journal show: splits report them as readers do.

Each journal here has lost a file at an edge, so there is no gap between the records that are left.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright import sej, versioned
from logwright.core.bytes.outcome import Damage
from logwright.core.format import find_format, open_journal
from logwright.errors import DamagedJournal, Gap
from logwright.kestrel.files.writer import Writer as QueueWriter
from tests.kestrel.samples import addx


def queue_without_its_first_file(home: Path) -> Path:
    with QueueWriter(home / "jobs", dialect="kestrel2") as writer:
        for number in range(3):
            writer.append(addx(b"item %d" % number))
            writer.rotate()
        writer.append(addx(b"last"))
    next(iter(sorted(home.glob("jobs.*")))).unlink()
    return home / "jobs"


def journal_without_its_last_segment(home: Path) -> Path:
    with sej.Writer(home / "events", segment_size=400) as writer:
        for number in range(25):
            writer.append(b"message %d" % number)
    max((home / "events" / "jnl").iterdir()).unlink()
    return home / "events"


def store_without_its_active_journal(home: Path) -> Path:
    with versioned.VersionedKVStore(home, "cars", capacity=4096, background=False) as store:
        for number in range(400):
            store.insert(f"key {number % 5}", number)
    (home / "cars.jrn").unlink()
    return home / "cars.jrn"


CASES = {
    "kestrel": (queue_without_its_first_file, "missing_file", 3),
    "sej": (journal_without_its_last_segment, "missing_segment", 24),
    "versioned": (store_without_its_active_journal, "gap", 374),
}
"""How each journal is made, the kind of the damage, and the number of records that are left."""


@pytest.mark.parametrize("format", CASES)
def test_splits_report_missing_files_once_as_readers_do(tmp_path: Path, format: str) -> None:
    make, kind, left = CASES[format]
    path = make(tmp_path)
    reader, splits = open_journal(path, format=format), find_format(format).splits
    read = [item for item in reader.scan(mode="permissive") if isinstance(item, Damage)]
    assert [damage.kind for damage in read] == [kind]
    planned = splits.plan(reader)
    found = [item for split in planned for item in splits.chunks(reader, split, "permissive")]
    assert [item for item in found if isinstance(item, Damage)] == read
    assert sum(item.count for item in found if not isinstance(item, Damage)) == left
    with pytest.raises((DamagedJournal, Gap), match=read[0].reason):
        [list(splits.chunks(reader, split)) for split in planned]


@pytest.mark.parametrize("format", CASES)
def test_splits_that_continue_do_not_report_missing_files_again(tmp_path: Path, format: str) -> None:
    reader, splits = open_journal(CASES[format][0](tmp_path), format=format), find_format(format).splits
    first = {part: bounds[0] for part, bounds in splits.extent(reader).items()}
    planned = splits.plan(reader, start=first, stop=None, resumed=True)
    found = [item for split in planned for item in splits.chunks(reader, split, "permissive")]
    assert found
    assert not [item for item in found if isinstance(item, Damage)]
