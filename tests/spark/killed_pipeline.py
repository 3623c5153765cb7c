"""A run of the pipeline that is ended by SIGKILL: the command line, which dies at a chosen rename of a file.

python killed_pipeline.py MOMENT ARGUMENTS...
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from unittest import mock

from logwright.cli import main
from logwright.core.io.disk import RealDisk

BEFORE = "before it is decided"
AFTER = "after it is decided"
AMONG = "when the first file is in place"
MOMENTS = (BEFORE, AFTER, AMONG)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(moment: str, arguments: list[str]) -> int:
    """Run a command line until the chosen moment."""
    really_rename = RealDisk.rename

    def rename(disk: RealDisk, source: Path, target: Path) -> None:
        if moment == BEFORE and target.name == "manifest.json":
            die()
        really_rename(disk, source, target)
        if (moment == AFTER and target.name == "manifest.json") or (moment == AMONG and target.name[:5] == "part-"):
            die()

    with mock.patch.object(RealDisk, "rename", rename):
        return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
