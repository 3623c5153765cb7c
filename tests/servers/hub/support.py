"""Hubs and clients for tests: in this process, or in a separate one that may be killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from logwright.core.io.disk import REAL_DISK
from logwright.sej import Reader, Writer
from logwright.servers.hub import Access, Hub, parse_address
from tests.servers.hub.wire_messages import GetRequest, GetResponse, Message, PutRequest, PutResponse
from tests.support.trees import differences, read_tree

Result = TypeVar("Result")
DEADLINE_SECONDS = 60.0
"""Far longer than anything here takes; reached only if something hangs."""


def in_loop(work: Coroutine[Any, Any, Result], most_seconds: float = DEADLINE_SECONDS) -> Result:
    """Run a coroutine to its end in a new event loop, unless it hangs."""

    async def bounded() -> Result:
        async with asyncio.timeout(most_seconds):
            return await work

    return asyncio.run(bounded())


def write_journal(directory: Path, count: int, *, segment_size: int = 1 << 30, seed: int = 1) -> None:
    """A journal of messages of all kinds, appended to the existing ones."""
    chance = random.Random(seed)
    with Writer(directory, segment_size=segment_size) as writer:
        for number in range(count):
            timestamp = None if number % 7 == 3 else 1_700_000_000_000_000_000 + number
            key = chance.randbytes(chance.choice([0, 0, 8, 127]))
            writer.append(chance.randbytes(chance.choice([0, 10, 100, 300])), key, number % 256, timestamp)


def damage(source: Path, offset: int) -> int:
    """Damage a message of a journal of one segment; the position of its beginning."""
    path = source / "jnl" / f"{0:016x}.jnl"
    data = bytearray(path.read_bytes())
    (located,) = Reader(source).scan(offset, offset + 1)
    start = int(located.span.start)
    data[start : start + 18] = b"\xff" * 18
    path.write_bytes(data)
    return start


def write_secret(path: Path, data: bytes) -> Path:
    """A file that only its owner may read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(data)
    return path


@asynccontextmanager
async def running(directory: Path, **options: Any) -> AsyncIterator[Hub]:
    """A hub on a free port of loopback."""
    async with Hub(directory, parse_address("127.0.0.1:0"), **options) as hub:
        yield hub


def copies_in(root: Path) -> list[Path]:
    """The directories of the copies of a hub, without the hub's own files."""
    return [path for path in sorted(root.iterdir()) if path.name != ".logwright"]


def access_to(hub: Hub) -> Access:
    return Access.load(hub.address)


class Wire:
    """A client that uses only gRPC and the original's messages."""

    def __init__(self, hub: Hub, *metadata: tuple[str, str], channel: Any = None) -> None:
        self._metadata = metadata
        self._root = str(hub.copies.root)
        self._channel = grpc.aio.insecure_channel(str(hub.address)) if channel is None else channel
        self._put = self._channel.unary_unary(
            "/hub.Hub/Put",
            request_serializer=PutRequest.SerializeToString,
            response_deserializer=PutResponse.FromString,
        )
        self._get = self._channel.unary_unary(
            "/hub.Hub/Get",
            request_serializer=GetRequest.SerializeToString,
            response_deserializer=GetResponse.FromString,
        )

    async def put(self, client: str, journal: str, *messages: Any) -> None:
        request = PutRequest(ClientID=client, JournalDir=journal, Messages=messages)
        await self._put(request, metadata=self._metadata, timeout=DEADLINE_SECONDS)

    async def get(self, client: str, journal: str, offset: int = 0) -> list[Any]:
        request = GetRequest(ClientID=client, JournalDir=journal, Offset=offset)
        return list((await self._get(request, metadata=self._metadata, timeout=DEADLINE_SECONDS)).Messages)

    async def refused(self, work: Coroutine[Any, Any, Any]) -> tuple[str, str, dict[str, str]]:
        """The code, message and metadata that a call fails with. No error reveals the hub's directory."""
        try:
            await work
        except grpc.aio.AioRpcError as raised:
            error = raised
        else:
            raise AssertionError("nothing was refused")
        assert self._root not in error.details()
        return error.code().name, error.details(), dict(error.trailing_metadata())

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


def message(offset: int, value: bytes = b"value") -> Any:
    return Message(Offset=offset, Timestamp=5, Type=1, Key=b"key", Value=value)


def unlike(source: Path, copy: Path) -> list[str]:
    """The differences between the segments of two journals."""
    return differences(read_tree(REAL_DISK, source / "jnl"), read_tree(REAL_DISK, copy / "jnl"))
