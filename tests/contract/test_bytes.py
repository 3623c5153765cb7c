"""Bytes and records, for every format: what was encoded comes back, and nothing else is made of other bytes."""

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
def test_what_was_encoded_is_decoded(subject: Subject, data: Any) -> None:
    for record in any_records(data, subject):
        encoded = subject.encode_record(record)
        assert subject.decode_record(encoded) == (record, Span(0, len(encoded)))


@EACH_SUBJECT
@PROPERTY
@given(data=strategies.data())
def test_a_file_of_records_is_scanned_to_its_end_by_each_twin(subject: Subject, data: Any) -> None:
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
@given(data=strategies.data(), behind=strategies.binary(max_size=100))
def test_bytes_behind_a_record_do_not_matter(subject: Subject, data: Any, behind: bytes) -> None:
    record = any_records(data, subject)[0]
    encoded = subject.encode_record(record)
    assert subject.decode_record(encoded + behind) == (record, Span(0, len(encoded)))


@EACH_SUBJECT
@settings(PROPERTY, max_examples=30)
@given(data=strategies.data())
def test_a_scan_of_every_prefix_of_a_file_ends_at_its_last_whole_record(subject: Subject, data: Any) -> None:
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
def test_any_bytes_are_a_record_or_need_more_or_are_malformed(subject: Subject, garbage: bytes) -> None:
    try:
        answer = subject.decode_record(garbage)
    except Malformed:
        return
    if answer is not NEED_MORE:
        record, span = answer
        assert subject.encode_record(record) == garbage[span.start : span.end]


def test_noise_gives_each_decoder_only_our_own_errors(subject: Subject) -> None:
    chance = random.Random(5)
    number = 2000
    for name, decoder in subject.decoders().items():
        for _ in range(number):
            noise = chance.randbytes(chance.choice((0, 1, 17, 26, 64, 300)))
            assert error_of(partial(decoder, noise)) != "", f"{name} raised an error that says nothing"
    COUNTS.add("fuzzed inputs", number, subject.name)
