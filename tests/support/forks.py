"""Processes that a test forks and kills, hundreds of them, from a server that has loaded what they need.

There is one such server in a process, and what it loads is settled when it starts. So the programs of all tests that
kill something are named here.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

PROGRAMS = [
    "tests.contract.killed_writer",
    "tests.kestrel.killed_queue",
    "tests.yeltsin.killed_database",
    "tests.servers.hub.killed_hub",
    "tests.servers.queue.killed_server",
]


def fork_server() -> ForkServerContext:
    """Where such processes come from."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PROGRAMS)
    return found
