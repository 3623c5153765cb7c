"""The dialect of a journal, detected from its bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from logwright.errors import DamagedJournal
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files.reader import Reader
from tests.kestrel.samples import (
    FACTS,
    REMOVE,
    add_xid,
    addx,
    continue_,
    encoded,
    reserve_as,
    scenario_operations,
    state_dump,
    write,
)


def settled(path: Path) -> tuple[str, bool]:
    """The dialect that a reader detects, and whether the other one would fit as well."""
    verdict = Reader(path).verdict
    verdict.settle()
    return verdict.name, verdict.both_fit


DOCUMENTED = {
    "a state dump and what it announces": [addx(b"x"), state_dump(5, 2), add_xid(1, b"a"), add_xid(2, b"b")],
    "a state dump of nothing": [state_dump(5, 0), addx(b"x")],
    "a state dump at the end": [addx(b"x"), state_dump(5, 3)],
    "a state dump with less than it announces": [state_dump(5, 3), add_xid(1, b"a")],
    "a state dump before other operations": [state_dump(5, 3), addx(b"x"), REMOVE],
    "nothing that differs": [addx(b"x"), REMOVE],
}
KESTREL2 = {
    "a reservation under an id": [addx(b"x"), reserve_as(1)],
    "a continue": [addx(b"x"), continue_(1, b"two")],
    "a continue followed by operations": [continue_(1, b"two"), REMOVE, addx(b"x")],
    "a continue, then a 9": [continue_(1, b"two"), reserve_as(1)],
}


@pytest.mark.parametrize("operations", DOCUMENTED.values(), ids=DOCUMENTED)
def test_operation_8_that_can_only_be_a_state_dump_means_documented(
    operations: list[Operation], tmp_path: Path
) -> None:
    path = write(tmp_path / "cars", *operations)
    assert settled(path)[0] == "documented"
    assert list(Reader(path)) == operations


@pytest.mark.parametrize("operations", KESTREL2.values(), ids=KESTREL2)
def test_operation_9_or_an_8_that_can_only_be_a_continue_means_kestrel2(
    operations: list[Operation], tmp_path: Path
) -> None:
    path = write(tmp_path / "cars", *operations)
    assert settled(path) == ("kestrel2", False)
    assert list(Reader(path)) == operations


def both_ways() -> bytes:
    """An 8 that is a state dump of 43 followed by one ADD_XID, or a CONTINUE whose data is that operation."""
    (item,) = (add_xid(1, b"x"),)
    dump = encoded([state_dump(5, len(encoded([item])))])
    return dump + encoded([item])


def test_ambiguous_journal_is_documented_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(both_ways())
    assert settled(path) == ("documented", True)
    summary = Reader(path).summary()
    assert (summary.details["dialect"], summary.details["both_dialects_fit"]) == ("documented", True)
    assert [anomaly.kind for anomaly in Reader(path).verify().anomalies] == ["dialect"]


def test_operation_9_after_ambiguous_ones_decides_the_dialect(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(both_ways() + encoded([addx(b"y"), reserve_as(3)]))
    assert settled(path) == ("kestrel2", False)
    assert [operation.op for operation in Reader(path)] == ["continue", "addx", "remove_tentative_xid"]


def test_operation_9_in_a_later_file_decides_the_dialect_of_all(tmp_path: Path) -> None:
    (tmp_path / "cars.904").write_bytes(both_ways())
    write(tmp_path / "cars", addx(b"y"), reserve_as(3))
    assert settled(tmp_path / "cars") == ("kestrel2", False)
    assert [operation.op for operation in Reader(tmp_path / "cars")] == ["continue", "addx", "remove_tentative_xid"]


def test_damage_before_the_first_8_does_not_hide_it(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(b"\x7f" * 9 + encoded([addx(b"x"), reserve_as(1)]))
    assert settled(path) == ("kestrel2", False)


def test_given_dialect_is_not_detected(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"x"), reserve_as(1), addx(b"y"))
    with pytest.raises(DamagedJournal, match="there is no operation 9") as raised:
        list(Reader(path, dialect="documented"))
    assert raised.value.position == 22


def test_dialect_is_detected_only_when_it_matters(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"x"), REMOVE)
    reader = Reader(path)
    list(reader)
    assert reader.dialect == "auto"
    write(path, addx(b"x"), reserve_as(1))
    list(reader)
    found: str = reader.dialect
    assert found == "kestrel2"


def test_truncated_continue_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(encoded([addx(b"x"), continue_(1, b"long enough")])[:-3])
    reader = Reader(path)
    assert list(reader) == [addx(b"x")]
    assert reader.torn_tail is not None
    assert (reader.dialect, reader.torn_tail.start) == ("kestrel2", 22)


@pytest.mark.parametrize("scenario", FACTS["scenarios"], ids=lambda scenario: scenario["name"])
def test_golden_journals_are_read_as_the_original_writes_them(scenario: dict[str, object], tmp_path: Path) -> None:
    operations = scenario_operations(scenario)
    path = write(tmp_path / "cars", *operations)
    assert list(Reader(path)) == operations


def test_count_beyond_the_file_does_not_search_forever(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(struct.pack("<Bii", 8, 1, 2**31 - 1) + encoded([add_xid(1, b"x")] * 100))
    assert settled(path)[0] == "documented"
