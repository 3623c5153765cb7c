"""Clients that wait for items: in the order in which they came, without polling, for as long as they said.

An item goes to the client that has waited longest, in the moment in which it comes: so whoever waits is never passed by
somebody who just asks. A `monitor` goes to the end of the line with each item that it gets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ...errors import LogwrightError
from .queues import Served

if TYPE_CHECKING:
    from .reading import Reading


class Wish(NamedTuple):
    """What a key of a `get` asks for: `name/option/...`."""

    key: bytes
    """As the client gave it."""
    name: bytes
    wait_ms: int = 0
    opens: bool = False
    closes: bool = False
    aborts: bool = False
    peeks: bool = False

    @property
    def fetches(self) -> bool:
        """Whether it asks for an item at all."""
        return self.opens or not (self.closes or self.aborts)


_FLAGS = {b"open": "opens", b"close": "closes", b"abort": "aborts", b"peek": "peeks"}
_MOST_WAIT_DIGITS = 12


def parse_wish(key: bytes) -> Wish | None:
    """The wish that a key stands for; None for options that there are not, or that contradict each other."""
    name, *options = key.split(b"/")
    wait_ms = 0
    flags: dict[str, bool] = {}
    for option in options:
        if option[:2] == b"t=":
            digits = option[2:]
            if not digits.isdigit() or len(digits) > _MOST_WAIT_DIGITS:
                return None
            wait_ms = int(digits)
        elif option in _FLAGS:
            flags[_FLAGS[option]] = True
        else:
            return None
    wish = Wish(key, name, wait_ms, **flags)
    if ((wish.peeks or wish.aborts) and (wish.opens or wish.closes)) or (wish.peeks and wish.aborts):
        return None
    return wish


class Waiter:
    """A client that waits for an item of a queue, or for several of them."""

    __slots__ = ("_most", "_timer", "client", "is_monitor", "queue", "wish")

    def __init__(self, client: Reading, queue: Served, wish: Wish, seconds: float, most: int = 0) -> None:
        self.client, self.queue, self.wish = client, queue, wish
        self.is_monitor = most > 0
        self._most = most
        queue.waiters.append(self)
        self._timer = asyncio.get_running_loop().call_later(seconds, self.give_up)

    def cancel(self) -> None:
        """The client is gone, or has what it wanted."""
        self._timer.cancel()
        if self in self.queue.waiters:
            self.queue.waiters.remove(self)

    def give_up(self) -> None:
        """Time is over, or the queue is gone."""
        self.cancel()
        self.client.end_wait()

    def serve(self) -> bool:
        """Give the client an item if there is one; whether there was."""
        item = self.client.fetch(self.queue, self.wish)
        if item is None:
            return False
        data, _ = item
        if self.is_monitor:
            self._most -= 1
            self.client.hand_out(self.queue, self.wish, data)
            self.queue.waiters.rotate(-1)
            if not self._most:
                self.give_up()
        else:
            self.cancel()
            self.client.end_wait(data)
        return True


def serve_waiters(queue: Served) -> None:
    """Items have come to a queue: hand them to those who wait, but for those who do not take what they have got."""
    passed_by = 0
    while passed_by < len(queue.waiters):
        waiter = queue.waiters[0]
        if waiter.client.is_stuck:
            queue.waiters.rotate(-1)
            passed_by += 1
            continue
        passed_by = 0
        try:
            if not waiter.serve():
                return
        except LogwrightError as error:
            waiter.client.server.notice(error)  # they go on to wait, and are served when the queue is back
            return
