"""Copying a journal to a hub over loopback, and back. Values have 100 bytes; hub and client are separate processes.

The goal is 150 MB/s. The same rounds also measure two limits: writing the same bytes to a file and syncing it, which
any copy on this disk must do, and sending the same bytes through a bare gRPC stream that discards them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import KEY, MESSAGE_BYTES, VALUE, Figure, Plan, Turns
from logwright.sej.files.writer import Writer

GOAL_MB = 150.0
PIECE_BYTES = 1 << 20

HUB = """
import asyncio, sys
from logwright.servers.hub import Hub, parse_address

async def main():
    async with Hub(sys.argv[1], parse_address("127.0.0.1:0")) as hub:
        print(hub.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
BARE = """
import asyncio, sys, grpc, grpc.aio

async def put(_, context):
    while await context.read() is not grpc.aio.EOF:
        await context.write(b"")

async def main():
    server = grpc.aio.server()
    handlers = {"Put": grpc.stream_stream_rpc_method_handler(put)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("hub.Hub", handlers),))
    print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)

asyncio.run(main())
"""


@contextmanager
def serving(code: str, *arguments: object) -> Iterator[str]:
    """Run a server in its own process during a block; its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def rate(size: int, started: float) -> float:
    return size / (time.perf_counter() - started) / 1e6


def copied(source: Path, place: Path, size: int) -> float:
    """MB/s of a copy to a new hub."""
    from logwright.servers import hub

    with serving(HUB, place) as address:
        started = time.perf_counter()
        (sent,) = hub.copy(source, address, client="bench")
        found = rate(size, started)
    assert sent.bytes == size
    return found


def restored(place: Path, target: Path, size: int) -> float:
    """MB/s of a restore from the hub."""
    from logwright.servers import hub

    with serving(HUB, place) as address:
        started = time.perf_counter()
        (done,) = hub.restore(target, address, client="bench", name="source")
        found = rate(size, started)
    assert done.bytes == size
    shutil.rmtree(target)
    return found


def written(source: Path, target: Path) -> float:
    """MB/s of the same bytes read from their files, written to another file and synced."""
    started = time.perf_counter()
    size = 0
    with open(target, "wb", buffering=0) as out:
        for path in sorted((source / "jnl").iterdir()):
            with open(path, "rb", buffering=0) as data:
                while piece := data.read(PIECE_BYTES):
                    size += out.write(piece)
        os.fdatasync(out.fileno())
    found = rate(size, started)
    target.unlink()
    return found


def streamed(size: int) -> float:
    """MB/s of the same number of bytes through a gRPC stream, in requests of the same size, each of them answered."""
    import grpc.aio

    async def send(address: str) -> float:
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.stream_stream("/hub.Hub/Put")()
            pieces = size // PIECE_BYTES
            data = bytes(PIECE_BYTES)
            started = time.perf_counter()

            async def write() -> None:
                for _ in range(pieces):
                    await call.write(data)
                await call.done_writing()

            writing = asyncio.ensure_future(write())
            for _ in range(pieces):
                await call.read()
            await writing
            return rate(pieces * PIECE_BYTES, started)

    with serving(BARE) as address:
        return asyncio.run(send(address))


def write_source(source: Path, count: int) -> int:
    """The journal to copy, and its size."""
    with Writer(source) as writer:
        for _ in range(count):
            writer.append(VALUE, KEY)
    return count * MESSAGE_BYTES


def there_and_back(place: Path, size: int) -> dict[str, float]:
    """MB/s of a copy to a new hub, and of a restore."""
    copies = place / "copies"
    there = copied(place / "source", copies, size)
    back = restored(copies, place / "back", size)
    shutil.rmtree(copies)
    return {"copy": there, "restore": back}


def run(plan: Plan) -> list[Figure]:
    count = plan.amount((1 << 30) // MESSAGE_BYTES, (1 << 26) // MESSAGE_BYTES)
    source = plan.place / "source"
    size = write_source(source, count)
    things = {"file": lambda: written(source, plan.place / "file"), "stream": lambda: streamed(size)}
    turns = Turns(min(3, plan.rounds)).run(things, lambda: there_and_back(plan.place, size))
    shutil.rmtree(source)
    what = f"copy of {size >> 20} MiB over loopback"
    median = turns.median

    def figure(name: str, what: str, peer: float, peer_name: str, goal: float | None = None) -> Figure:
        return Figure("hub", what, median(name), peer, "MB/s", peer_name, goal, False, turns.results[name])

    return [
        figure("copy", what, GOAL_MB, "150 MB/s", 1.0),
        figure("copy", what, median("file"), "to a file, synced"),
        figure("copy", what, median("stream"), "bare gRPC"),
        figure("restore", "restore from the hub", median("file"), "to a file, synced"),
    ]
