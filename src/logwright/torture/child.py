"""The process that is killed: it writes, and reports through a pipe.

["opening"]                 it is about to open the journal
["open"], ["done", …]       what the exercise reports
["failed", errno, text]     the disk or the writer has failed; the process ends
"""

from __future__ import annotations

import json
import logging
from multiprocessing.connection import Connection
from typing import Any

from ..core.io.disk import REAL_DISK
from ..errors import StorageFailed
from .exercises import Exercise, Task
from .moments import Moment, MortalDisk


def write_until_killed(exercise: Exercise, task: Task, moment: Moment | None, pipe: Connection) -> None:
    """Write until this process is killed, from outside or at a moment of its disk."""

    def send(report: list[Any]) -> None:
        pipe.send_bytes(json.dumps(report).encode())

    logging.disable(logging.CRITICAL)
    try:
        send(["opening"])
        exercise.use(task, REAL_DISK if moment is None else MortalDisk(moment), send)
    except BrokenPipeError:
        return  # the process that checks is gone
    except StorageFailed as error:
        send(["failed", error.errno, str(error)])
    except Exception as error:
        send(["failed", None, f"{type(error).__name__}: {error}"])
