"""Checks: `verify` and the plan of a repair, run once for all browsers that ask, with progress.

The plan is only shown. Carrying it out is left to the command line, which takes the locks of writers.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from ..errors import LogwrightError
from .catalog import Catalog
from .live import Live, Topic

_REPORT_SECONDS: Final = 0.1
_MOST_LINES: Final = 200


class Stopped(Exception):
    """The last browser has left."""


class Checks:
    """The checks of journals."""

    def __init__(self, catalog: Catalog, live: Live) -> None:
        self._catalog = catalog
        self._live = live

    def watch(self, name: str) -> AsyncIterator[bytes]:
        """The progress of the check of a journal, which begins if there is none."""
        self._catalog.entry(name)
        return self._live.watch(f"check {name}", lambda topic: self._check(name, topic))

    def _check(self, name: str, topic: Topic) -> None:
        try:
            topic.publish("checked", self.check(name, topic), keep=True)
        except Stopped:
            return
        except (LogwrightError, OSError) as error:
            topic.publish("failed", {"error": str(error)}, keep=True)
        finally:
            topic.stopped.set()  # the next browser that asks starts a new check

    def check(self, name: str, topic: Topic) -> dict[str, Any]:
        """The report of `verify`, and the plan of a repair if there is something to repair."""
        entry = self._catalog.entry(name)
        last = [0.0]

        def progress(done: int, total: int) -> None:
            if topic.stopped.is_set():
                raise Stopped
            if time.monotonic() - last[0] >= _REPORT_SECONDS:
                last[0] = time.monotonic()
                topic.publish("progress", {"done": done, "total": total})

        with self._catalog.open(name) as reader:
            report = reader.verify(progress=progress)
        self._catalog.note_report(name, report)
        path = shlex.quote(str(entry.path))
        found: dict[str, Any] = {**report.as_json(), "path": str(entry.path), "plan": None}
        for listed in ("problems", "anomalies", "losses"):
            found[f"{listed}_total"] = len(found[listed])
            found[listed] = found[listed][:_MOST_LINES]
        if not report.sound:
            plan = entry.format.repairs.plan(entry.path)
            lines = list(plan.describe())
            found["plan"] = {"lines": lines[:_MOST_LINES], "total": len(lines), "left": list(plan.left)[:_MOST_LINES]}
            found["command"] = f"logwright repair {path}"
        return found
