"""Whether a file is text: what no crash of a writer leaves in the place of records."""

from __future__ import annotations

import codecs
from typing import Final

LOOKED_AT_BYTES: Final = 512
_LEAST_CHARACTERS: Final = 8


def is_text(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes is text. The last character may be incomplete."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        return False
    return len(text) >= _LEAST_CHARACTERS and all(letter.isprintable() or letter in "\t\n\r\f" for letter in text)
