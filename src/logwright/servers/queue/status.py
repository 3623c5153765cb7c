"""The status of a server: whether it takes everything, nothing but reads, or nothing new at all.

It is UP at the start, unless a file keeps it from one start to the next: then it is what somebody has last asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...core.io.disk import Disk, replace_file
from ...errors import NotFound, WrongUse

UP: Final = "UP"
READONLY: Final = "READONLY"
QUIESCENT: Final = "QUIESCENT"
STATUSES: Final = (UP, READONLY, QUIESCENT)
_MOST_BYTES: Final = 100


def load_status(disk: Disk, path: Path) -> str:
    """What a file says; UP when there is none."""
    try:
        file = disk.open(path, "read")
    except NotFound:
        if not disk.is_directory(path.absolute().parent):
            raise WrongUse(f"{path}: there is no directory for this file, so the status could not be kept") from None
        return UP
    try:
        found = file.read_at(0, _MOST_BYTES).decode("ascii", "replace").strip()
    finally:
        file.close()
    if found.upper() not in STATUSES:
        raise WrongUse(f"{path}: {found!r} is no status: it is one of {', '.join(STATUSES)}")
    return found.upper()


def save_status(disk: Disk, path: Path, status: str) -> None:
    """Have a file say this from now on, also after a power cut."""
    replace_file(disk, path, f"{status}\n".encode(), path.with_name(f"{path.name}~~"))
