"""Names of clients and their journals, and the directory of each pair.

    ROOT/CLIENT.JOURNAL/

A client's name has letters, digits, `_` and `-`, and no dot: so what is in front of the first dot of a directory's name
is the client, and no two pairs share a directory. A journal's name may have dots within, as those of shards have, but
neither at its ends nor two in a row. The whole name is matched: no slash, no `..`, no control character gets through.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ...errors import WrongUse

MOST_CHARACTERS: Final = 100
"""Of each name: so two of them and a dot are the name of a directory on every system. Clients and hubs agree on it."""
_CLIENT: Final = re.compile(r"[A-Za-z0-9_-]+")
_JOURNAL: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def check_client(client: str) -> None:
    """Raise `WrongUse` for a name that is no client's."""
    _check("client", client, _CLIENT, "letters, digits, _ and -")


def check_journal(journal: str) -> None:
    """Raise `WrongUse` for a name that is no journal's."""
    _check("journal", journal, _JOURNAL, "letters, digits, _ and -, and single dots between them")


def is_journal(name: str) -> bool:
    """Whether this is a journal's name."""
    return len(name) <= MOST_CHARACTERS and _JOURNAL.fullmatch(name) is not None


def _check(what: str, name: str, pattern: re.Pattern[str], allowed: str) -> None:
    if len(name) > MOST_CHARACTERS:
        raise WrongUse(f"a {what}'s name of {len(name)} characters is too long: the limit is {MOST_CHARACTERS}")
    if not pattern.fullmatch(name):
        raise WrongUse(f"{name!r} is no name of a {what}: that is made of {allowed}")


def directory_of(root: Path, client: str, journal: str) -> Path:
    """The directory of a journal's copy; both names were checked."""
    return root / f"{client}.{journal}"


def journals_among(names: list[str], client: str) -> list[str]:
    """The journals of a client, of all directories there are."""
    found = [name.partition(".")[2] for name in names if name.partition(".")[0] == client]
    return sorted(filter(is_journal, found))
