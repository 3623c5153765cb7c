"""kill -9 of a server under load, repeatedly: acknowledged items are delivered, and confirmed items never again.

Clients put items and read them reliably, all at once. A client knows what was acknowledged: an item by STORED, a close
by its answer. A request in progress when the server died may have taken effect or not; everything else has.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.servers.queue import killed_server
from tests.support.counts import COUNTS
from tests.support.forks import fork_server
from tests.support.threads import DEADLINE_SECONDS

KILLS = 40
CLIENTS = 8
_ENDS = (b"STORED\r\n", b"END\r\n")


@dataclass
class Ledger:
    """The knowledge of the clients. Items are numbers."""

    next_item: int = 0
    acknowledged: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    deliveries: int = 0


class Worker:
    """A client that puts items, or one that reads and closes them."""

    def __init__(self, port: int, ledger: Ledger, puts: bool, queue: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ledger, self._puts, self._queue = ledger, puts, queue
        self._item: int | None = None
        self._received = b""

    def ask(self) -> None:
        """Send the next request."""
        if self._puts:
            self._item = self._ledger.next_item
            self._ledger.next_item += 1
            self.socket.sendall(b"set %b 0 0 100\r\n%0100d\r\n" % (self._queue, self._item))
        else:
            self.socket.sendall(b"get %b/close/open\r\n" % self._queue)

    def hear(self) -> bool:
        """Read the received bytes; whether they are a complete response."""
        data = self.socket.recv(4096)
        if not data:
            raise ConnectionResetError("the server is gone")
        self._received += data
        if not self._received.endswith(_ENDS):
            return False
        answer, self._received = self._received, b""
        ledger = self._ledger
        if self._puts:
            assert answer == b"STORED\r\n"
            assert self._item is not None
            ledger.acknowledged.add(self._item)
            return True
        if self._item is not None:
            ledger.confirmed.add(self._item)
        self._item = None
        if answer != b"END\r\n":
            self._item = int(answer.split(b"\r\n")[1])
            assert self._item not in ledger.confirmed, "it was confirmed, and came again"
            assert self._item < ledger.next_item
            ledger.delivered.add(self._item)
            ledger.deliveries += 1
        return True

    def close(self) -> None:
        self.socket.close()


def work_until(port: int, ledger: Ledger, answers: int, queue: bytes) -> list[Worker]:
    """Let clients work until they have `answers` responses; requests are in progress then."""
    workers = [Worker(port, ledger, number % 2 == 0, queue) for number in range(CLIENTS)]
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.socket, selectors.EVENT_READ, worker)
            worker.ask()
        while answers > 0:
            ready = selector.select(DEADLINE_SECONDS)
            assert ready, "the server does not answer"
            for key, _ in ready:
                if key.data.hear():
                    answers -= 1
                    key.data.ask()
    return workers


def drain(port: int, ledger: Ledger, queue: bytes) -> None:
    """Read all remaining items, and close them."""
    worker = Worker(port, ledger, False, queue)
    while True:
        worker.ask()
        while not worker.hear():
            pass
        if worker._item is None:
            break
    worker.close()


@contextlib.contextmanager
def server(context: ForkServerContext, directory: Path, sync: str) -> Iterator[int]:
    """A server that is killed at the end of the block; its port."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=killed_server.serve_for_ever, args=(str(directory), sync, sender))
    process.start()
    sender.close()
    try:
        assert receiver.poll(DEADLINE_SECONDS), "the server does not start"
        yield int(receiver.recv_bytes())
    finally:
        process.kill()
        process.join(DEADLINE_SECONDS)
    assert process.exitcode == -9
    receiver.close()
    process.close()


def kill_again_and_again(sync: str, directory: Path, kills: int) -> None:
    context = fork_server()
    chance = random.Random(sync)
    ledger = Ledger()
    queue = b"work"
    for _ in range(kills):
        with server(context, directory, sync) as port:
            workers = work_until(port, ledger, chance.choice((1, 5, 20, 100, 300)), queue)
        for worker in workers:
            with contextlib.suppress(ConnectionResetError):  # answers that were sent before it died count as well
                while True:
                    worker.hear()
            worker.close()
    with server(context, directory, sync) as port:
        drain(port, ledger, queue)
    assert ledger.acknowledged <= ledger.delivered
    assert ledger.confirmed <= ledger.delivered
    assert len(ledger.confirmed) > kills
    deliveries = ledger.deliveries
    with server(context, directory, sync) as port:
        drain(port, ledger, queue)
    assert ledger.deliveries == deliveries  # nothing is left
    COUNTS.add("kill -9", kills, "kestrel")


@pytest.mark.parametrize("sync", ["none", "always"])
def test_killed_server_loses_nothing_and_repeats_no_confirmed_item(sync: str, tmp_path: Path) -> None:
    kill_again_and_again(sync, tmp_path, KILLS // 2)


@pytest.mark.torture
@pytest.mark.parametrize("sync", ["none", "interval(5)", "always"])
def test_server_killed_hundreds_of_times_loses_nothing(sync: str, tmp_path: Path) -> None:
    kill_again_and_again(sync, tmp_path, 300)
