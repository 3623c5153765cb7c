"""The limits of a hub, and its running calls: which call ends when the hub has too many.

No client may lock out the others, and without tokens the hub does not know the clients. So when all places are taken, a
new call replaces

    a call without a request for longer than `idle_seconds`, of any client, or else
    a call of the address with the most calls, if it has at least two more than the new call's address, or else
    a call of the connection with the most calls at the new call's address, if it has at least two more.

Otherwise the new call is refused, and its client may try again. A replaced call ends between two requests: the answered
ones are on the disk, and its client continues after them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ...core.options import NamedOptions
from ...errors import Closed, LogwrightError

_LEAST_DIFFERENCE: Final = 2
"""With a difference of one, two clients would replace each other's calls for ever."""


@dataclass(frozen=True, slots=True)
class Limits(NamedOptions):
    """The limits of a hub. A message must fit in a request, so `request_bytes` also limits messages.

    A hub buffers at most `buffer_bytes`, and one request and three answers for each call. A connection without a call
    is closed after `unused_seconds`; clients reconnect when needed. The default is not a round number: a client that
    sends every five or ten seconds would often send just when its connection is closed.
    """

    request_bytes: int = 16 << 20
    answer_bytes: int = 1 << 20
    buffer_bytes: int = 128 << 20
    connections: int = 2048
    calls: int = 64
    calls_of_one_connection: int = 16
    requests_in_flight: int = 64
    open_journals: int = 128
    journals: int = 10_000
    header_bytes: int = 8192
    handshake_seconds: float = 10.0
    unused_seconds: float = 7.0
    idle_seconds: float = 1.0
    silence_seconds: float = 30.0
    answer_seconds: float = 30.0
    keepalive_seconds: float = 20.0
    stop_seconds: float = 10.0


# --- calls ----------------------------------------------------------------------------------------------------------


class Busy(LogwrightError):
    """All places for calls are taken, and none is free for this client."""


class Call:
    """A running call. `leaving` gets the reason if it must end before its next request."""

    __slots__ = ("connection", "leaving", "touched_at", "unanswered")

    def __init__(self, connection: str, now: float) -> None:
        self.connection = connection
        self.unanswered = 0
        self.touched_at = now
        self.leaving: asyncio.Future[LogwrightError] = asyncio.get_running_loop().create_future()

    @property
    def address(self) -> str:
        """The connection without its port."""
        return self.connection.rpartition(":")[0]

    def end(self, why: LogwrightError) -> None:
        """End the call before its next request."""
        if not self.leaving.done():
            self.leaving.set_result(why)


class Calls:
    """All calls of a hub."""

    def __init__(self, most: int, idle_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._calls: dict[Call, None] = {}
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._calls)

    def enter(self, connection: str) -> Call:
        """Add a call of a connection, `ipv4:HOST:PORT` as in gRPC; raises `Busy` if there is no place."""
        call = Call(connection, self._clock())
        staying = [other for other in self._calls if not other.leaving.done()]
        if self._is_stopping:
            raise Closed("the hub is stopping")
        if len(staying) >= self._most:
            victim = self._idle_call(staying) or _call_of_busiest(staying, call)
            if victim is None:
                raise Busy(f"this hub has {self._most} running calls and accepts no more at the moment")
            victim.end(Closed("another client needs the place of this call"))
        self._calls[call] = None
        return call

    def _idle_call(self, calls: Iterable[Call]) -> Call | None:
        now = self._clock()
        idle = [call for call in calls if not call.unanswered and now - call.touched_at > self._idle_seconds]
        return min(idle, key=lambda call: call.touched_at, default=None)

    def touch(self, call: Call, requests: int) -> None:
        """A request arrived (1), or was answered (-1)."""
        call.unanswered += requests
        call.touched_at = self._clock()

    def leave(self, call: Call) -> None:
        """A call has ended."""
        del self._calls[call]

    def stop(self) -> None:
        """End all calls, and accept no more."""
        self._is_stopping = True
        for call in self._calls:
            call.end(Closed("the hub is stopping"))


def _call_of_busiest(calls: list[Call], newcomer: Call) -> Call | None:
    """The oldest call of the address, or else connection, with at least two calls more than the newcomer's."""
    addresses = Counter(call.address for call in calls)
    address, most = addresses.most_common(1)[0]
    is_fair = most < addresses[newcomer.address] + _LEAST_DIFFERENCE
    if is_fair:
        address = newcomer.address
    connections = Counter(call.connection for call in calls if call.address == address)
    connection, most = connections.most_common(1)[0] if connections else ("", 0)
    if is_fair and most < connections[newcomer.connection] + _LEAST_DIFFERENCE:
        return None
    return next(call for call in calls if call.connection == connection)
