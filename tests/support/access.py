"""A directory that even a test that runs as root may not read."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534


@contextlib.contextmanager
def open_to_all() -> Iterator[Path]:
    """A temporary directory that another user can read too; those of pytest are for their owner only."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        for path in directory.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(directory)


@contextlib.contextmanager
def without_access(*directories: Path) -> Iterator[None]:
    """Make some directories unreadable; a test that runs as root becomes another user meanwhile."""
    for directory in directories:
        directory.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        for directory in directories:
            directory.chmod(0o755)
