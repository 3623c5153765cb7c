"""Waiting, reliable reads, fan-out and expiry, with several clients at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logwright.core.io.durability import parse_sync
from logwright.servers.queue.limits import ServerLimits
from tests.servers.queue.support import Client, Serving, serving


@pytest.fixture
def other(served: Serving) -> Iterator[Client]:
    with Client(served) as found:
        yield found


def put(client: Client, *items: bytes, queue: bytes = b"q", expiry: int = 0) -> None:
    for item in items:
        assert client.ask(b"set %b 0 %d %d\r\n%b\r\n" % (queue, expiry, len(item), item)) == b"STORED\r\n"


def value(item: bytes, key: bytes = b"q") -> bytes:
    return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (key, len(item), item)


def waiters(served: Serving, queue: bytes = b"q") -> int:
    found = served.service.queues.by_key.get(queue)
    return 0 if found is None else len(found.waiters)


# --- waiting --------------------------------------------------------------------------------------------------------


def test_waiting_client_gets_the_item_when_it_arrives(served: Serving, client: Client, other: Client) -> None:
    client.say(b"get q/t=60000\r\nversion\r\n")
    served.until(lambda: waiters(served) == 1)
    put(other, b"1")
    assert client.hear(len(value(b"1", b"q/t=60000"))) == value(b"1", b"q/t=60000")
    assert client.line().startswith(b"VERSION")
    assert served.items("q") == []


def test_longest_waiting_client_is_served_first(served: Serving, client: Client) -> None:
    waiting = [Client(served) for _ in range(5)]
    for number, one in enumerate(waiting, start=1):
        one.say(b"get q/t=60000\r\n")
        served.until(lambda number=number: waiters(served) == number)  # type: ignore[misc]
    put(client, b"0", b"1", b"2", b"3", b"4")
    assert client.ask(b"get q\r\n") == b"END\r\n"
    for number, one in enumerate(waiting):
        assert one.line() == b"VALUE q/t=60000 0 1\r\n"
        assert one.line() == b"%d\r\n" % number
        one.close()


def test_expired_wait_is_answered_with_no_item(served: Serving, client: Client) -> None:
    assert client.ask(b"get q/t=1\r\nget q/t=1/open\r\nget q/t=1/peek\r\n") == b"END\r\n" * 3
    assert served.call(lambda: waiters(served)) == 0


def test_waiting_client_that_disconnects_takes_no_item(served: Serving, client: Client, other: Client) -> None:
    client.say(b"get q/t=60000\r\n")
    served.until(lambda: waiters(served) == 1)
    client.close()
    served.until(lambda: waiters(served) == 0)
    put(other, b"1")
    assert served.items("q") == [b"1"]


def test_half_closed_connection_stops_waiting(served: Serving, client: Client) -> None:
    client.say(b"get q/t=60000\r\n")
    served.until(lambda: waiters(served) == 1)
    client.socket.shutdown(1)
    assert client.hear_all() == b"END\r\n"
    served.until(lambda: waiters(served) == 0)


def test_peeking_can_wait_and_leaves_the_item(served: Serving, client: Client, other: Client) -> None:
    client.say(b"get q/t=60000/peek\r\n")
    served.until(lambda: waiters(served) == 1)
    with Client(served) as third:
        third.say(b"get q/t=60000/open\r\n")
        served.until(lambda: waiters(served) == 2)
        put(other, b"1")
        assert client.line() == b"VALUE q/t=60000/peek 0 1\r\n"
        assert third.line() == b"VALUE q/t=60000/open 0 1\r\n"
        assert served.state() == {"q": ([], 1)}


def test_several_keys_wait_in_order(served: Serving, client: Client, other: Client) -> None:
    put(other, b"2", queue=b"b")
    client.say(b"get a/t=60000 b/t=60000 c/t=60000\r\n")
    served.until(lambda: waiters(served, b"a") == 1)
    put(other, b"1", queue=b"a")
    served.until(lambda: waiters(served, b"c") == 1)
    put(other, b"3", queue=b"c")
    answer = b"".join(b"VALUE %b/t=60000 0 1\r\n%b\r\n" % pair for pair in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    assert client.hear(len(answer) + 5) == answer + b"END\r\n"


def test_aborted_item_goes_to_a_waiting_client(served: Serving, client: Client, other: Client) -> None:
    put(other, b"1")
    assert other.ask(b"get q/open\r\n") == value(b"1", b"q/open")
    client.say(b"get q/t=60000\r\n")
    served.until(lambda: waiters(served) == 1)
    other.close()
    assert client.hear(len(value(b"1", b"q/t=60000"))) == value(b"1", b"q/t=60000")


def test_client_waiting_for_a_deleted_queue_gets_no_item(served: Serving, client: Client, other: Client) -> None:
    client.say(b"get q/t=60000\r\n")
    served.until(lambda: waiters(served) == 1)
    assert other.ask(b"delete q\r\n") == b"DELETED\r\n"
    assert client.line() == b"END\r\n"


# --- reliable reads ---------------------------------------------------------------------------------------------------


def test_open_items_of_a_closed_client_return_to_the_head_in_order(tmp_path: Path) -> None:
    limits = ServerLimits(max_open_reads=3)
    with serving(tmp_path, limits=limits) as served, Client(served) as client:
        put(client, b"1", b"2", b"3", b"4", b"5")
        with Client(served) as gone:
            for number in b"123":
                assert gone.ask(b"get q/open\r\n") == value(bytes([number]), b"q/open")
            assert gone.ask(b"get q/open\r\n") == b"ERROR\r\n"
            assert gone.ask(b"get q/close\r\n") == b"END\r\n"
            assert served.state() == {"q": ([b"4", b"5"], 2)}
        served.until(lambda: len(served.service.connections) == 1)
        assert served.state() == {"q": ([b"2", b"3", b"4", b"5"], 0)}


def test_open_reads_belong_to_one_client(served: Serving, client: Client, other: Client) -> None:
    put(client, b"1", b"2")
    assert client.ask(b"get q/open\r\n") == value(b"1", b"q/open")
    assert other.ask(b"get q/close\r\nget q/abort\r\nconfirm q 1\r\n") == b"END\r\nEND\r\nERROR\r\n"
    assert other.ask(b"get q\r\n") == value(b"2")
    assert served.state() == {"q": ([], 1)}
    assert client.ask(b"get q/close\r\n") == b"END\r\n"
    assert served.state() == {"q": ([], 0)}


def test_deleting_a_queue_ends_its_open_reads(served: Serving, client: Client, other: Client) -> None:
    put(client, b"1")
    client.ask(b"get q/open\r\n")
    assert other.ask(b"delete q\r\n") == b"DELETED\r\n"
    put(other, b"2")
    assert client.ask(b"get q/close/open\r\n") == value(b"2", b"q/close/open")


def test_monitor_gets_arriving_items_and_shares_them(served: Serving, client: Client, other: Client) -> None:
    put(other, b"0")
    client.say(b"monitor q 60 3\r\n")
    assert client.hear(len(value(b"0"))) == value(b"0")
    with Client(served) as third:
        third.say(b"monitor q 60 1\r\n")
        served.until(lambda: waiters(served) == 2)
        put(other, b"1", b"2", b"3")
        heard = client.hear(len(value(b"1")) * 2 + 5) + third.hear(len(value(b"2")) + 5)
        assert sorted(heard.replace(b"END\r\n", b"").split(b"VALUE q 0 1\r\n")) == [b"", b"1\r\n", b"2\r\n", b"3\r\n"]
        assert third.ask(b"confirm q 1\r\n") == b"END\r\n"
    assert client.ask(b"confirm q 3\r\n") == b"END\r\n"
    assert served.state() == {"q": ([], 0)}


def test_monitor_without_a_timeout_gets_existing_items(served: Serving, client: Client) -> None:
    client.ask(b"set q 0 0 1\r\n1\r\nset q 0 0 1\r\n2\r\nset q 0 0 1\r\n3\r\n")
    assert client.ask(b"monitor q 0 2\r\n") == value(b"1") + value(b"2") + b"END\r\n"
    assert client.ask(b"monitor q 0\r\nmonitor q 0\r\n") == value(b"3") + b"END\r\nEND\r\n"
    assert client.ask(b"confirm q 3\r\n") == b"END\r\n"
    assert served.state() == {"q": ([], 0)}


def test_monitor_ends_after_its_timeout_and_its_items_return(tmp_path: Path) -> None:
    with serving(tmp_path, limits=ServerLimits(max_wait_seconds=0.01)) as served:
        with Client(served) as client:
            put(client, b"1")
            assert client.ask(b"monitor q 60\r\n") == value(b"1") + b"END\r\n"
        served.until(lambda: not served.service.connections)
        assert served.state() == {"q": ([b"1"], 0)}


# --- fan-out ----------------------------------------------------------------------------------------------------------


def test_items_put_to_the_parent_reach_children_and_their_waiting_clients(served: Serving, client: Client) -> None:
    with Client(served) as reader:
        reader.say(b"get q+a/t=60000\r\n")
        served.until(lambda: waiters(served, b"q+a") == 1)
        assert client.ask(b"get q+b\r\n") == b"END\r\n"
        put(client, b"1", b"2")
        assert reader.line() == b"VALUE q+a/t=60000 0 1\r\n"
    assert served.state() == {"q": ([b"1", b"2"], 0), "q+a": ([b"2"], 0), "q+b": ([b"1", b"2"], 0)}
    put(client, b"only b", queue=b"q+b")
    assert client.ask(b"delete q+a\r\nset q 0 0 1\r\n3\r\n") == b"DELETED\r\nSTORED\r\n"
    assert served.state() == {"q": ([b"1", b"2", b"3"], 0), "q+b": ([b"1", b"2", b"only b", b"3"], 0)}


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_items_expire_as_in_memcached(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    with serving(tmp_path, clock=lambda: now[0]) as served, Client(served) as client:
        month = 30 * 24 * 3600
        for item, expiry in [
            (b"never", 0),
            (b"a minute", 60),
            (b"a month", month),
            (b"long ago", month + 1),
            (b"at that time", 1_800_000_100),
            (b"over", -1),
        ]:
            put(client, item, expiry=expiry)
        assert served.items("q") == [b"never", b"a minute", b"a month", b"at that time"]
        now[0] += 59.9
        assert served.items("q") == [b"never", b"a minute", b"a month", b"at that time"]
        now[0] += 0.1
        assert served.items("q") == [b"never", b"a month", b"at that time"]
        now[0] += 40
        assert served.items("q") == [b"never", b"a month"]
        now[0] += month
        assert client.ask(b"get q q q\r\n") == value(b"never")


# --- with every sync policy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["none", "interval(5)", "always"])
def test_restarted_server_has_everything(policy: str, tmp_path: Path) -> None:
    sync = parse_sync(policy)
    with serving(tmp_path, sync=sync) as served:
        clients = [Client(served) for _ in range(8)]
        for round_number in range(20):
            for number, one in enumerate(clients):
                one.say(b"set q%d 0 0 2\r\n%02d\r\n" % (number % 3, round_number))
            for one in clients:
                assert one.line() == b"STORED\r\n"
        assert clients[0].ask(b"get q0 q0\r\nget q1/open\r\nget q2/open\r\nget q2/close\r\n").count(b"VALUE") == 4
        expected = {name: items for name, (items, _) in served.state().items()}
        for one in clients:
            one.close()
    with serving(tmp_path, sync=sync) as served:
        assert {name: len(items) for name, (items, _) in served.state().items()} == {"q0": 58, "q1": 60, "q2": 39}
        assert served.items("q0") == expected["q0"]
        assert served.items("q1")[1:] == expected["q1"]
        assert served.items("q2") == expected["q2"]


def test_queues_changed_and_used_concurrently_lose_no_response(served: Serving) -> None:
    """Threads delete and flush; a client that uses the queue meanwhile waits."""
    clients = [Client(served) for _ in range(6)]
    requests = [
        b"set p 0 0 1\r\n1\r\n",
        b"delete p+c\r\n",
        b"get p+c\r\n",
        b"flush p\r\n",
        b"delete p\r\n",
        b"flush_all\r\n",
    ]
    answers = [(b"STORED\r\n",), (b"DELETED\r\n", b"NOT_FOUND\r\n"), (b"END\r\n", b"VALUE p+c 0 1\r\n1\r\nEND\r\n"),
               (b"END\r\n",), (b"DELETED\r\n", b"NOT_FOUND\r\n"), (b"OK\r\n",)]  # fmt: skip
    for _ in range(10):
        for client, request in zip(clients, requests, strict=True):
            client.say(request)
        for client, possible in zip(clients, answers, strict=True):
            assert client.ask(b"") in possible
    for client in clients:
        client.close()


def test_request_for_a_queue_that_is_being_opened_waits(served: Serving) -> None:
    clients = [Client(served) for _ in range(10)]
    for number, client in enumerate(clients):
        client.say(b"set new 0 0 1\r\n%d\r\n" % number)
    assert [client.line() for client in clients] == [b"STORED\r\n"] * 10
    assert sorted(served.items("new")) == [b"%d" % number for number in range(10)]
    assert served.call(lambda: served.service.queues.created) == 1
    for client in clients:
        client.close()
