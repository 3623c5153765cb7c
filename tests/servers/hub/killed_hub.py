"""A hub that is killed: forked from a process that has loaded its code."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection

from logwright.servers.hub import Hub, parse_address


def serve_for_ever(directory: str, address: str, sender: Connection) -> None:
    """Serve until killed; send the address once it is ready."""

    async def serve() -> None:
        async with Hub(directory, parse_address(address)) as hub:
            sender.send(str(hub.address))
            await hub.wait()

    asyncio.run(serve())
