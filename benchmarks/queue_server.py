"""The queue server over loopback: items of 100 bytes, set then get, by one load generator with 50 connections.

The peers are memcached and Redis (a list, everysec and always), if they are installed, and a minimal memcache server on
uvloop that only keeps its items in a deque: the most that an event loop in Python can do. All of them are separate
processes that take turns; this process is the load generator. Durable requests are compared with S, a loop of write and
fdatasync. With one connection the client is pymemcache.

The 99th percentile is that of the time from a request to its answer, with 50 connections at once. So it is about the
time of 50 requests, because some of them wait for others.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measure import VALUE, Figure, Plan, Turns

CONNECTIONS = 50
SET = b"set q 0 0 %d\r\n%b\r\n" % (len(VALUE), VALUE)
GET = b"get q\r\n"
MEMCACHE = SET, GET
REDIS = (
    b"*3\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n$%d\r\n%b\r\n" % (len(VALUE), VALUE),
    b"*2\r\n$4\r\nLPOP\r\n$1\r\nq\r\n",
)
DEADLINE_SECONDS = 30.0

SKELETON = """
import asyncio, collections, sys
import uvloop

class Skeleton(asyncio.Protocol):
    items = collections.deque()
    left = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        data = self.left + data
        answers = []
        position = 0
        while (end := data.find(b"\\r\\n", position)) >= 0:
            words = data[position:end].split()
            if words[0] == b"set":
                size = int(words[4])
                stop = end + 2 + size
                if len(data) < stop + 2:
                    break
                self.items.append(data[end + 2 : stop])
                answers.append(b"STORED\\r\\n")
                position = stop + 2
            else:
                position = end + 2
                if self.items:
                    item = self.items.popleft()
                    answers.append(b"VALUE %b 0 %d\\r\\n%b\\r\\nEND\\r\\n" % (words[1], len(item), item))
                else:
                    answers.append(b"END\\r\\n")
        self.left = data[position:]
        self.transport.write(b"".join(answers))

async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Skeleton, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

uvloop.run(main())
"""


@dataclass(frozen=True)
class Server:
    """A process that is measured."""

    command: Callable[[int, Path], list[str]]
    requests: tuple[bytes, bytes] = MEMCACHE


def _ours(sync: str) -> Server:
    return Server(
        lambda port, place: [sys.executable, "-m", "logwright", "serve", "kestrel", str(place), "--sync", sync,
                             "--listen", f"127.0.0.1:{port}"]
    )  # fmt: skip


def _redis(sync: str) -> Server:
    return Server(
        lambda port, place: ["redis-server", "--port", str(port), "--dir", str(place), "--save", "", "--appendonly",
                             "yes", "--appendfsync", sync, "--bind", "127.0.0.1"],
        REDIS,
    )  # fmt: skip


def servers() -> dict[str, Server]:
    """Our server, and the installed peers."""
    found = {
        "ours": _ours("none"),
        "ours, always": _ours("always"),
        "uvloop skeleton": Server(lambda port, place: [sys.executable, "-c", SKELETON, str(port)]),
    }
    if shutil.which("memcached"):
        found["memcached"] = Server(
            lambda port, place: ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "nobody"]
        )
    if shutil.which("redis-server"):
        found["redis everysec"], found["redis always"] = _redis("everysec"), _redis("always")
    return found


@contextlib.contextmanager
def running(server: Server, place: Path) -> Iterator[int]:
    """Run a server during a block; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    place.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(server.command(port, place), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{server.command(port, place)[0]} does not start") from None
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)


@dataclass
class Load:
    """The measurements of a load generator."""

    per_second: float
    p99_ms: float


def generate(port: int, requests: tuple[bytes, bytes], seconds: float, connections: int = CONNECTIONS) -> Load:
    """Set and get in turns on this many connections, each with one request in progress."""
    clients = []
    poll = select.epoll()
    for _ in range(connections):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setblocking(False)
        clients.append(client)
    by_descriptor = {client.fileno(): client for client in clients}
    turn = dict.fromkeys(by_descriptor, 0)
    sent = dict.fromkeys(by_descriptor, 0.0)
    times: list[float] = []
    now = time.perf_counter
    for descriptor, client in by_descriptor.items():
        poll.register(descriptor, select.EPOLLIN)
        sent[descriptor] = now()
        client.send(requests[0])
    started = now()
    deadline = started + seconds
    while (moment := now()) < deadline:
        for descriptor, _ in poll.poll(1.0):
            client = by_descriptor[descriptor]
            client.recv(4096)
            moment = now()
            times.append(moment - sent[descriptor])
            other = turn[descriptor] = 1 - turn[descriptor]
            sent[descriptor] = moment
            client.send(requests[other])
    elapsed = now() - started
    poll.close()
    for client in clients:
        client.close()
    times.sort()
    return Load(len(times) / elapsed, times[int(len(times) * 0.99)] * 1000)


def one_client(port: int, seconds: float) -> float:
    """Set and get in turns by pymemcache; operations per second."""
    from pymemcache.client.base import Client

    client = Client(("127.0.0.1", port), no_delay=True)
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        client.set("q", VALUE, noreply=False)
        client.get("q")
        count += 2
    client.close()
    return count / elapsed


def bare(place: Path, seconds: float) -> float:
    """S: a loop of write and fdatasync; operations per second."""
    descriptor = os.open(place / "bare", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    data = bytes(21 + len(VALUE))
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        os.write(descriptor, data)
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    return count / elapsed


def run(plan: Plan) -> list[Figure]:
    """Measure everything in turns."""
    seconds = 0.4 if plan.quick else 2.0
    percentiles: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        measured = servers()
        ports = {
            name: stack.enter_context(running(server, plan.place / name.replace(", ", "-").replace(" ", "-")))
            for name, server in measured.items()
        }

        def load(name: str) -> float:
            found = generate(ports[name], measured[name].requests, seconds)
            percentiles.setdefault(name, []).append(found.p99_ms)
            return found.per_second

        things: dict[str, Callable[[], float]] = {name: partial(load, name) for name in ports}
        things["S"] = lambda: bare(plan.place, seconds / 2)
        singles = [name for name in ("ours", "memcached", "uvloop skeleton") if name in ports]
        things |= {f"{name}, one": partial(one_client, ports[name], seconds / 2) for name in singles}
        turns = Turns(plan.rounds).run(things)
    for name, found in percentiles.items():
        plan.log(f"{name}: {turns.median(name):,.0f} a second, 99 % of them within {statistics.median(found):.2f} ms")
    return list(_figures(turns))


def _figures(turns: Turns) -> Iterator[Figure]:
    wanted = [
        ("50 connections", "ours", "memcached", "memcached", 0.6),
        ("50 connections", "ours", "uvloop skeleton", "uvloop, items in a deque", 0.85),
        ("50 connections", "ours", "redis everysec", "Redis, everysec", None),
        ("50 connections, sync=always", "ours, always", "S", "S: write + fdatasync", 8.0),
        ("50 connections, sync=always", "ours, always", "redis always", "Redis, always", None),
        ("one connection, pymemcache", "ours, one", "memcached, one", "memcached", 0.6),
        ("one connection, pymemcache", "ours, one", "uvloop skeleton, one", "uvloop, items in a deque", None),
    ]
    for what, ours, peer, peer_name, goal in wanted:
        if ours in turns.results and peer in turns.results:
            yield Figure(
                "queue_server", f"set, get of 100 bytes, {what}", turns.median(ours), turns.median(peer), "/s",
                peer_name, goal, smaller_is_better=False, spread=turns.results[ours],
            )  # fmt: skip
