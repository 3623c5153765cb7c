"""The machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from logwright.core.bytes.compiled import COMPILED


def describe(place: Path) -> dict[str, Any]:
    """The machine, the versions, and the file system that was written to."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "logwright": version("logwright"),
        "pyarrow": version("pyarrow"),
        "compiled_kernel": COMPILED,
        "file_system": _file_system(place),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _file_system(place: Path) -> str:
    """The type of the file system of a path, by the longest mount point that leads to it."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    found = [(len(mount[1]), mount[2]) for mount in mounts if place.resolve().is_relative_to(mount[1])]
    return max(found)[1] if found else "unknown"
