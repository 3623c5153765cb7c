"""A queue server in a separate process, which a test kills. Its journal is small, and often rewritten."""

from __future__ import annotations

import asyncio
import logging
from multiprocessing.connection import Connection
from pathlib import Path

from logwright.core.io.durability import parse_sync
from logwright.kestrel.model.limits import Limits
from logwright.servers.queue.limits import ServerLimits
from logwright.servers.queue.server import QueueServer, run
from logwright.servers.queue.service import ServerSettings
from logwright.servers.security import Address

SMALL = Limits(default_journal_bytes=2000, max_journal_bytes=8000, max_memory_bytes=4000)


def serve_for_ever(directory: str, sync: str, sender: Connection) -> None:
    """Serve until killed; send the port once it is known."""
    logging.getLogger("logwright").setLevel(logging.CRITICAL)
    settings = ServerSettings(
        directory=Path(directory),
        address=Address("127.0.0.1", 0),
        sync=parse_sync(sync),
        queues=SMALL,
        limits=ServerLimits(keep_free_bytes=1),
    )

    async def serve() -> None:
        async with QueueServer(settings) as server:
            sender.send_bytes(str(server.address.port).encode())
            await asyncio.Event().wait()

    run(serve())
