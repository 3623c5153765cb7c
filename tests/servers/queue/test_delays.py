"""Delayed items, retries with a delay, and ids, as clients of the server use them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from logwright.core.io.durability import ALWAYS, NONE, Sync
from logwright.kestrel.model.limits import Limits
from logwright.servers.queue.limits import ServerLimits
from tests.servers.queue.support import Client, serving
from tests.servers.queue.test_full_disk import FickleDisk
from tests.servers.queue.test_sweeper import Clock

OFTEN = ServerLimits(sweep_seconds=0.002, retry_seconds=0.01)
SELDOM = ServerLimits(sweep_seconds=3600)
LATE = b"set work/delay=30 0 0 4\r\nlate\r\n"


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
def test_delayed_item_is_delivered_when_it_is_due(sync: Sync, tmp_path: Path) -> None:
    clock = Clock()
    with serving(tmp_path, clock=clock, limits=OFTEN, sync=sync) as served, Client(served) as client:
        assert client.ask(LATE) == b"STORED\r\n"
        assert client.ask(b"get work\r\n") == b"END\r\n"
        assert b"STAT queue_work_delayed 1\r\n" in client.ask(b"stats\r\n")
    with serving(tmp_path, clock=clock, limits=OFTEN, sync=sync) as served, Client(served) as client:
        clock.now += 29.9
        assert client.ask(b"get work\r\n") == b"END\r\n"
        clock.now += 0.1
        served.until(lambda: served.service.queues.by_key[b"work"].engine.shelf.items == 1)
        assert client.ask(b"get work\r\n") == b"VALUE work 0 4\r\nlate\r\nEND\r\n"


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
@pytest.mark.parametrize("how", ["set", "abort", "restart"])
def test_waiting_client_gets_an_item_when_it_is_due(how: str, sync: Sync, tmp_path: Path) -> None:
    if how == "restart":
        with serving(tmp_path, limits=SELDOM, sync=sync) as served, Client(served) as client:
            assert client.ask(b"set work/delay=0.02 0 0 4\r\nlate\r\n") == b"STORED\r\n"
    with serving(tmp_path, limits=SELDOM, sync=sync) as served, Client(served) as waiting, Client(served) as client:
        if how == "abort":
            client.ask(b"set work 0 0 4\r\nlate\r\nget work/open\r\n")
        waiting.say(b"get work/t=60000\r\n")
        if how != "restart":
            served.until(lambda: b"work" in served.service.queues.by_key)
            served.until(lambda: len(served.service.queues.by_key[b"work"].waiters) == 1)
        if how == "set":
            assert client.ask(b"set work/delay=0.02 0 0 4\r\nlate\r\n") == b"STORED\r\n"
        elif how == "abort":
            assert client.ask(b"get work/abort/delay=0.02\r\n") == b"END\r\n"
        assert waiting.ask(b"") == b"VALUE work/t=60000 0 4\r\nlate\r\nEND\r\n"


def test_failed_item_does_not_block_the_others(tmp_path: Path) -> None:
    clock = Clock()
    options = {"clock": clock, "limits": SELDOM, "queues": Limits(retry_delay=10, max_attempts=3)}
    with serving(tmp_path, **options) as served, Client(served) as client:
        client.ask(b"set work 0 0 6\r\npoison\r\nset work 0 0 4\r\ngood\r\n")
        assert client.ask(b"get work/open\r\n") == b"VALUE work/open 0 6\r\npoison\r\nEND\r\n"
        with Client(served) as other:
            assert other.ask(b"get work/open\r\n") == b"VALUE work/open 0 4\r\ngood\r\nEND\r\n"
        # a client that disconnects fails as well
        served.until(lambda: served.service.queues.by_key[b"work"].canceled == 1)
        assert client.ask(b"get work/abort\r\n") == b"END\r\n"
        assert client.ask(b"get work\r\n") == b"END\r\n"
        clock.now += 10
        assert client.ask(b"get work/open\r\n") == b"VALUE work/open 0 6\r\npoison\r\nEND\r\n"
        assert client.ask(b"get work/abort/delay=0\r\n") == b"END\r\n"
        assert client.ask(b"get work/open\r\n") == b"VALUE work/open 0 6\r\npoison\r\nEND\r\n"
        assert client.ask(b"get work/abort\r\n") == b"END\r\n", "it has failed three times, and is parked"
        served.until(lambda: b"work_parked" in served.service.queues.by_key)
        served.until(lambda: served.service.queues.by_key[b"work_parked"].engine.shelf.items == 1)
        assert client.ask(b"get work_parked\r\n") == b"VALUE work_parked 0 6\r\npoison\r\nEND\r\n"


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
def test_repeated_set_with_an_id_adds_nothing(sync: Sync, tmp_path: Path) -> None:
    for _ in range(2):
        with serving(tmp_path, sync=sync) as served, Client(served) as client:
            client.ask(b"get work+copy/peek\r\n")
            assert client.ask(b"set work/id=7 0 0 1\r\n7\r\n" * 2) == b"STORED\r\n" * 2
            assert (
                client.ask(b"set work/id=8/delay=0 0 0 1 noreply\r\n8\r\nset work/id=8 0 0 1\r\n8\r\n") == b"STORED\r\n"
            )
    with serving(tmp_path, sync=sync) as served:
        assert served.state() == {"work": ([b"7", b"8"], 0), "work+copy": ([b"7", b"8"], 0)}


def test_repeated_set_is_answered_after_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    with serving(tmp_path, sync=ALWAYS) as served, Client(served) as client:
        assert client.ask(b"set work/id=7 0 0 1\r\n7\r\n") == b"STORED\r\n"
        engine = served.service.queues.by_key[b"work"].engine
        sync = engine.sync

        def noted_sync() -> None:
            synced.append(engine.shelf.items)
            sync()

        monkeypatch.setattr(engine, "sync", noted_sync)
        assert client.ask(b"set work/id=7 0 0 1\r\n7\r\n") == b"STORED\r\n"
        assert synced == [1], "the first one may not have been durable yet"


def test_flush_and_delete_include_delayed_items(tmp_path: Path) -> None:
    clock = Clock()
    with serving(tmp_path, clock=clock, limits=SELDOM) as served, Client(served) as client:
        assert client.ask(LATE + b"flush work\r\n") == b"STORED\r\nEND\r\n"
        assert client.ask(LATE + b"delete work\r\n") == b"STORED\r\nDELETED\r\n"
        clock.now += 30
        assert client.ask(b"get work/t=1\r\n") == b"END\r\n"


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"set work/delay= 0 0 1\r\n1\r\n", b"CLIENT_ERROR invalid options\r\n"),
        (b"set work/delay=1e3 0 0 1\r\n1\r\n", b"CLIENT_ERROR invalid options\r\n"),
        (b"set work/delay=1 0 5 1\r\n1\r\n", b"CLIENT_ERROR invalid options\r\n"),
        (b"set work/id= 0 0 1\r\n1\r\n", b"CLIENT_ERROR invalid options\r\n"),
        (b"set work/open 0 0 1\r\n1\r\n", b"CLIENT_ERROR invalid options\r\n"),
        (b"set a.b/delay=1 0 0 1\r\n1\r\n", b"CLIENT_ERROR invalid queue name\r\n"),
        (b"set work~delayed 0 0 1\r\n1\r\n", b"CLIENT_ERROR invalid queue name\r\n"),
        (b"get work/delay=1\r\n", b"CLIENT_ERROR invalid options\r\n"),
        (b"get work/abort/delay=x\r\n", b"CLIENT_ERROR invalid options\r\n"),
        (b"status readonly\r\n" + LATE, b"END\r\nSERVER_ERROR the server is read-only\r\n"),
    ],
)
def test_invalid_options_are_refused(request_: bytes, answer: bytes, tmp_path: Path) -> None:
    with serving(tmp_path) as served, Client(served) as client:
        assert client.ask(request_) == answer
        assert served.state() == {}


def test_delayed_items_are_accepted_again_after_a_full_disk(tmp_path: Path) -> None:
    disk = FickleDisk()
    with serving(tmp_path, limits=OFTEN, disk=disk) as served, Client(served) as client:
        assert client.ask(LATE) == b"STORED\r\n"
        disk.failing, disk.failing_file = {"write": errno.ENOSPC}, "work~delayed"
        assert client.ask(LATE) == b"SERVER_ERROR out of disk space\r\n"
        disk.failing = {}
        served.until(lambda: not served.service.suspended)
        assert client.ask(LATE) == b"STORED\r\n"
        assert b"STAT queue_work_delayed 2\r\n" in client.ask(b"stats\r\n")
