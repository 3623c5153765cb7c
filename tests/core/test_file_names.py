"""Names are printed as unique text, and parsed back to the same bytes."""

from __future__ import annotations

import os
import random

import pytest

from logwright.core.io.file_names import as_text, name_of, printed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"orders", "orders"),
        ("größe/日本".encode(), "größe/日本"),
        (rb"a\b", r"a\b"),
        (rb"a\x7f", r"a\x7f"),
        (b"\xff", r"\xff"),
        (rb"\xff", r"\\xff"),
        (rb"\\xff", r"\\\\xff"),
        (b"\\\xff", r"\\\xff"),
        (b"a\\b/\xfe\xff", r"a\\b/\xfe\xff"),
        (rb"a\\b", r"a\\\\b"),
    ],
)
def test_printed_name_parses_to_the_same_name(name: bytes, text: str) -> None:
    assert printed(os.fsdecode(name)) == text
    assert os.fsencode(name_of(text)) == name


def test_different_names_are_printed_differently() -> None:
    dice = random.Random(1)
    pieces = [b"\\", b"x", b"\xff", b"ff", b"\x80", b"80", "é".encode(), b"/", b"\xc3"]
    names = {b"".join(dice.choices(pieces, k=dice.randrange(1, 7))) for _ in range(20_000)}
    texts = {printed(os.fsdecode(name)): name for name in names}
    assert len(texts) == len(names)
    assert all(os.fsencode(name_of(text)) == name for text, name in texts.items())
    assert all(text.encode() for text in texts)


def test_unescaped_text_is_a_name() -> None:
    assert name_of(r"a\b\\c") == r"a\b\\c"


def test_messages_are_text_whatever_names_they_contain() -> None:
    assert as_text(os.fsdecode(b"open \xff/\\x: refused")) == r"open \xff/\x: refused"
