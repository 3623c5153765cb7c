"""Connections that break after any number of bytes, in either direction: copy and restore continue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logwright.servers.hub import Access, Hub, Limits, restore_path, send_path
from logwright.servers.security import Address
from tests.servers.hub.support import in_loop, running, unlike, write_journal

_PIECE_BYTES = 500


class Cutter:
    """A proxy between client and hub that breaks each connection after a random number of bytes."""

    def __init__(self, hub: Hub, chance: random.Random) -> None:
        self._hub = hub
        self._chance = chance
        self.cuts = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # At first so early that not even the handshake succeeds; later connections live longer, so that the test ends.
        most_bytes = 300 << min(9, self.cuts)
        left = [self._chance.randrange(most_bytes), self._chance.randrange(most_bytes)]
        hub_reader, hub_writer = await asyncio.open_connection(self._hub.address.host, self._hub.address.port)

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, way: int) -> None:
            while data := await source.read(min(_PIECE_BYTES, left[way] + 1)):
                left[way] -= len(data)
                if left[way] < 0:
                    self.cuts += 1
                    return
                target.write(data)
                await target.drain()

        ways = [
            asyncio.ensure_future(pass_on(reader, hub_writer, 0)),
            asyncio.ensure_future(pass_on(hub_reader, writer, 1)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, hub_writer):
            end.transport.abort()


@contextlib.asynccontextmanager
async def cut_off(hub: Hub, seed: int) -> AsyncIterator[tuple[Cutter, Access]]:
    cutter = Cutter(hub, random.Random(seed))
    server = await asyncio.start_server(cutter, "127.0.0.1", 0)
    async with server:
        yield cutter, Access.load(Address("127.0.0.1", server.sockets[0].getsockname()[1]))


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.torture) for seed in (0, 1, 3, 4, 5))])
def test_copy_and_restore_over_breaking_connections_are_byte_identical(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    source = tmp_path / "orders"
    write_journal(source, 600, segment_size=20_000, seed=seed)

    async def work() -> None:
        async with running(tmp_path / "hub", limits=Limits(answer_bytes=4000)) as hub:
            async with cut_off(hub, seed) as (cutter, access):
                (sent,) = await send_path(access, source, client="web", request_bytes=1000)
                assert (sent.messages, sent.next_offset) == (600, 600)
                assert sent.bytes == sum(path.stat().st_size for path in (source / "jnl").glob("*.jnl"))
                assert sent.failures >= 5
                assert cutter.cuts >= 5
            assert unlike(source, tmp_path / "hub" / "web.orders") == []
            async with cut_off(hub, seed) as (cutter, access):
                (back,) = await restore_path(access, tmp_path / "new" / "orders", client="web")
                assert (back.messages, back.next_offset) == (600, 600)
                assert cutter.cuts >= 5
            assert unlike(source, tmp_path / "new" / "orders") == []
            assert hub._buffered_bytes == 0

    in_loop(work())
