"""Processes that a test forks and kills, hundreds of them, from a server that has loaded their code.

A process has one such server, and the modules that it loads are fixed when it starts. So this module names the programs
of all tests that kill processes.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

PROGRAMS = [
    "logwright.torture.run",
    "tests.contract.killed_writer",
    "tests.kestrel.killed_queue",
    "tests.yeltsin.killed_database",
    "tests.servers.hub.killed_hub",
    "tests.servers.queue.killed_server",
]


def fork_server() -> ForkServerContext:
    """The source of such processes."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PROGRAMS)
    return found
