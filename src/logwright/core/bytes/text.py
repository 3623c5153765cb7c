"""Text: whether a file is text instead of records, and why a JSON file is invalid."""

from __future__ import annotations

import codecs
import json
from typing import Final

LOOKED_AT_BYTES: Final = 512
_LEAST_CHARACTERS: Final = 8


def is_text(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes is text: no crash of a writer leaves text.

    The last character may be incomplete.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        return False
    return len(text) >= _LEAST_CHARACTERS and all(letter.isprintable() or letter in "\t\n\r\f" for letter in text)


def why_invalid(error: Exception) -> str:
    """Why a JSON file of ours is invalid, by the error that reading it raised. For messages."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return "it is not valid JSON"
    if isinstance(error, KeyError):
        return f"it has no field {error}"
    if isinstance(error, TypeError | AttributeError):
        return "a field has the wrong type"
    return str(error)
