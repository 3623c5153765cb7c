"""The bytes that the original would write for the same calls.

`derived.json` was derived from the original's sources. If it follows their mistakes, the rules of the format win: a
second register in a row writes nothing, an empty record is refused, and a file is removed once nothing in it is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logwright.appendfile import Reader, Segment, Writer
from logwright.errors import WrongUse
from tests.appendfile.samples import SCENARIOS, encoded

SAME = [
    "the test of the original (order of the two parallel appends taken as written)",
    "register on a fresh journal writes nothing",
    "three checkpoints, two retired",
    "roll over: 3 largest records fit in a file",
]
SLIPS = ["two registers in a row (the second is not skipped)", "empty record", "roll over and retire"]


def perform(writer: Writer, scenario: dict[str, Any]) -> None:
    """Run the steps of a scenario, and compare the result of each."""
    for step in scenario["steps"]:
        match step:
            case {"op": "append", "arg": text}:
                writer.append(text.encode())
            case {"op": "fill", "arg": [size, count]}:
                for _ in range(count):
                    writer.append(b"x" * size)
            case {"op": "register", "returns": current}:
                assert writer.register_checkpoint() == current
            case {"op": "check"}:
                writer.check_checkpoint()
            case _:
                raise ValueError(step)
        assert [writer.checked, writer.current] == step["pair_now"]


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.journal"))}


def assert_like(directory: Path, expected: list[dict[str, Any]]) -> None:
    found = files_of(directory)
    assert {name: len(content) for name, content in found.items()} == {file["name"]: file["size"] for file in expected}
    for file in expected:
        beginning = bytes.fromhex(file.get("hex") or file["first_20_hex"])
        assert found[file["name"]][: len(beginning)] == beginning


@pytest.mark.parametrize("name", SAME)
def test_same_calls_leave_the_same_files(tmp_path: Path, name: str) -> None:
    with Writer(tmp_path) as writer:
        perform(writer, SCENARIOS[name])
    assert_like(tmp_path, SCENARIOS[name]["files"])


def test_second_register_writes_nothing(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.append(b"a")
        assert (writer.register_checkpoint(), writer.register_checkpoint()) == (1, 1)
    original = bytes.fromhex(SCENARIOS[SLIPS[0]]["files"][0]["hex"])
    assert files_of(tmp_path) == {"0.journal": original[:45]}


def test_two_registers_of_the_original_are_two_segments(tmp_path: Path) -> None:
    (tmp_path / "0.journal").write_bytes(bytes.fromhex(SCENARIOS[SLIPS[0]]["files"][0]["hex"]))
    assert Reader(tmp_path).segments() == [Segment(0, [b"a"], True), Segment(1, [], True)]


def test_empty_record_is_refused(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer, pytest.raises(WrongUse):
        writer.append(b"")
    assert files_of(tmp_path) == {}


def test_empty_record_at_the_end_cannot_be_distinguished_from_a_torn_tail(tmp_path: Path) -> None:
    (tmp_path / "0.journal").write_bytes(bytes.fromhex(SCENARIOS[SLIPS[1]]["files"][0]["hex"]))
    reader = Reader(tmp_path)
    assert encoded(*reader) == bytes.fromhex(SCENARIOS[SLIPS[1]]["files"][0]["hex"])[:20]
    assert reader.torn_tail is not None
    assert (reader.torn_tail.start, reader.torn_tail.end) == (20, 24)


def test_file_is_removed_with_its_last_segment(tmp_path: Path) -> None:
    scenario = SCENARIOS[SLIPS[2]]
    with Writer(tmp_path) as writer:
        perform(writer, scenario)
        assert sorted(files_of(tmp_path)) == ["1.journal"]
    assert_like(tmp_path, scenario["files"][1:])


def test_every_scenario_of_the_original_is_classified() -> None:
    assert {*SAME, *SLIPS} == set(SCENARIOS)
