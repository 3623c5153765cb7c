"""Half-closed clients, a stopping server and chains of clients: every request is answered."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from logwright.core.io.durability import ALWAYS, NONE, Sync
from logwright.servers.queue.limits import ServerLimits
from tests.servers.queue.support import VERSION, Client, serving

ROUNDS = 20
CHAIN = 300


def last_words(client: Client, request: bytes) -> bytes:
    """The answers to a client that sends nothing more."""
    client.say(request)
    client.socket.shutdown(socket.SHUT_WR)
    return client.hear_all()


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
def test_half_closed_client_gets_all_its_responses(sync: Sync, tmp_path: Path) -> None:
    with serving(tmp_path, sync=sync) as served:
        for _ in range(ROUNDS):
            with Client(served) as client:
                assert client.ask(b"set q 0 0 1\r\n1\r\n") == b"STORED\r\n"
                assert last_words(client, b"get q\r\n") == b"VALUE q 0 1\r\n1\r\nEND\r\n"


def test_quit_waits_for_the_preceding_response(tmp_path: Path) -> None:
    with serving(tmp_path, sync=ALWAYS) as served:
        for _ in range(ROUNDS):
            with Client(served) as client:
                client.say(b"set q 0 0 1\r\n1\r\n")
                served.call(lambda: None)  # so that the sync is usually in progress
                client.say(b"quit\r\n")
                assert client.hear_all() == b"STORED\r\n"


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
@pytest.mark.parametrize("name", [b"there", b"absent"])
def test_half_closed_clients_are_not_waited_for(name: bytes, sync: Sync, tmp_path: Path) -> None:
    with serving(tmp_path, sync=sync) as served:
        with Client(served) as client:
            assert client.ask(b"set there 0 0 1\r\n1\r\nflush there\r\n") == b"STORED\r\nEND\r\n"
            request = b"set there 0 0 1\r\n2\r\nget there\r\nget %b/t=60000\r\nmonitor %b 60\r\nversion\r\n" % (
                name,
                name,
            )
            assert last_words(client, request) == b"STORED\r\nVALUE there 0 1\r\n2\r\nEND\r\nEND\r\nEND\r\n" + VERSION
        with Client(served) as client:
            client.say(b"get there/t=60000\r\nversion\r\n")
            served.until(lambda: served.service.queues.by_key[b"there"].waiters)
            assert last_words(client, b"version\r\n") == b"END\r\n" + VERSION + VERSION


def test_stop_answers_all_requests_and_waits_for_no_items(tmp_path: Path) -> None:
    with serving(tmp_path, limits=ServerLimits(stop_seconds=3600)) as served:
        client = Client(served)
        client.say(b"get q/t=60000\r\nget q/t=60000\r\nmonitor q 60\r\nversion\r\n")
        served.until(lambda: b"q" in served.service.queues.by_key and served.service.queues.by_key[b"q"].waiters)
    with client:
        assert client.hear_all() == b"END\r\n" * 3 + VERSION


def test_stop_answers_any_number_of_clients_waiting_for_new_queues(tmp_path: Path) -> None:
    count = 3000
    with serving(tmp_path, limits=ServerLimits(stop_seconds=3600, max_queues=count)) as served:
        client = Client(served)
        client.say(b"".join(b"set q%d 0 0 1\r\n1\r\n" % number for number in range(count)))
        served.until(lambda: served.service.queues.by_key)
    with client:
        answers = client.hear_all().splitlines()
    assert len(answers) == count
    assert answers == sorted(answers, reverse=True)  # STORED, and then SERVER_ERROR
    assert answers.count(b"STORED") == sum(path.is_file() for path in tmp_path.iterdir())


def test_chain_of_clients_waits_for_each_others_items(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        clients = [Client(served) for _ in range(CHAIN)]
        for number, client in enumerate(clients):
            client.say(b"get q/t=60000\r\nset q 0 0 3\r\n%03d\r\n" % number)
            served.until(lambda number=number: len(served.service.connections) > number)  # type: ignore[misc]
            served.until(
                lambda number=number: (
                    b"q" in served.service.queues.by_key
                    and len(served.service.queues.by_key[b"q"].waiters) == number + 1  # type: ignore[misc]
                )
            )
        with Client(served) as first:
            assert first.ask(b"set q 0 0 3\r\nxyz\r\n") == b"STORED\r\n"
        before = b"xyz"
        for number, client in enumerate(clients):
            expected = b"VALUE q/t=60000 0 3\r\n%b\r\nEND\r\nSTORED\r\n" % before
            assert client.hear(len(expected)) == expected
            before = b"%03d" % number
            client.close()
        assert served.items("q") == [before]


def test_one_get_opens_no_more_items_than_several_gets(tmp_path: Path) -> None:
    with serving(tmp_path) as served, Client(served) as client:
        client.ask(b"set q 0 0 1\r\n1\r\nset q 0 0 1\r\n2\r\nset q 0 0 1\r\n3\r\n")
        assert client.ask(b"get q/open q/open\r\n") == b"ERROR\r\n"
        assert client.ask(b"get q/open q\r\n") == b"ERROR\r\n"
        assert served.state() == {"q": ([b"1", b"2", b"3"], 0)}
        answer = b"VALUE q/open 0 1\r\n1\r\nVALUE q/close/open 0 1\r\n2\r\nVALUE q/peek 0 1\r\n3\r\nEND\r\n"
        assert client.ask(b"get q/open q/close/open q/peek\r\n") == answer
        assert served.state() == {"q": ([b"3"], 1)}


def test_one_get_returns_no_more_than_the_output_buffer_holds(tmp_path: Path) -> None:
    with serving(tmp_path, limits=ServerLimits(output_buffer_bytes=2500)) as served, Client(served) as client:
        client.ask(b"set q 0 0 1000\r\n%b\r\n" % bytes(1000) * 5 + b"get q/open\r\n")
        item = b"VALUE q/peek 0 1000\r\n%b\r\n" % bytes(1000)
        assert client.ask(b"get q/peek q/peek q/peek q/peek/t=60000 q/close\r\n") == item * 3 + b"END\r\n"
        assert served.state() == {"q": ([bytes(1000)] * 4, 0)}
