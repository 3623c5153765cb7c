"""Bytes and operations: the facts of the original's tests, and one table of cases for both directions."""

from __future__ import annotations

from typing import Any

import pytest

from logwright.core.bytes.outcome import NEED_MORE, Malformed, Span
from logwright.errors import TooLarge, WrongUse
from logwright.kestrel.bytes import codec
from logwright.kestrel.bytes.layout import DOCUMENTED, KESTREL2, UNDECIDED
from logwright.kestrel.bytes.records import DIALECT_OF, DIALECTS, OP_NAMES, OPS, Operation
from tests.kestrel.samples import (
    ADDED,
    FACTS,
    REMOVE,
    RESERVE,
    add_xid,
    addx,
    confirm,
    continue_,
    reserve_as,
    save_xid,
    scenario_operations,
    state_dump,
    unremove,
)

CASES = {
    "add": (Operation("add", expires=ADDED + 60_000, data=b"A"), "00050000003c6d7c4d41"),
    "add that never expires": (Operation("add", data=b""), "000400000000000000"),
    "add before 1970": (Operation("add", expires=-1000, data=b""), "0004000000ffffffff"),
    "remove": (REMOVE, "01"),
    "addx": (addx(b"A"), "021100000000c809ae2e010000000000000000000041"),
    "addx that expires": (addx(b"A", expires=ADDED + 60_000), "021100000000c809ae2e01000060b20aae2e01000041"),
    "an empty item": (addx(b""), "021000000000c809ae2e0100000000000000000000"),
    "remove_tentative": (RESERVE, "03"),
    "save_xid": (save_xid(5), "0405000000"),
    "save_xid of the largest": (save_xid(2**31 - 1), "04ffffff7f"),
    "save_xid of the smallest": (save_xid(-(2**31)), "0400000080"),
    "unremove": (unremove(5), "0505000000"),
    "confirm_remove": (confirm(-1), "06ffffffff"),
    "add_xid": (add_xid(5, b"A"), "07050000001100000000c809ae2e010000000000000000000041"),
    "state_dump": (state_dump(5, 2), "080500000002000000"),
    "continue": (continue_(5, b"A"), "08050000001100000000c809ae2e010000000000000000000041"),
    "remove_tentative_xid": (reserve_as(5), "0905000000"),
}
MALFORMED = {
    "an opcode that there is not": ("7f", DOCUMENTED, "there is no operation 127"),
    "a 9 where there is none": ("0905000000", DOCUMENTED, "there is no operation 9"),
    "an add of less than its head": ("000300000000000000", DOCUMENTED, "the size is 3, but that of add is at least 4"),
    "an addx of less than its head": (
        "020f000000" + "00" * 16,
        DOCUMENTED,
        "the size is 15, but that of addx is at least 16",
    ),
    "a negative size": ("0705000000ffffffff", DOCUMENTED, "the size is -1, but that of add_xid is at least 16"),
    "a small continue": ("080500000002000000", KESTREL2, "the size is 2, but that of continue is at least 16"),
    "a negative count": ("0805000000ffffffff", DOCUMENTED, "the count of a state dump is -1"),
}
CASE = pytest.mark.parametrize(("operation", "encoded"), CASES.values(), ids=CASES)


def dialect_of(operation: Operation) -> int:
    return DIALECTS[DIALECT_OF.get(operation.op, "documented")]


