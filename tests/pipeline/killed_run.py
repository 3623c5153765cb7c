"""A process that runs an increment and kills itself, by SIGKILL, at a point that is named on its command line.

python -m tests.pipeline.killed_run POINT JOURNALS OUT FORMAT
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from logwright.pipeline import Settings
from logwright.pipeline.publish.delta import DeltaTables
from logwright.pipeline.publish.iceberg import IcebergTables
from logwright.pipeline.publish.store import LocalStore
from logwright.pipeline.run import run
from logwright.pipeline.task import _Task

TABLES: Final[dict[str, Any]] = {"delta": DeltaTables, "iceberg": IcebergTables}
POINTS: Final = (
    "while rows are written",
    "before the manifest",
    "after the manifest",
    "between two tables",
    "before the checkpoint",
)


def kill_before(owner: Any, name: str, is_there: Callable[..., bool]) -> None:
    """Let a method kill the process when it is called as described."""
    plain = getattr(owner, name)

    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        if is_there(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, *arguments, **named)

    setattr(owner, name, called)


def nth(number: int) -> Callable[..., bool]:
    """Whether this is the n-th call."""
    calls = iter(range(1, 1 << 30))
    return lambda *_: next(calls) == number


def main(point: str, journals: str, out: str, format: str) -> None:
    tables = TABLES[format]
    match point:
        case "while rows are written":
            kill_before(_Task, "finish", nth(1))
        case "before the manifest":
            kill_before(LocalStore, "write", lambda name, _: name.endswith("manifest.json"))
        case "after the manifest":
            kill_before(tables, "commit", nth(1))
        case "between two tables":
            kill_before(tables, "commit", nth(3))
        case "before the checkpoint":
            kill_before(LocalStore, "write", lambda name, _: name.endswith("pipeline.json"))
    run(Settings(journals, out, incremental=True, format=format))


if __name__ == "__main__":
    main(*sys.argv[1:])
