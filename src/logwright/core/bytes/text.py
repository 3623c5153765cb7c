"""Whether a file is text, which no crash of a writer leaves in the place of records; and what is wrong with JSON."""

from __future__ import annotations

import codecs
import json
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


def why_invalid(error: Exception) -> str:
    """What is wrong with a JSON file of ours, by the error that reading it raised, for people."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return "it is not valid JSON"
    if isinstance(error, KeyError):
        return f"it has no field {error}"
    if isinstance(error, TypeError | AttributeError):
        return "a field of it has another type than it should have"
    return str(error)
