"""Reading: how a client gets items: at once or by waiting, for good or until it says what became of them.

Of each queue a client has a line of open reads, the oldest first. `/close` and `/abort` are about the oldest, `confirm`
about so many of them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ...errors import LogwrightError, Poisoned
from . import answers
from .parser import Request
from .queues import Served, name_of

if TYPE_CHECKING:
    from .server import QueueServer

_WAITING = 1


# --- what a key asks for ----------------------------------------------------------------------------------------------


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


# --- waiting ----------------------------------------------------------------------------------------------------------


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


# --- the reads of a client --------------------------------------------------------------------------------------------


class Reading:
    """The reads of one client."""

    answer: Callable[..., None]
    has_ended: bool

    def __init__(self, server: QueueServer) -> None:
        self.server = server
        self.connected = time.monotonic()
        self.opens: dict[bytes, deque[tuple[Served, int]]] = {}
        self._waiter: Waiter | None = None
        self._wishes: deque[Wish] = deque()
        """Those of the `get` that is being done."""
        self._with_number = False
        self._is_single = True
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        """Of data: a `get` of many keys stops to hand out items when there is as much as may be held for a client."""
        self._sources: list[Served] = []

    # --- what a connection has --------------------------------------------------------------------------------------

    def refuse(self, answer: bytes) -> None:
        raise NotImplementedError

    def hold(self, reason: int) -> None:
        raise NotImplementedError

    def go_on(self) -> None:
        raise NotImplementedError

    def with_queue(self, key: bytes, request: Request, *, quiet: bool = False) -> None:
        raise NotImplementedError

    def put_back(self, reads: Iterable[tuple[Served, list[int]]]) -> None:
        raise NotImplementedError

    @property
    def is_stuck(self) -> bool:
        raise NotImplementedError

    # --- get --------------------------------------------------------------------------------------------------------

    def get(self, request: Request) -> None:
        """One item of each key. Nothing is done when one of the keys is wrong."""
        _, keys, with_number = request
        server = self.server
        if len(keys) == 1 and not self.opens and server.no_gets is None:
            key = keys[0]
            queue = server.queues.by_key.get(key)
            if queue is not None and not server.queues.is_changing(key) and not queue.can_move:
                server.figures.cmd_get += 1
                data = queue.engine.get()
                if data is None:
                    server.figures.get_misses += 1
                    self.answer(answers.END)
                    return
                server.figures.get_hits += 1
                number = b" %d" % server.next_number() if with_number else b""
                self.answer(b"VALUE %b 0 %d%b\r\n%b\r\nEND\r\n" % (key, len(data), number, data), queue.alone)
                return
        self._get_wishes(keys, request)

    def _get_wishes(self, keys: list[bytes], request: Request) -> None:
        wishes = [parse_wish(key) for key in keys]
        counts: dict[bytes, int] = {}
        refusal = None
        for key, wish in zip(keys, wishes, strict=True):
            if len(key) > self.server.limits.max_key_bytes:
                refusal = answers.BAD_LINE
            elif wish is None:
                refusal = answers.BAD_OPTIONS
            elif name_of(wish.name) is None:
                refusal = answers.BAD_NAME
            else:
                refusal = self._refusal(wish, counts)
            if refusal is not None:
                self.refuse(refusal)
                return
        found = [wish for wish in wishes if wish is not None]
        for wish in found:
            if self._needs_queue(wish):
                self.with_queue(wish.name, request)
                return
        self._wishes = deque(found)
        self._with_number = request[2]
        self._parts, self._parts_bytes, self._sources = [], 0, []
        self._grant()

    def _refusal(self, wish: Wish, counts: dict[bytes, int]) -> bytes | None:
        """What is wrong with a wish of this client. `counts` is what it may have open of each queue by then."""
        count = counts.get(wish.name, len(self.opens.get(wish.name, ())))
        if wish.closes or wish.aborts:
            count = max(0, count - 1)
        counts[wish.name] = count + wish.opens
        if self.server.no_gets is not None and (wish.fetches or wish.aborts):
            return self.server.no_gets
        if not wish.fetches or wish.peeks:
            return None
        if wish.opens:
            return answers.ERROR if count >= self.server.limits.max_open_reads else None
        return answers.ERROR if count > 0 else None

    def _needs_queue(self, wish: Wish) -> bool:
        """Whether a queue has to be opened first. One that does not exist is empty, unless somebody waits for items.

        A fan-out queue gets items from the moment on in which somebody has asked for it.
        """
        queues = self.server.queues
        if wish.name in queues.refused or queues.is_changing(wish.name):
            return True
        if wish.name in queues.by_key or not wish.fetches:
            return False
        return b"+" in wish.name or wish.wait_ms > 0

    def _grant(self) -> None:
        """Do the wishes that are left, until one has to wait. When one fails, those before it are answered."""
        while self._wishes:
            try:
                if not self._grant_one(self._wishes[0]):
                    return
            except LogwrightError as error:
                if not self._parts:
                    raise
                self.server.notice(error)
                break  # what was taken is gone, or open: whoever asked must get it
            self._wishes.popleft()
        parts, self._parts = self._parts, []
        self.answer(b"".join([*parts, answers.END]), tuple(dict.fromkeys(self._sources)))

    def _grant_one(self, wish: Wish) -> bool:
        """Do a wish; False when it has to wait."""
        queue = self.server.queues.by_key.get(wish.name)
        if wish.aborts:
            self._abort(wish.name)
        elif wish.closes:
            self._sources += self.confirm(wish.name, 1) or ()
        if not wish.fetches:
            return True
        self._count(wish)
        has_room = self._parts_bytes < self.server.limits.output_buffer_bytes
        item = self.fetch(queue, wish) if queue is not None and has_room else None
        if item is not None and queue is not None:
            self._gather(queue, wish, *item)
        elif wish.wait_ms and queue is not None and has_room and not self.has_ended:
            seconds = min(wish.wait_ms / 1000, self.server.limits.max_wait_seconds)
            self._waiter = Waiter(self, queue, wish, seconds)
            self.hold(_WAITING)
            return False
        else:
            self.server.figures.get_misses += not wish.peeks
        return True

    def _count(self, wish: Wish) -> None:
        figures = self.server.figures
        if wish.peeks:
            figures.cmd_peek += 1
        else:
            figures.cmd_get += 1

    def fetch(self, queue: Served, wish: Wish) -> tuple[bytes, int] | None:
        """The item that a wish gets now, and its id if it is open now; None when there is nothing."""
        found = self._fetch(queue, wish)
        if queue.can_move:
            self.server.moving.look(queue)
        return found

    def _fetch(self, queue: Served, wish: Wish) -> tuple[bytes, int] | None:
        if wish.peeks:
            item = queue.engine.peek()
            return None if item is None else (item.data, 0)
        if not wish.opens:
            data = queue.engine.get()
            if data is None:
                return None
            self.server.figures.get_hits += 1
            return data, 0
        queue.transactions += 1
        item = queue.engine.reserve()
        if item is None:
            return None
        self.server.figures.get_hits += 1
        self.opens.setdefault(wish.name, deque()).append((queue, item.xid))
        return item.data, item.xid

    def _gather(self, queue: Served, wish: Wish, data: bytes, _: int) -> None:
        number = b" %d" % self.server.next_number() if self._with_number else b""
        key = wish.name if self.server.answers_with_names else wish.key
        self._parts.append(b"VALUE %b 0 %d%b\r\n%b\r\n" % (key, len(data), number, data))
        self._parts_bytes += len(data)
        self._sources.append(queue)

    def hand_out(self, queue: Served, wish: Wish, data: bytes) -> None:
        """Send an item of a `monitor`."""
        self.answer(b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (wish.name, len(data), data), queue.alone)

    def end_wait(self, data: bytes | None = None) -> None:
        """What was waited for is here, or will not come."""
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            return
        if waiter.is_monitor:
            self.answer(answers.END)
        else:
            wish = self._wishes.popleft()
            if data is None:
                self.server.figures.get_misses += not wish.peeks
            else:
                self._gather(waiter.queue, wish, data, 0)
            try:
                self._grant()
            except LogwrightError as error:
                self.refuse(answers.failure(error))
                self.server.notice(error)
        if self._waiter is None:
            self.go_on()

    # --- open reads -------------------------------------------------------------------------------------------------

    def confirm(self, name: bytes, count: int) -> tuple[Served, ...] | None:
        """Finish the oldest reads of a queue; the queues that this has changed. None when there are not so many.

        Reads of a queue that was deleted or opened again meanwhile are over already.
        """
        reads = self.opens.get(name, deque())
        if len(reads) < count:
            return None
        chosen = [reads.popleft() for _ in range(count)]
        if not reads:
            self.opens.pop(name, None)
        if any(queue.is_lost for queue, _ in chosen):
            raise Poisoned("the queue has failed meanwhile, and what was open has come back")
        changed = []
        for queue in dict.fromkeys(queue for queue, _ in chosen if not queue.is_gone):
            xids = [xid for other, xid in chosen if other is queue and queue.engine.is_open(xid)]
            if xids:
                queue.engine.confirm(xids)
                changed.append(queue)
        return tuple(changed)

    def _abort(self, name: bytes) -> None:
        reads = self.opens.get(name)
        if not reads:
            return
        queue, xid = reads.popleft()
        if not reads:
            del self.opens[name]
        if not queue.is_gone:
            self._sources.append(queue)
            self.put_back([(queue, [xid])])

    def monitor(self, queue: Served, seconds: float, most: int) -> None:
        """Send what comes to a queue, each item an open read, until there were so many or time is over."""
        wish = Wish(queue.key, queue.key, opens=True)
        room = self.server.limits.max_monitored_items - len(self.opens.get(queue.key, ()))
        if room <= 0:
            self.answer(answers.END)
            return
        self._waiter = Waiter(self, queue, wish, seconds, min(most, room))
        self.hold(_WAITING)
        serve_waiters(queue)
        if (self.has_ended or not seconds) and self._waiter is not None:
            self._waiter.give_up()

    def leave(self) -> None:
        """The client is gone: it waits no more, and what it had open goes back to the heads of the queues."""
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        reads: dict[Served, list[int]] = {}
        for line in self.opens.values():
            for queue, xid in line:
                reads.setdefault(queue, []).append(xid)
        self.opens = {}
        self.put_back(reads.items())
