r"""File names as text, and back, without collisions.

A name is bytes, but a column, a checkpoint or a report holds text. Names that are valid UTF-8 stay as they are. In
other names, and in names that look like an escaped one, other bytes are written as \xff and a backslash is doubled:

    orders      orders      unchanged, as is a\b
    <ff>        \xff        a byte
    \xff        \\xff       a name of four characters
"""

from __future__ import annotations

import re
from typing import Final

_ODD: Final = re.compile("[\udc80-\udcff]")
"""How Python represents a byte of a name that is not UTF-8."""
_ESCAPE: Final = re.compile(r"\\(?:\\|x([89a-f][0-9a-f]))")


def printed(name: str) -> str:
    """A name, or a path, as text. Different names give different texts."""
    if not _ODD.search(name) and not _ESCAPE.search(name):
        return name
    return _ODD.sub(lambda odd: f"\\x{ord(odd[0]) - 0xDC00:02x}", name.replace("\\", "\\\\"))


def name_of(text: str) -> str:
    """The inverse of `printed`. A text that `printed` cannot return is taken as a name."""
    found = _ESCAPE.sub(lambda escape: "\\" if escape[1] is None else chr(0xDC00 + int(escape[1], 16)), text)
    return found if printed(found) == text else text


def as_text(words: str) -> str:
    """A message that may contain file names, as text that a column can hold."""
    return words.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
