"""The queue server: the queues of a directory for whoever speaks memcache's text protocol, as Kestrel does.

    wire        bytes to requests, and nothing else; `answers` are the lines that go back
    queues      the queues of the directory: opened, deleted, and opened again after a failure
    moving      items that nobody gets: expired ones, and those that failed too often
    space       what is free on the disk, and kept of it
    options     what each queue may be told
    commits     many requests, one write or one sync: the answers wait for it
    connection  a client: its requests in their order, its open reads, its waiting
    commands    what each request does
    figures     what is counted: `stats`, `dump_stats`, Prometheus
    status      whether everything is taken, or nothing but reads
    door        clients that are about to set up TLS
    server      listening, limits, the end

Everything is done by one thread, that of the event loop, but for what has to wait long for the disk.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .limits import ServerLimits
    from .server import QueueServer, ServerSettings, run

__all__ = ["QueueServer", "ServerLimits", "ServerSettings", "run"]


def __getattr__(name: str) -> Any:
    """What is above, loaded on first use: the command line wants to know the limits alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = "limits" if name == "ServerLimits" else "server"
    return getattr(importlib.import_module(f"{__name__}.{room}"), name)
