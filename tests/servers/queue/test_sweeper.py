"""Items that expire or fail too often are swept, moved to other queues or parked, as configured for each queue."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from logwright.cli.output import parse_size
from logwright.core.io.durability import ALWAYS, NONE, Sync
from logwright.errors import WrongUse
from logwright.kestrel.model.limits import Limits
from logwright.servers.queue.limits import QueueLimits, ServerLimits, load_named
from logwright.servers.queue.queues import Phase
from logwright.servers.queue.server import QueueServer
from logwright.servers.queue.service import ServerSettings
from logwright.servers.queue.upkeep import MOST_SWEPT
from tests.servers.queue.support import Client, Serving, serving
from tests.servers.queue.test_full_disk import FickleDisk

OFTEN = ServerLimits(sweep_seconds=0.002, retry_seconds=0.01)
SELDOM = ServerLimits(sweep_seconds=3600)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def put(client: Client, queue: bytes, count: int, expiry: int = 0) -> None:
    items = b"".join(b"set %b 0 %d 4\r\n%04d\r\n" % (queue, expiry, number) for number in range(count))
    assert client.ask(items) == b"STORED\r\n" * count


def fail(served: Serving, queue: bytes, times: int) -> None:
    """Read an item and abort it this number of times."""
    with Client(served) as client:
        for _ in range(times):
            assert client.ask(b"get %b/open\r\n" % queue).startswith(b"VALUE")
            assert client.ask(b"get %b/abort\r\n" % queue) == b"END\r\n"


def moved(served: Serving, queue: bytes, count: int) -> None:
    """Wait until a queue has `count` items, and none is being moved."""
    queues = served.service.queues.by_key
    served.until(lambda: queue in queues and queues[queue].engine.shelf.items == count)
    served.until(lambda: not any(found.is_moving for found in queues.values()))


# --- sweeping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
def test_expired_items_are_removed_without_requests(sync: Sync, tmp_path: Path) -> None:
    clock = Clock()
    with serving(tmp_path, clock=clock, limits=OFTEN, sync=sync) as served, Client(served) as client:
        put(client, b"a", 3 * MOST_SWEPT + 1, expiry=10)
        put(client, b"b", 2, expiry=10)
        client.ask(b"set b 0 0 1\r\n1\r\n")
        clock.now += 10
        served.until(lambda: served.service.queues.by_key[b"a"].engine.shelf.items == 0)
        served.until(lambda: served.service.queues.by_key[b"b"].engine.shelf.items == 1)
        assert served.state() == {"a": ([], 0), "b": ([b"1"], 0)}
        assert b"STAT queue_a_expired_items 3001\r\n" in client.ask(b"stats\r\n")
    with serving(tmp_path, limits=SELDOM) as served:
        assert served.call(lambda: served.service.queues.by_key[b"a"].engine.shelf.items) == 0


def test_one_loop_iteration_sweeps_a_limited_number_of_items(tmp_path: Path) -> None:
    clock = Clock()
    with serving(tmp_path, clock=clock, limits=SELDOM) as served, Client(served) as client:
        put(client, b"a", 2 * MOST_SWEPT + 1, expiry=10)
        clock.now += 10
        queue = served.service.queues.by_key[b"a"]

        def sweep() -> tuple[bool, int]:
            return served.service.sweeper.sweep(queue), queue.engine.shelf.items

        assert served.call(sweep) == (True, MOST_SWEPT + 1)
        assert served.call(sweep) == (True, 1)
        assert served.call(sweep) == (True, 0)
        assert served.call(sweep) == (False, 0)


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
def test_sweep_that_the_disk_refuses_loses_nothing_and_is_done_later(
    sync: Sync, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="logwright")
    clock, disk = Clock(), FickleDisk()
    with serving(tmp_path, clock=clock, disk=disk, limits=OFTEN, sync=sync) as served, Client(served) as client:
        put(client, b"q", 5, expiry=10)
        client.ask(b"set q 0 0 1\r\n1\r\n")
        before = served.service.queues.by_key[b"q"]
        disk.failing, disk.failing_file = {"write": errno.ENOSPC}, "q"
        clock.now += 10
        served.until(lambda: before.phase is Phase.FAILED)
        disk.failing = {}
        served.until(lambda: b"q" in served.service.queues.by_key)
        served.until(lambda: served.service.queues.by_key[b"q"].engine.shelf.items == 1)
        assert served.items("q") == [b"1"]


# --- moving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
@pytest.mark.parametrize("limits", [OFTEN, SELDOM], ids=["swept", "asked for"])
def test_expired_items_move_to_the_configured_queue_and_its_waiting_clients(
    limits: ServerLimits, sync: Sync, tmp_path: Path
) -> None:
    clock = Clock()
    settings: dict[str, Any] = {"clock": clock, "limits": limits, "sync": sync}
    settings["named"] = {"offers": {"expire_to": "missed"}}
    with serving(tmp_path, **settings) as served, Client(served) as client, Client(served) as waiting:
        put(client, b"offers", 3, expiry=10)
        client.ask(b"set offers 0 0 1\r\n1\r\n")
        waiting.say(b"get missed/t=60000\r\n")
        served.until(lambda: b"missed" in served.service.queues.by_key)
        clock.now += 10
        if limits is SELDOM:
            assert client.ask(b"get offers/peek\r\n") == b"VALUE offers/peek 0 1\r\n1\r\nEND\r\n"
        assert [waiting.line(), waiting.line()] == [b"VALUE missed/t=60000 0 4\r\n", b"0000\r\n"]
        moved(served, b"missed", 2)
        assert served.state() == {"missed": ([b"0001", b"0002"], 0), "offers": ([b"1"], 0)}
    with serving(tmp_path, limits=SELDOM) as served:
        assert served.state() == {"missed": ([b"0001", b"0002"], 0), "offers": ([b"1"], 0)}


def test_moving_many_items_yields_to_waiting_clients(tmp_path: Path) -> None:
    clock = Clock()
    settings: dict[str, Any] = {"clock": clock, "limits": SELDOM, "queues": Limits(expire_to="missed")}
    with serving(tmp_path, **settings) as served, Client(served) as client:
        put(client, b"q", 2500, expiry=10)
        client.ask(b"set q 0 0 1\r\n1\r\n")
        clock.now += 10
        assert client.ask(b"get q/t=60000\r\n") == b"VALUE q/t=60000 0 1\r\n1\r\nEND\r\n"
        moved(served, b"missed", 2500)
        assert client.ask(b"get missed\r\n") == b"VALUE missed 0 4\r\n0000\r\nEND\r\n"
        assert client.ask(b"get missed\r\n") == b"VALUE missed 0 4\r\n0001\r\nEND\r\n"


def test_item_that_failed_too_often_is_parked_in_a_readable_queue(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"queues": Limits(max_attempts=2), "limits": SELDOM}
    with serving(tmp_path, **settings) as served, Client(served) as client:
        put(client, b"mail", 2)
        fail(served, b"mail", 2)
        moved(served, b"mail_parked", 1)
        assert served.state() == {"mail": ([b"0001"], 0), "mail_parked": ([b"0000"], 0)}
        with Client(served) as gone:  # a disconnect counts as a failure
            assert gone.ask(b"get mail/open\r\n").startswith(b"VALUE")
        served.until(lambda: served.service.queues.by_key[b"mail"].engine.shelf.items)
    with serving(tmp_path, **settings) as served, Client(served) as client:
        fail(served, b"mail", 1)
        moved(served, b"mail_parked", 2)
        fail(served, b"mail_parked", 3)  # and stays there, however often it fails again
        assert served.state() == {"mail": ([], 0), "mail_parked": ([b"0000", b"0001"], 0)}


@pytest.mark.parametrize("limit", [{"max_items": 5}, {"max_bytes": 20}], ids=["items", "bytes"])
def test_expired_items_move_even_beyond_the_limit_of_a_queue(limit: Any, tmp_path: Path) -> None:
    clock = Clock()
    settings: dict[str, Any] = {"clock": clock, "limits": OFTEN, "queues": Limits(expire_to="gone", **limit)}
    with serving(tmp_path, **settings) as served, Client(served) as client:
        for rounds in range(1, 5):
            put(client, b"e", 5, expiry=10)
            assert client.ask(b"set e 0 10 1\r\n6\r\n") == b"NOT_STORED\r\n"
            clock.now += 10
            moved(served, b"gone", 5 * rounds)
        assert b"STAT queue_e_expired_items 20\r\n" in client.ask(b"stats\r\n")
        assert client.ask(b"set gone 0 0 1\r\n6\r\n") == b"NOT_STORED\r\n"
        expected = b"".join(b"VALUE gone 0 4\r\n%04d\r\nEND\r\n" % number for number in range(5)) * 4
        assert client.ask(b"get gone\r\n" * 21) == expected + b"END\r\n"
        assert client.ask(b"set gone 0 0 1\r\n6\r\n") == b"STORED\r\n"


def test_failed_items_are_parked_even_beyond_the_limit_of_a_queue(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"limits": OFTEN, "queues": Limits(max_attempts=1, max_items=3)}
    with serving(tmp_path, **settings) as served:
        with Client(served) as client:
            client.say(b"monitor q 60 6\r\n")
            served.until(lambda: b"q" in served.service.queues.by_key)
            with Client(served) as other:
                put(other, b"q", 6)
            assert client.hear(6 * 24 + 5).endswith(b"0005\r\nEND\r\nEND\r\n")
        moved(served, b"q_parked", 6)
        assert served.items("q_parked") == [b"%04d" % number for number in range(6)]


def test_items_stay_while_their_target_queue_fails(tmp_path: Path) -> None:
    disk = FickleDisk()
    settings: dict[str, Any] = {"disk": disk, "limits": OFTEN, "named": {"q": {"max_attempts": 1, "park": "p"}}}
    with serving(tmp_path, **settings) as served, Client(served) as client:
        put(client, b"q", 1)
        put(client, b"p", 1)
        before = served.service.queues.by_key[b"p"]
        disk.failing, disk.failing_file = {"write": errno.EIO}, "p"
        fail(served, b"q", 1)
        served.until(lambda: before.phase is Phase.FAILED)
        disk.failing = {}
        moved(served, b"p", 2)
        assert served.state() == {"p": ([b"0000", b"0000"], 0), "q": ([], 0)}


def test_failed_moves_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "p").write_bytes(b"no journal")
    settings: dict[str, Any] = {"limits": OFTEN, "named": {"q": {"max_attempts": 1, "park": "p"}}}
    with serving(tmp_path, **settings) as served, Client(served) as client:
        put(client, b"q", 1)
        fail(served, b"q", 1)
        engine = served.service.queues.by_key[b"q"].engine

        def attempts() -> int:
            with engine.mutex:
                return engine.shelf.head()[3] if engine.shelf.items else 0

        served.until(lambda: attempts() > 5)
        assert sum("could not be moved" in record.message for record in caplog.records) == 1
        (tmp_path / "p").unlink()
        moved(served, b"p", 1)
        assert served.state() == {"p": ([b"0000"], 0), "q": ([], 0)}


# --- the configuration of each queue----------------------------------------------------------------------------------


def test_table_of_a_queue_overrides_the_common_limits() -> None:
    common = Limits(max_items=10, max_age=60, expire_to="missed", max_attempts=3)
    named: dict[str, dict[str, Any]] = {
        "a": {"max_items": 5, "max_age": None},
        "b+c": {"max_attempts": None},
        "d": {"park": "graves"},
    }
    limits = QueueLimits(Path("queues"), common, named)
    assert limits.of("other") == limits.of("other+child") == common
    assert limits.of("a") == limits.of("a+b") == Limits(max_items=5, expire_to="missed", max_attempts=3)
    assert limits.of("b") == common
    assert limits.of("b+c") == Limits(max_items=10, max_age=60, expire_to="missed")
    for target in ("missed", "graves", "a_parked", "other_parked"):
        assert limits.of(target) == Limits(max_items=10)


def test_file_overrides_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "queues.toml"
    file.write_text(
        '[orders]\nmax_bytes = "2k"\nmax_attempts = 3\ndiscard_old_when_full = true\n["news+all"]\nmax_age = false\n'
    )
    found = load_named(file, lambda text: int(text.removesuffix("k")) * 1024, Limits(), tmp_path)
    expected = {"max_bytes": 2048, "max_attempts": 3, "discard_old_when_full": True}
    assert found == {"orders": expected, "news+all": {"max_age": None}}
    with serving(tmp_path / "q", named=found) as served, Client(served) as client:
        client.ask(b"set orders 0 0 1\r\n1\r\nset other 0 0 1\r\n1\r\n")
        first, second = client.ask(b"dump_config\r\n").split(b"queue 'other'")
        assert b"  max_bytes=2048\r\n" in first
        assert b"  max_bytes=None\r\n" in second
        assert b"  sweep_seconds=1.0\r\n" in first
        assert b"  park=orders_parked\r\n" in first
        assert b"  park=None\r\n" in second


def test_example_file_of_the_page_is_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "queue-server.md").read_text("utf-8")
    file = tmp_path / "queues.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    common = Limits(max_attempts=9)
    limits = QueueLimits(tmp_path, common, load_named(file, parse_size, common, tmp_path))
    assert limits.of("orders") == Limits(max_attempts=3, park="orders_failed", max_bytes=2 << 30)
    assert limits.of("offers") == Limits(max_attempts=9, max_age=604800, expire_to="missed")
    assert limits.of("news+archive") == Limits()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("orders = 5", "orders must be a table"),
        ("[orders]\nmax_item = 5", "there is no option 'max_item'; the options are max_items, max_bytes"),
        ("[orders]\nsweep_seconds = 5", "there is no option 'sweep_seconds'; the options are"),
        ("[orders]\nmax_bytes = 'many'", "is not a size"),
        ("[orders]\ndiscard_old_when_full = 1", "must be true or false"),
        ("[orders]\nmax_items = 'x'", "orders: max_items cannot be 'x'"),
        ("[orders]\npark = 'graves'", "orders: park needs max_attempts"),
        ("[orders]\nexpire_to = 'orders'", "orders: the items of a queue cannot move to the same queue"),
        (
            "[a]\nexpire_to = 'b'\n[b]\nexpire_to = 'c'\n[c]\nexpire_to = 'b'",
            "items would move in a cycle: b to c to b",
        ),
        (
            "[a]\nmax_attempts = 1\npark = 'b'\n[b]\nmax_attempts = 1\npark = 'a'",
            "items would move in a cycle: b to a to b",
        ),
        ("[a]\nexpire_to = 'b'\n[b]\nmax_attempts = 1\npark = 'a'", "items would move in a cycle: b to a to b"),
        ("[a]\nexpire_to = 'b+c'\n[b]\nexpire_to = 'a'", "items would move in a cycle: b+c to a to b+c"),
        ("[orders]\nexpire_to = 'a/b'", "orders: expire_to"),
        ("['../x']\nmax_items = 1", "../x"),
        ("[orders", "Expected ']'"),
    ],
)
def test_invalid_file_is_refused_with_the_reason(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "queues.toml"
    file.write_text(text)
    with pytest.raises(WrongUse) as caught:
        load_named(file, parse_size, Limits(), tmp_path / "q")
    assert str(caught.value).startswith(f"{file}: ")
    assert reason in str(caught.value)


def test_server_does_not_start_with_invalid_limits(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="items would move in a cycle: b to a to b"):
        QueueServer(ServerSettings(directory=tmp_path, named={"a": {"expire_to": "b"}, "b": {"expire_to": "a"}}))


def test_queue_with_too_long_a_name_for_parking_does_not_park(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = b"q" * 229
    for _ in range(2):
        caplog.clear()
        with serving(tmp_path, queues=Limits(max_attempts=1)) as served, Client(served) as client:
            assert client.ask(b"set %b 0 0 1\r\n1\r\n" % name * 3) == b"STORED\r\n" * 3
            fail(served, name, 3)
            assert client.ask(b"get %b\r\n" % name) == b"VALUE %b 0 1\r\n1\r\nEND\r\n" % name
            assert served.state() == {name.decode(): ([b"1", b"1"], 0)}
            assert client.ask(b"delete %b\r\n" % name) == b"DELETED\r\n"
            assert client.ask(b"set %b 0 0 1\r\n1\r\n" % name) == b"STORED\r\n"
            assert client.ask(b"get %b\r\n" % name) == b"VALUE %b 0 1\r\n1\r\nEND\r\n" % name
        assert [record.message for record in caplog.records if "not parked" in record.message] == [
            f"{name.decode()}: items are not parked: {name.decode()}_parked would be too long a name"
        ]


def test_table_with_an_overlong_parking_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="is too long for a queue name"):
        QueueLimits(tmp_path, Limits(), {"q" * 229: {"max_attempts": 2}})
