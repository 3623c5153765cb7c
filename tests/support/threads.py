"""Threads of a test: a thread that hangs fails the test at a deadline, and does not prevent the run from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")

DEADLINE_SECONDS = 300.0
"""Far longer than anything here takes, even on a busy machine; reached only if something hangs."""


def in_a_thread(function: Callable[[], Result]) -> Future[Result]:
    """Start a function in a new thread; call `result(DEADLINE_SECONDS)` for its result."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
