"""Bytes and records, for every format: encoded records decode to themselves, and other bytes decode to nothing else."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from logwright.core.bytes.outcome import NEED_MORE, Ending, Malformed, Span
from tests.contract.subject import Record, Subject, error_of
from tests.contract.subjects import SUBJECTS
from tests.support.counts import COUNTS

PROPERTY = settings(derandomize=True, deadline=None, database=None, max_examples=150)
EACH_SUBJECT = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)


def any_records(data: Any, subject: Subject) -> list[Record]:
    return data.draw(subject.strategy())  # type: ignore[no-any-return]


@EACH_SUBJECT
@PROPERTY
@given(data=strategies.data())
def test_encoded_record_decodes_to_itself(subject: Subject, data: Any) -> None:
    for record in any_records(data, subject):
        encoded = subject.encode_record(record)
        assert subject.decode_record(encoded) == (record, Span(0, len(encoded)))


@EACH_SUBJECT
@PROPERTY
@given(data=strategies.data())
def test_each_twin_scans_a_file_to_its_end(subject: Subject, data: Any) -> None:
    records = any_records(data, subject)
    encoded = subject.encode(records)
    assert subject.ends(records)[-1] == len(encoded)
    for twin in subject.twins():
        scanned = subject.scan(twin, encoded)
        assert scanned.records == records
        assert (scanned.end, scanned.ending) == (len(encoded), Ending.CLEAN)


@EACH_SUBJECT
@settings(PROPERTY, max_examples=40)
@given(data=strategies.data())
def test_every_proper_prefix_of_a_record_needs_more(subject: Subject, data: Any) -> None:
    encoded = subject.encode_record(any_records(data, subject)[0])
    for size in range(len(encoded)):
        assert subject.decode_record(encoded[:size]) is NEED_MORE, f"{size} of {len(encoded)} bytes"


@EACH_SUBJECT
@PROPERTY
@given(data=strategies.data(), tail=strategies.binary(max_size=100))
def test_bytes_after_a_record_are_ignored(subject: Subject, data: Any, tail: bytes) -> None:
    record = any_records(data, subject)[0]
    encoded = subject.encode_record(record)
    assert subject.decode_record(encoded + tail) == (record, Span(0, len(encoded)))


@EACH_SUBJECT
@settings(PROPERTY, max_examples=30)
@given(data=strategies.data())
def test_scan_of_every_prefix_of_a_file_ends_at_its_last_complete_record(subject: Subject, data: Any) -> None:
    records = any_records(data, subject)
    encoded, ends = subject.encode(records), subject.ends(records)
    for twin in subject.twins():
        for size in range(ends[0], len(encoded) + 1):
            whole = sum(end <= size for end in ends[1:])
            scanned = subject.scan(twin, encoded[:size])
            assert scanned.records == records[:whole]
            assert scanned.end == ends[whole]
            assert scanned.ending is (Ending.CLEAN if size in ends else Ending.INCOMPLETE)


@EACH_SUBJECT
@PROPERTY
@given(garbage=strategies.binary(max_size=400))
def test_any_bytes_are_a_record_incomplete_or_malformed(subject: Subject, garbage: bytes) -> None:
    try:
        answer = subject.decode_record(garbage)
    except Malformed:
        return
    if answer is not NEED_MORE:
        record, span = answer
        assert subject.encode_record(record) == garbage[span.start : span.end]


def test_decoders_raise_only_our_errors_on_noise(subject: Subject) -> None:
    chance = random.Random(5)
    number = 2000
    for name, decoder in subject.decoders().items():
        for _ in range(number):
            noise = chance.randbytes(chance.choice((0, 1, 17, 26, 64, 300)))
            assert error_of(partial(decoder, noise)) != "", f"{name} raised an error that says nothing"
    COUNTS.add("fuzzed inputs", number, subject.name)
