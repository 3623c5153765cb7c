"""Bytes to requests: the same requests, wherever the bytes are cut."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logwright.servers.queue.limits import ServerLimits
from logwright.servers.queue.parser import GET, HANG_UP, OTHER, REFUSED, SET, Arriving, Parser, Request

LIMITS = ServerLimits(max_item_bytes=100, max_line_bytes=60)
BAD_LINE, BAD_DATA = b"CLIENT_ERROR bad command line format\r\n", b"CLIENT_ERROR bad data chunk\r\n"
TOO_LARGE, NO_MEMORY = b"SERVER_ERROR object too large for cache\r\n", b"SERVER_ERROR out of memory storing object\r\n"
CASES: list[tuple[bytes, list[Request]]] = [
    (b"set q 0 0 3\r\nabc\r\n", [(SET, b"q", 0, b"abc", False)]),
    (b"SET q 7 60 0 noreply\n\r\n", [(SET, b"q", 60, b"", True)]),
    (b"set q 0 -5 2 x\r\n\r\n\r\n", [(SET, b"q", -5, b"\r\n", False)]),
    (b"get a\tb  c \r\nGETS a\n", [(GET, [b"a", b"b", b"c"], False), (GET, [b"a"], True)]),
    (b"Stats settings\r\n", [(OTHER, [b"Stats", b"settings"])]),
    (b"\r\n \n", [(REFUSED, b"ERROR\r\n")] * 2),
    (b"get\r\ngets \r\n", [(REFUSED, b"ERROR\r\n")] * 2),
    (b"set q 0 0 3\r\nabcd\r\nget q\r\n", [(REFUSED, BAD_DATA), (GET, [b"q"], False)]),
    (b"set q 0 0 3\r\nabc\n\nget q\r\n", [(REFUSED, BAD_DATA), (REFUSED, b"ERROR\r\n"), (GET, [b"q"], False)]),
    (b"set q 0 0 1\r\na\nget q\r\nset q 0 0 0\r\n\r\r\nget q\r\n", [(REFUSED, BAD_DATA), (GET, [b"q"], False)] * 2),
    (b"set q 0 0 3 noreply\r\nabcdef\nget q\r\n", [(REFUSED, b""), (GET, [b"q"], False)]),
    (b"set q 0 0 101\r\n" + b"x" * 101 + b"\r\nget q\r\n", [(REFUSED, TOO_LARGE), (GET, [b"q"], False)]),
    (b"set q 0 0 101 noreply\r\n" + b"\n" * 101 + b"\r\nget q\r\n", [(REFUSED, b""), (GET, [b"q"], False)]),
    (b"set q 0 0 2147483646\r\nget q\r\n", [(REFUSED, BAD_LINE), (GET, [b"q"], False)]),
    (b"set q 0 0 1e3\r\nset q 0 0 +3\r\n", [(REFUSED, BAD_LINE)] * 2),
    (b"set q 0 0 1_0\r\nset q 0 0 \xb2\r\n", [(REFUSED, BAD_LINE)] * 2),
    (b"set q 4294967296 0 1\r\nx\r\nset q 0 253402300800 1\r\nx\r\n", [(REFUSED, BAD_LINE)] * 2),
    (b"set q 0 0\r\nset q 0 0 1 2 3\r\n", [(REFUSED, b"ERROR\r\n")] * 2),
    (b"add q 0 0 3\r\nset\r\ncas q 0 0 2 9 noreply\r\nxx\r\n", [(REFUSED, b"ERROR\r\n"), (REFUSED, b"")]),
    (b"x" * 61, [(HANG_UP, b"CLIENT_ERROR line too long\r\n")]),
    (b"get " + b"x" * 61 + b"\r\nget q\r\n", [(HANG_UP, b"CLIENT_ERROR line too long\r\n")]),
]


def parsed(pieces: list[bytes]) -> tuple[list[Request], Parser]:
    arriving = Arriving(1000)
    parser = Parser(LIMITS, arriving)
    found = [request for piece in pieces for request in parser.feed(piece)]
    assert arriving.bytes <= 100
    parser.close()
    assert arriving.bytes == 0
    return found, parser


@pytest.mark.parametrize(("data", "requests"), CASES)
def test_request_is_parsed_wherever_it_is_split(data: bytes, requests: list[Request]) -> None:
    assert parsed([data])[0] == requests
    assert parsed([bytes([byte]) for byte in data])[0] == requests
    for cut in range(1, len(data)):
        assert parsed([data[:cut], data[cut:]])[0] == requests


@given(st.randoms(use_true_random=False), st.integers(1, 30))
@settings(max_examples=200, deadline=None)
def test_any_mixture_of_requests_in_any_pieces_parses_equally(chance: random.Random, number: int) -> None:
    chosen = [chance.choice(CASES[:-2]) for _ in range(number)]
    data = b"".join(case for case, _ in chosen)
    pieces = []
    while data:
        size = chance.randint(1, 80)
        pieces.append(data[:size])
        data = data[size:]
    assert parsed(pieces)[0] == [request for _, requests in chosen for request in requests]


@given(st.lists(st.binary(max_size=200), max_size=20))
@settings(max_examples=300, deadline=None)
def test_noise_is_parsed_and_never_raises(pieces: list[bytes]) -> None:
    whole = parsed([b"".join(pieces)])[0]
    assert parsed(pieces)[0] == whole
    assert all(request[0] in (SET, GET, OTHER, REFUSED, HANG_UP) for request in whole)


class Counted(bytes):
    """Bytes that count how many of them were copied."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        Counted.copied += len(found) if isinstance(found, bytes) else 0
        return found


