"""kill -9 of a hub under load, repeatedly: the copy has all acknowledged messages, and is byte-identical at the end.

The client continues without help: it asks the next hub for the end of the copy, and sends from there.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from logwright.sej import Reader
from logwright.servers.hub import Access
from logwright.servers.hub.client import HubClient
from logwright.servers.hub.scheduler import Scheduler
from logwright.servers.hub.sender import Sender
from tests.servers.hub import killed_hub
from tests.servers.hub.support import DEADLINE_SECONDS, in_loop, unlike, write_journal
from tests.support.counts import COUNTS
from tests.support.forks import fork_server

KILLS = 40
_LOCAL = "127.0.0.1:0"


class HubProcess:
    """A hub in a separate process. Each has the address of the previous one."""

    def __init__(self, context: ForkServerContext, directory: Path) -> None:
        self._context = context
        self._directory = directory
        self.address = _LOCAL

    def start(self) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        arguments = (str(self._directory), self.address, sender)
        self._process = self._context.Process(target=killed_hub.serve_for_ever, args=arguments)
        self._process.start()
        sender.close()
        assert receiver.poll(DEADLINE_SECONDS), "the hub does not start"
        self.address = receiver.recv()
        receiver.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.join(DEADLINE_SECONDS)
        assert self._process.exitcode == -9
        self._process.close()


async def send_while_killing(hub: HubProcess, source: Path, copy: Path, kills: int, chance: random.Random) -> int:
    """Send a journal, and kill the hub every few answers; the number of retries of the client."""
    answered = asyncio.Event()
    async with HubClient(Access.load(hub.address), "web") as client:
        scheduler = Scheduler(in_flight=8)
        sender = Sender(
            client, source, "orders", scheduler, request_bytes=1500, progress=lambda done, total: answered.set()
        )
        sending = asyncio.ensure_future(sender.run())
        for _ in range(kills):
            for _ in range(chance.choice((1, 1, 2, 5, 12))):
                answered.clear()
                await answered.wait()
                assert not sending.done(), "the journal is too short for this number of kills"
            await asyncio.to_thread(hub.kill)
            assert Reader(copy).next >= sender.sent.next_offset, "what was acknowledged is there"
            COUNTS.add("kill -9", 1, "hub")
            await asyncio.to_thread(hub.start)
        sent = await sending
        scheduler.close()
    assert sent.next_offset == Reader(source).next
    return sent.failures


def kill_again_and_again(tmp_path: Path, kills: int, seed: int) -> None:
    source, root = tmp_path / "orders", tmp_path / "hub"
    write_journal(source, 500 * kills, segment_size=150_000 * kills // 20, seed=seed)
    hub = HubProcess(fork_server(), root)
    hub.start()
    try:
        failures = in_loop(send_while_killing(hub, source, root / "web.orders", kills, random.Random(seed)), 600)
    finally:
        hub.kill()
    assert failures >= kills
    assert unlike(source, root / "web.orders") == []
    shutil.rmtree(tmp_path)


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="logwright")


def test_copy_is_byte_identical_after_hub_kills_under_load(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, KILLS, seed=3)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10))
def test_copy_is_byte_identical_after_many_hub_kills(seed: int, tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, KILLS, seed)
