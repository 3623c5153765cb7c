"""Every verb on every journal that the original implementation wrote: whole, torn and damaged.

The table below describes each case. The exit codes of the verbs follow from it by one rule for all cases.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.support import GOLDEN, Outcome, run


@dataclass(frozen=True)
class Case:
    """A golden journal. `lost` messages of those listed are damaged; `visible` says whether `inspect` finds this."""

    name: str
    health: str
    lost: int = 0
    visible: bool = False

    @property
    def path(self) -> Path:
        folder = GOLDEN / self.name
        return folder / "root" if (folder / "root").is_dir() else folder / "sej"

    @property
    def records(self) -> int:
        """The number of complete messages, by the original's description of the case."""
        about = json.loads((GOLDEN / self.name / "case.json").read_text())
        if self.health == "damaged" and "base" in about:
            return len((GOLDEN / self.name / about["base"]).read_text().splitlines()) - self.lost
        if "surviving" in about:
            return int(about["surviving"])
        return len((GOLDEN / self.name / "expected.jsonl").read_text().splitlines())


SOUND = [
    "empty",
    "one",
    "fifty",
    "types256",
    "zero_timestamp",
    "multi",
    "multi_exact",
    "reopened",
    "first_deleted",
    "offsets",
    "shard_prefix",
    "shard_noprefix",
    "shard_bit10",
    "midflip_value",
    "cut_to_zero",
    "torn_one_message",
]
TORN = [
    "torn_1",
    "torn_3",
    "torn_4",
    "torn_10",
    "torn_25",
    "torn_150",
    "torn_700",
    "garbage_10",
    "garbage_40",
    "garbage_zeros",
    "cut_in_first",
    "multi_torn_last",
    "multi_torn_first_of_last",
]
CASES = [
    *(Case(name, "sound") for name in SOUND),
    *(Case(name, "torn") for name in TORN),
    Case("midflip_size", "damaged", lost=1),
    Case("midflip_key_negative", "damaged", lost=1),
    Case("midflip_offset", "damaged", lost=1),
    Case("midflip_size_torn", "damaged", lost=2, visible=True),
    Case("gap", "damaged", visible=True),
    Case("multi_torn_middle", "damaged", visible=True),
]


def expected_codes(case: Case) -> dict[str, int]:
    """The exit code of each command line; {0} is the journal, {1} a path for output."""
    damaged = int(case.health == "damaged")
    return {
        "inspect {0}": int(case.visible),
        "inspect {0} --json": int(case.visible),
        "dump {0}": damaged,
        "dump {0} --json": damaged,
        "dump {0} --json --mode permissive": damaged,
        "dump {0} --mode permissive --decode text": damaged,
        "dump {0} --json --mode dropmalformed": damaged,
        "dump {0} --limit 0": 0,
        "tail {0} --json -n 1": 0,
        "tail {0} -n 100000 --mode dropmalformed": damaged,
        "tail {0} -n 100000 --json --since 0": damaged,
        "tail {0} -f --timeout 0": 0,
        "count {0} --json": damaged,
        "count {0} --mode failfast": damaged,
        "verify {0}": int(case.health != "sound"),
        "verify {0} --json": int(case.health != "sound"),
        "repair {0} --plan --json": damaged,
        "state {0}": damaged,
        "state {0} --json": damaged,
        "offsets {0}": 0,
        "offsets {0} --json": 0,
        "convert {0} {1}/a.parquet --json": damaged,
        "convert {0} {1}/b.parquet --mode permissive": damaged,
        "convert {0} {1}/c --to sej --mode permissive --json": damaged,
        "reset {0} billing --to first --create --json": 0,
        "clean {0} --max-bytes 0 --ignore-consumer billing --plan --json": 0,
        "repair {0} --yes --json": damaged,
        "verify {0} --format sej": 0,
        "clean {0} --max-bytes 0 --yes": 0,
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_verb_accepts_every_journal_of_the_original(case: Case, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    shutil.copytree(case.path, journal)
    wrong = []
    for line, code in expected_codes(case).items():
        outcome = run(*line.format(journal, tmp_path).split())
        if outcome.code != code:
            wrong.append((line, code, outcome))
        if "--json" in line:
            assert all(isinstance(answer, dict) for answer in outcome.objects)
        for said in outcome.err.splitlines():
            assert said.startswith(("logwright: warning: ", "logwright: error: ", f"logwright: {journal}: this is"))
    assert wrong == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_intact_message_is_counted_dumped_and_converted(case: Case, tmp_path: Path) -> None:
    assert run("count", case.path, "--json").object == {"records": case.records}
    dumped = run("dump", case.path, "--json", "--mode", "dropmalformed")
    assert len(dumped.lines) == case.records
    converted = run("convert", case.path, tmp_path / "out", "--to", "sej", "--mode", "dropmalformed", "--json")
    assert converted.object["records"] == case.records
    assert run("verify", case.path, "--json").object["records"] == case.records


def test_every_golden_journal_is_tested() -> None:
    assert {case.name for case in CASES} == {path.name for path in GOLDEN.iterdir() if path.is_dir()}


def test_reading_verbs_change_nothing(tmp_path: Path) -> None:
    """Reading a journal must work if nothing can be written, and must leave no trace otherwise."""
    for case in CASES:
        before = {path: path.stat().st_mtime_ns for path in case.path.rglob("*")}
        outcomes: list[Outcome] = [
            run(verb, case.path) for verb in ("inspect", "dump", "tail", "count", "verify", "state", "offsets")
        ]
        outcomes.append(run("repair", case.path, "--plan"))
        assert all(outcome.code in (0, 1) for outcome in outcomes)
        assert {path: path.stat().st_mtime_ns for path in case.path.rglob("*")} == before