@pytest.mark.parametrize(
    ("piece", "answer"),
    [
        (b"set a 0 0 0\r\nxx\r\n", BAD_DATA),
        (b"set a 0 0 1\r\nxx\r\n", BAD_DATA),
        (b"add a 0 0 1\r\nx\r\n", b"ERROR\r\n"),
        (b"set a x 0 1\r\nx\r\n", BAD_LINE),
        (b"set a 0 0 101\r\n" + b"x" * 101 + b"\r\n", TOO_LARGE),
    ],
)
def test_refused_blocks_are_each_copied_once(piece: bytes, answer: bytes) -> None:
    data = Counted(piece * 2000)
    Counted.copied = 0
    assert Parser(LIMITS, Arriving(1000)).feed(data) == [(REFUSED, answer)] * 2000
    assert Counted.copied < 2 * len(data)


def test_block_is_within_a_request_and_so_is_a_line() -> None:
    parser = Parser(LIMITS, Arriving(1000))
    assert not parser.is_within
    parser.feed(b"ge")
    assert parser.is_within
    parser.feed(b"t q\r\n")
    assert not parser.is_within
    parser.feed(b"set q 0 0 3\r\n")
    assert parser.is_within
    parser.feed(b"abc\r\n")
    assert not parser.is_within


def test_total_bytes_of_all_requests_are_limited() -> None:
    arriving = Arriving(150)
    first, second = Parser(LIMITS, arriving), Parser(LIMITS, arriving)
    assert first.feed(b"set q 0 0 100\r\nabc") == []
    assert arriving.bytes == 100
    assert second.feed(b"set q 0 0 60\r\n" + b"x" * 30) == []
    assert second.feed(b"x" * 30 + b"\r\n") == [(REFUSED, NO_MEMORY)]
    assert first.feed(b"x" * 97 + b"\r\n") == [(SET, b"q", 0, b"abc" + b"x" * 97, False)]
    assert arriving.bytes == 0
    assert second.feed(b"set q 0 0 60\r\nx") == []
    second.close()
    assert arriving.bytes == 0
    assert second.feed(b"get q\r\n") == []
