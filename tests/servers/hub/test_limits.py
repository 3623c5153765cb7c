"""The call that is replaced at the limit: an idle one first, then one of the peer with the most calls."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from logwright.errors import Closed
from logwright.servers.hub.limits import Busy, Call, Calls
from tests.servers.hub.support import in_loop


def in_a_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    in_loop(run())


def busy_call(calls: Calls, connection: str) -> Call:
    call = calls.enter(connection)
    calls.touch(call, 1)
    return call


def test_peer_with_two_more_calls_loses_its_oldest() -> None:
    def work() -> None:
        calls = Calls(4, 60)
        far = [busy_call(calls, f"ipv4:10.0.0.1:{port}") for port in (1, 1, 2)]
        near = busy_call(calls, "ipv4:127.0.0.1:5")
        busy_call(calls, "ipv4:127.0.0.1:6")
        assert [call.leaving.done() for call in (*far, near)] == [True, False, False, False]
        with pytest.raises(Busy, match="has 4 running calls"):
            calls.enter("ipv4:127.0.0.1:6")
        calls.enter("ipv6:[::1]:7")
        assert [call.leaving.done() for call in (*far, near)] == [True, True, False, False]

    in_a_loop(work)


def test_connections_of_one_address_share_its_calls_equally() -> None:
    def work() -> None:
        calls = Calls(4, 60)
        first = [busy_call(calls, "ipv4:127.0.0.1:1") for _ in range(4)]
        second = [busy_call(calls, "ipv4:127.0.0.1:2") for _ in range(2)]
        assert [call.leaving.done() for call in first] == [True, True, False, False]
        assert not any(call.leaving.done() for call in second)
        with pytest.raises(Busy):
            calls.enter("ipv4:127.0.0.1:2")
        with pytest.raises(Busy):
            calls.enter("ipv4:127.0.0.1:1")
        calls.enter("ipv4:127.0.0.1:3")

    in_a_loop(work)


def test_idle_call_is_replaced_first_and_an_unanswered_one_is_not() -> None:
    def work() -> None:
        now = 0.0
        calls = Calls(3, 1.0, lambda: now)
        waiting, answered, fresh = (calls.enter(f"ipv4:127.0.0.1:{port}") for port in range(3))
        calls.touch(waiting, 1)
        calls.touch(answered, 1)
        calls.touch(answered, -1)
        now = 0.9
        calls.touch(fresh, 1)
        calls.touch(fresh, -1)
        with pytest.raises(Busy):
            calls.enter("ipv4:127.0.0.1:9")
        now = 1.5
        calls.enter("ipv4:127.0.0.1:9")
        assert [call.leaving.done() for call in (waiting, answered, fresh)] == [False, True, False]
        assert isinstance(answered.leaving.result(), Closed)
        with pytest.raises(Busy):
            calls.enter("ipv4:127.0.0.1:9")

    in_a_loop(work)


def test_stopping_hub_ends_all_calls_and_accepts_none() -> None:
    def work() -> None:
        calls = Calls(3, 1.0)
        held = [calls.enter("ipv4:127.0.0.1:1") for _ in range(2)]
        calls.stop()
        assert [str(call.leaving.result()) for call in held] == ["the hub is stopping"] * 2
        with pytest.raises(Closed, match="the hub is stopping"):
            calls.enter("ipv4:127.0.0.1:1")

    in_a_loop(work)


@pytest.mark.parametrize("seed", range(5))
def test_no_peer_is_refused_while_another_has_two_more_calls(seed: int) -> None:
    async def work() -> None:
        chance = random.Random(seed)
        most = chance.choice([1, 2, 5, 16])
        calls = Calls(most, 60)
        held: list[Call] = []
        for _ in range(2000):
            if held and chance.random() < 0.3:
                gone = held.pop(chance.randrange(len(held)))
                calls.leave(gone)
                continue
            connection = f"ipv4:10.0.0.{chance.choice([1, 1, 1, 2, 3])}:{chance.randrange(3)}"
            address = connection.rpartition(":")[0]
            staying = [call for call in held if not call.leaving.done()]
            addresses = Counter(call.address for call in staying)
            own = Counter(call.connection for call in staying if call.address == address)
            try:
                held.append(busy_call(calls, connection))
            except Busy:
                assert len(staying) == most
                assert max(addresses.values()) <= addresses[address] + 1
                assert max(own.values(), default=0) <= own[connection] + 1
            assert sum(not call.leaving.done() for call in held) <= most
            assert len(calls) == len(held)
        await asyncio.sleep(0)

    in_loop(work())
