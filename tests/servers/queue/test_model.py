"""Any sequence of requests of a few clients gets the responses of a small model."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

import pytest

from logwright.servers.queue.limits import ServerLimits
from tests.servers.queue.support import Client, Serving, serving

CLIENTS = 3
STEPS = 600
NAMES = ("a", "b", "b+x", "b+y")
OPTIONS = ("", "", "/open", "/close", "/close/open", "/abort", "/peek", "/open/close", "/t=1/peek")
MOST_OPEN = 2


class Model:
    """Queues as lists, and the open reads of each client."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[bytes]] = {}
        self.open: list[dict[str, deque[bytes]]] = [{} for _ in range(CLIENTS)]

    def set(self, name: str, item: bytes) -> bytes:
        self.queues.setdefault(name, deque())
        for other, items in self.queues.items():
            if other == name or other.startswith(name + "+"):
                items.append(item)
        return b"STORED\r\n"

    def get(self, client: int, key: str) -> bytes:
        name, *options = key.split("/")
        reads = self.open[client].setdefault(name, deque())
        closes, opens, peeks = "close" in options, "open" in options, "peek" in options
        if "abort" in options:
            if reads:
                self.queues[name].appendleft(reads.popleft())
            return b"END\r\n"
        left = max(0, len(reads) - closes)
        if (opens and left >= MOST_OPEN) or (not opens and not closes and not peeks and left):
            return b"ERROR\r\n"
        if closes and reads:
            reads.popleft()
        if closes and not opens:
            return b"END\r\n"
        if "+" in name:
            self.queues.setdefault(name, deque())
        items = self.queues.get(name)
        if not items:
            return b"END\r\n"
        item = items[0] if peeks else items.popleft()
        if opens:
            reads.append(item)
        return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (key.encode(), len(item), item)

    def confirm(self, client: int, name: str, count: int) -> bytes:
        reads = self.open[client].get(name, deque())
        if len(reads) < count:
            return b"ERROR\r\n"
        for _ in range(count):
            reads.popleft()
        return b"END\r\n"

    def flush(self, name: str) -> bytes:
        self.queues.get(name, deque()).clear()
        return b"END\r\n"

    def leave(self, client: int) -> None:
        for name, reads in self.open[client].items():
            if reads:
                self.queues[name].extendleft(reversed(reads))
        self.open[client] = {}


def step(chance: random.Random, model: Model, client: int, number: int) -> tuple[bytes, bytes]:
    """A request, and its answer."""
    name = chance.choice(NAMES)
    kind = chance.random()
    if kind < 0.4:
        item = b"%d" % number * chance.randint(0, 3)
        expiry = chance.choice([0, 0, 1000])
        return b"set %b 0 %d %d\r\n%b\r\n" % (name.encode(), expiry, len(item), item), model.set(name, item)
    if kind < 0.9:
        options = chance.choice(
            ["", "", "/open", "/close", "/close/open", "/abort", "/peek", "/open/close", "/t=1/peek"]
        )
        if "t=" in options and not model.queues.get(name):
            options = "/peek"  # a wait creates its queue: another test
        key = name + options
        return b"get %b\r\n" % key.encode(), model.get(client, key)
    if kind < 0.96:
        count = chance.randint(0, 2)
        return b"confirm %b %d\r\n" % (name.encode(), count), model.confirm(client, name, count)
    return b"flush %b\r\n" % name.encode(), model.flush(name)


def agree(served: Serving, model: Model) -> None:
    assert {name: items for name, (items, _) in served.state().items()} == {
        name: list(items) for name, items in model.queues.items()
    }


@pytest.mark.parametrize("seed", range(4))
def test_every_response_matches_the_model(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    model = Model()
    limits = ServerLimits(max_open_reads=MOST_OPEN)
    with serving(tmp_path, limits=limits) as served:
        clients = [Client(served) for _ in range(CLIENTS)]
        for number in range(STEPS):
            which = chance.randrange(CLIENTS)
            if chance.random() < 0.02:
                clients[which].close()
                served.until(lambda: len(served.service.connections) == CLIENTS - 1)
                model.leave(which)
                clients[which] = Client(served)
            batch = [step(chance, model, which, number) for _ in range(chance.choice([1, 1, 1, 5]))]
            assert clients[which].ask(b"".join(request for request, _ in batch)) == b"".join(
                answer for _, answer in batch
            ), batch
        agree(served, model)
        for which, client in enumerate(clients):
            client.close()
            model.leave(which)
            served.until(lambda which=which: len(served.service.connections) == CLIENTS - 1 - which)  # type: ignore[misc]
        agree(served, model)
    with serving(tmp_path) as served:
        agree(served, model)
