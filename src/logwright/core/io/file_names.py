r"""Names of files as text, each as another one, and back.

A name is bytes, and a column, a checkpoint or a report holds text. Names that are text stay as they are. In others, and
in those that would look like them, bytes that are no UTF-8 are written as \xff, and a backslash is written twice:

    orders      orders      as it is, and so is a\b
    <ff>        \xff        a byte
    \xff        \\xff       a name of four characters
"""

from __future__ import annotations

import re
from typing import Final

_ODD: Final = re.compile("[\udc80-\udcff]")
"""What Python makes of a byte of a name that is no UTF-8."""
_ESCAPE: Final = re.compile(r"\\(?:\\|x([89a-f][0-9a-f]))")


def printed(name: str) -> str:
    """A name, or a path, as text. No two names are printed alike."""
    if not _ODD.search(name) and not _ESCAPE.search(name):
        return name
    return _ODD.sub(lambda odd: f"\\x{ord(odd[0]) - 0xDC00:02x}", name.replace("\\", "\\\\"))


def name_of(text: str) -> str:
    """The name that is printed like this. A text that no name is printed like is taken for a name."""
    found = _ESCAPE.sub(lambda escape: "\\" if escape[1] is None else chr(0xDC00 + int(escape[1], 16)), text)
    return found if printed(found) == text else text


def as_text(words: str) -> str:
    """What a message says, with the names in it, as text that a column can hold."""
    return words.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
