"""A real file system of a small size."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[Path]:
    """A new directory on a file system of `size` bytes; skips the test if none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip(f"only root can mount a file system of {size} bytes")
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system of {size} bytes cannot be mounted here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