@CASE
def test_operation_is_encoded_and_decoded(operation: Operation, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert codec.encode(operation) == data
    assert codec.decode(data, dialect=dialect_of(operation)) == (operation, Span(0, len(data)))


@CASE
def test_decoding_byte_by_byte_needs_more_until_complete(operation: Operation, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    for size in range(len(data)):
        assert codec.decode(data[:size], dialect=dialect_of(operation)) is NEED_MORE


@CASE
def test_bytes_before_and_after_are_ignored(operation: Operation, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    found = codec.decode(b"\x7f\x7f" + data + b"\x7f", 2, dialect=dialect_of(operation))
    assert found == (operation, Span(2, 2 + len(data)))


@pytest.mark.parametrize(("encoded", "dialect", "reason"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_operation_is_reported_with_its_position(encoded: str, dialect: int, reason: str) -> None:
    with pytest.raises(Malformed) as raised:
        codec.decode(b"\x01" + bytes.fromhex(encoded), 1, dialect=dialect)
    assert (raised.value.position, raised.value.reason) == (1, reason)


def test_decoding_without_a_dialect_is_refused() -> None:
    with pytest.raises(WrongUse, match="cannot be decoded without a dialect"):
        codec.decode(b"\x01", dialect=UNDECIDED)


def test_every_operation_has_one_name_and_one_number() -> None:
    assert [OPS[name] for name in OP_NAMES] == list(range(11))
    assert {operation.op for operation, _ in CASES.values()} == set(OPS)


# --- the facts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fact", FACTS["opcodes"], ids=lambda fact: fact["name"])
def test_golden_examples_decode_to_their_operation(fact: dict[str, Any]) -> None:
    dialect = KESTREL2 if fact["code"] in (8, 9) else DOCUMENTED
    for key in ("example_hex", "example_hex_expiry"):
        data = bytes.fromhex(fact.get(key, "01"))
        operation, span = codec.decode(data, dialect=dialect)  # type: ignore[misc]
        assert span.end == len(data)
        assert codec.encode(operation) == data
    name = fact["name"].split()[0].lower()
    assert codec.decode(bytes.fromhex(fact["example_hex"]), dialect=dialect)[0].op == name  # type: ignore[index]


def test_golden_state_dump_matches_the_description() -> None:
    (fact,) = (fact for fact in FACTS["opcodes"] if fact["code"] == 8)
    data = bytes.fromhex(fact["conflict"]["example_hex"])
    assert codec.decode(data) == (state_dump(5, 2), Span(0, 9))


@pytest.mark.parametrize("scenario", FACTS["scenarios"], ids=lambda scenario: scenario["name"])
def test_golden_scenarios_have_the_derived_bytes(scenario: dict[str, Any]) -> None:
    operations = scenario_operations(scenario)
    data = b"".join(map(codec.encode, operations))
    assert len(data) == scenario["encoded_length"]
    assert data.hex() == scenario.get("derived_hex", data.hex())
    stop, count, ending, _ = codec.walk(data, 0, len(data), KESTREL2)
    assert (stop, count, ending) == (len(data), len(operations), codec.CLEAN)
    assert codec.operations(data, 0, stop, count, KESTREL2) == operations


def test_golden_broken_item_carries_the_position_of_its_opcode() -> None:
    (scenario,) = (scenario for scenario in FACTS["scenarios"] if scenario["name"] == "corrupt trailing byte")
    data = bytes.fromhex(scenario["derived_hex"] + scenario["append_hex"])
    stop, count, ending, _ = codec.walk(data, 0, len(data), DOCUMENTED)
    assert (stop, count, ending) == (scenario["last_valid_position_by_rule"], 1, codec.MALFORMED)
    assert codec.explain(data, stop, len(data), DOCUMENTED) == "there is no operation 127"


# --- walking --------------------------------------------------------------------------------------------------------


def test_walk_returns_the_latest_time_and_how_it_ended() -> None:
    data = b"".join(map(codec.encode, [addx(b"x", added=5), add_xid(1, b""), REMOVE]))
    assert codec.walk(data, 0, len(data), DOCUMENTED) == (len(data), 3, codec.CLEAN, ADDED)
    assert codec.walk(data, 0, len(data), DOCUMENTED, 1) == (22, 1, codec.CLEAN, 5)
    assert codec.walk(data[:-2], 0, len(data) - 2, DOCUMENTED) == (22, 1, codec.INCOMPLETE, 5)
    assert codec.walk(b"\x01", 0, 1, DOCUMENTED) == (1, 1, codec.CLEAN, codec.NO_TIME)


@pytest.mark.parametrize("byte", [8, 9])
def test_walk_without_a_dialect_stops_where_the_dialect_matters(byte: int) -> None:
    assert codec.walk(bytes([1, 3, byte]), 0, 3, UNDECIDED) == (2, 2, codec.DIALECT_NEEDED, codec.NO_TIME)
    assert "depends on the dialect" in codec.explain(bytes([byte]), 0, 1, UNDECIDED)


def test_incomplete_operation_is_explained_by_what_is_missing() -> None:
    data = codec.encode(addx(b"twenty-one bytes of it"))
    assert codec.explain(data, 0, 30, DOCUMENTED) == "only 30 of the operation's 43 bytes are there"
    assert codec.explain(data, 0, 3, DOCUMENTED) == "only 3 bytes of addx are there"


@pytest.mark.parametrize(
    "operation",
    [
        Operation("fetch"),
        Operation("remove", 5),
        Operation("confirm_remove"),
        Operation("addx", data=b""),
        Operation("addx", added=0, expires=0, data=b""),
        Operation("add", expires=1500, data=b""),
        Operation("add", expires=2**31 * 1000, data=b""),
        Operation("save_xid", 2**31),
        Operation("state_dump", 1, -1),
        Operation("addx", added=2**63, data=b""),
    ],
    ids=repr,
)
def test_values_that_the_format_cannot_hold_are_refused(operation: Operation) -> None:
    with pytest.raises(WrongUse):
        codec.encode(operation)


def test_item_that_is_too_large_is_refused_before_it_is_copied() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31 - 16

    with pytest.raises(TooLarge, match="more than the 2147483631"):
        codec.encode(addx(Huge()))
