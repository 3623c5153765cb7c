"""The hub: copies of sej journals on another machine, by gRPC. Needs grpcio: pip install 'logwright[hub]'.

    from logwright.servers import hub

    hub.copy("orders", "127.0.0.1:7878", client="web1")             # the present messages
    hub.copy("orders", "127.0.0.1:7878", client="web1", follow=True)
    hub.restore("orders", "127.0.0.1:7878", client="web1")          # onto a new machine

    async with hub.Hub("copies", hub.parse_address("127.0.0.1:7878")) as server:
        await server.wait()

`copy` and `restore` block; `send_path` and `restore_path` are the same for asyncio. An address other than loopback
needs TLS: see `Access.load` and `Protection.load`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ..security import Address, Protection, parse_address
from .client import HubClient
from .client_access import Access
from .download import Restored, restore_path
from .errors import Barred, Conflict, DamagedCopy, HubError, OutOfStep, Refused, TooLargeForHub, Unreachable
from .limits import Limits
from .sender import Sent
from .server import Hub
from .upload import send_path

__all__ = [
    "Access",
    "Address",
    "Barred",
    "Conflict",
    "DamagedCopy",
    "Hub",
    "HubClient",
    "HubError",
    "Limits",
    "OutOfStep",
    "Protection",
    "Refused",
    "Restored",
    "Sent",
    "TooLargeForHub",
    "Unreachable",
    "copy",
    "parse_address",
    "restore",
    "restore_path",
    "send_path",
]


def copy(path: Path | str, address: str | Address | Access, *, client: str, **options: Any) -> list[Sent]:
    """Copy a journal, or every shard below a root, to a hub; see `send_path` for the options."""
    return asyncio.run(send_path(_access(address), path, client=client, **options))


def restore(path: Path | str, address: str | Address | Access, *, client: str, **options: Any) -> list[Restored]:
    """Write a journal, or the shards of a root, from the copies on a hub; see `restore_path` for the options."""
    return asyncio.run(restore_path(_access(address), path, client=client, **options))


def _access(address: str | Address | Access) -> Access:
    return address if isinstance(address, Access) else Access.load(address)
