"""The documents that the two originals write, accept and reject: the same results, except for decided differences."""

from __future__ import annotations

import hashlib
import struct
from types import ModuleType
from typing import Any

import pytest

from logwright.core.bytes.outcome import NEED_MORE
from logwright.versioned.bytes.bonjson.errors import DecodeError, EncodeError, Incomplete
from tests.versioned.bonjson.samples import EACH_TWIN, golden

VECTORS = golden("vectors")
INVALID = golden("invalid")


def test_all_golden_vectors_are_present() -> None:
    assert [len(VECTORS[name]) for name in ("vectors", "decode_only", "long_strings")] == [406, 19, 6]
    assert [len(INVALID[name]) for name in ("must_reject", "originals_disagree", "bd_signed_encoder_defect")] == [
        63,
        14,
        44,
    ]


@EACH_TWIN
def test_every_vector_is_written_and_read(twin: ModuleType) -> None:
    for case in VECTORS["vectors"]:
        data = bytes.fromhex(case["hex"])
        assert twin.encode(case["value"]) == data, case
        assert repr(twin.decode(data)) == repr(case["value"]), case
        assert twin.size_of(data) == len(data), case
        if "f64_bits" in case:
            assert struct.pack(">d", twin.decode(data)).hex() == case["f64_bits"], case


@EACH_TWIN
def test_whole_floats_of_the_c_library_are_read_as_the_same_number(twin: ModuleType) -> None:
    for case in VECTORS["vectors"]:
        if "ksbonjson_writes" in case:
            assert twin.decode(bytes.fromhex(case["ksbonjson_writes"])) == case["value"], case


@EACH_TWIN
def test_every_vector_cut_short_needs_more(twin: ModuleType) -> None:
    for case in (*VECTORS["vectors"], *VECTORS["decode_only"]):
        data = bytes.fromhex(case["hex"])
        for end in range(len(data)):
            assert twin.size_of(data, 0, end) is NEED_MORE, case


@EACH_TWIN
def test_forms_that_are_only_read(twin: ModuleType) -> None:
    for case in VECTORS["decode_only"]:
        assert repr(twin.decode(bytes.fromhex(case["hex"]))) == repr(case["value"]), case


@EACH_TWIN
def test_long_strings_have_the_originals_bytes(twin: ModuleType) -> None:
    for case in VECTORS["long_strings"]:
        text = case["unit"] * case["count"]
        data = twin.encode(text)
        assert data.hex().startswith(case["header_hex"]), case
        assert (len(data), hashlib.sha256(data).hexdigest()) == (case["total_bytes"], case["sha256"]), case
        assert twin.decode(data) == text


@EACH_TWIN
def test_invalid_vectors_are_rejected(twin: ModuleType) -> None:
    for case in INVALID["must_reject"]:
        data = bytes.fromhex(case["hex"])
        with pytest.raises(DecodeError) as failure:
            twin.decode(data)
        assert 0 <= failure.value.position <= len(data), case
        cut = any(word in case["ksbonjson"] for word in ("Incomplete", "Not all containers"))
        if case["why"] != "big number without header":  # big numbers are not read, not even their header
            assert isinstance(failure.value, Incomplete) == cut, case
            assert (twin.size_of(data) is NEED_MORE) if cut else True, case


DECIDED: dict[str, tuple[Any, dict[str, bool]] | str] = {
    "empty input": "@ 0: 1 more bytes are due here, and only 0 are there",
    "two top-level values": "@ 1: 1 bytes follow the document",
    "trailing byte after an array": "@ 2: 1 bytes follow the document",
    "string holding NUL": ("\0", {}),
    "long string with NUL": ("a\0string", {}),
    'chunked string written by the C library ("a"," str","ing")': ("a string", {}),
    "duplicate key": ({"a": 2}, {"last_key_wins": True}),
    "float16 +infinity": (float("inf"), {"allow_nan": True}),
    "float16 NaN": (float("nan"), {"allow_nan": True}),
    "float32 NaN": (float("nan"), {"allow_nan": True}),
    "float64 signalling NaN": (float("nan"), {"allow_nan": True}),
    "big number 1.5": "@ 0: big numbers are not supported",
}
"""The result for each: refused with a message, or read with these options and refused without them."""


@EACH_TWIN
def test_disagreements_of_the_originals_are_resolved_as_documented(twin: ModuleType) -> None:
    cases = {case["why"]: bytes.fromhex(case["hex"]) for case in INVALID["originals_disagree"] if "hex" in case}
    assert cases.keys() == DECIDED.keys()
    for why, decided in DECIDED.items():
        if isinstance(decided, str):
            with pytest.raises(DecodeError) as failure:
                twin.decode(cases[why])
            assert str(failure.value) == decided
            continue
        value, options = decided
        assert repr(twin.decode(cases[why], **options)) == repr(value)
        if options:
            with pytest.raises(DecodeError):
                twin.decode(cases[why])


@EACH_TWIN
def test_non_finite_numbers_are_never_written(twin: ModuleType) -> None:
    for case in INVALID["originals_disagree"]:
        if "encode" in case:
            with pytest.raises(EncodeError, match="cannot be stored as JSON"):
                twin.encode(float(case["encode"]))


@EACH_TWIN
def test_defect_of_signed_integers_is_not_repeated_and_cannot_be_repaired(twin: ModuleType) -> None:
    for case in INVALID["bd_signed_encoder_defect"]:
        assert twin.encode(case["value"]).hex() == case["correct_hex"], case
        assert twin.decode(bytes.fromhex(case["bd_i64_writes"])) == case["which_decodes_to"], case
