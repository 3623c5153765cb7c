"""Which committed batch waits for a journal: a writer has it completed before it takes anything. See `staging.py`."""

from __future__ import annotations

from pathlib import Path

from ...core.io.disk import Disk
from ...core.publish.manifest import is_waiting
from .shard import parse_shard_name


def find_waiting(disk: Disk, journal: Path) -> Path | None:
    """The root of a batch that is committed for a journal, however much of it is in place there; None without one.

    A journal is its own root, or a shard of the one above it.
    """
    for root, name in ((journal, ""), (journal.parent, journal.name)):
        if (not name or parse_shard_name(name) is not None) and is_waiting(disk, root, "sej", name):
            return root
    return None
