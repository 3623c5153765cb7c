"""The minimal description of a format in the contract tests, and the defaults of the other members."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.sej.bytes.records import Message
from tests.contract.subject import HOME, Scanned, Session, Subject
from tests.sej.subject import SejSubject
from tests.support.simulated_disk import SimulatedDisk

SEJ = SejSubject()


class Minimal(Subject):
    """sej, by the members that have no default."""

    name = "sej"
    file = SEJ.file

    def record(self, seed: int, index: int) -> Message:
        return SEJ.record(seed, index)

    def scan(self, twin: str, data: bytes) -> Scanned:
        return SEJ.scan(twin, data)

    def claiming(self, size: int) -> bytes:
        return SEJ.claiming(size)

    def open_session(self, disk: Disk, home: Path, *, sync: str = "always", **options: Any) -> Session:
        return SEJ.open_session(disk, home, sync=sync, **options)


MINIMAL = Minimal()


def test_no_other_member_is_required() -> None:
    assert Subject.__abstractmethods__ == {"record", "scan", "claiming", "open_session"}


def test_records_are_encoded_decoded_and_scanned() -> None:
    records = MINIMAL.records(1, 5)
    data = MINIMAL.encode(records)
    assert data == SEJ.encode(records)
    assert MINIMAL.ends(records) == SEJ.ends(records)
    found = MINIMAL.decode_record(data)
    assert isinstance(found, tuple)
    assert found[0] == records[0]
    assert {twin: MINIMAL.scan(twin, data).records for twin in MINIMAL.twins()} == dict.fromkeys(SEJ.twins(), records)
    MINIMAL.assert_twins_agree(data, random.Random(1))
    for decode in MINIMAL.decoders().values():
        assert all(decode(seed) is not None for seed in MINIMAL.fuzz_seeds())
    size = records[0].size
    assert MINIMAL.length_fields(records) == [(at, 4) for at in range(size - 3)]


def test_every_verb_works_on_a_journal(tmp_path: Path) -> None:
    session = MINIMAL.open_session(REAL_DISK, tmp_path)
    for record in MINIMAL.records(1, 5):
        session.append(record)
    session.close()
    assert list(MINIMAL.read(REAL_DISK, tmp_path)) == MINIMAL.records(1, 5)
    verbs = MINIMAL.verbs(REAL_DISK, tmp_path)
    assert len(verbs) == 16
    for verb in verbs.values():
        verb()


@pytest.mark.parametrize("scenario", MINIMAL.scenarios(), ids=lambda scenario: scenario.name)
def test_every_scenario_can_be_run_and_checked(scenario: Any) -> None:
    disk = SimulatedDisk()
    scenario.prepare(disk)
    scenario.run(disk, disk.mark)
    scenario.check(disk)


@pytest.mark.parametrize("mutant", MINIMAL.mutants(), ids=lambda mutant: mutant.name)
def test_mutant_omits_the_syncs_of_the_journal(mutant: Any) -> None:
    assert mutant.forgets("sync", HOME / MINIMAL.file)
    assert not mutant.forgets("sync directory", HOME / MINIMAL.file)
    assert not mutant.forgets("sync", HOME / "jnl.lck")
    assert mutant.scenario in [scenario.name for scenario in MINIMAL.scenarios()]
