"""How a client gets items: at once or by waiting, removed or only reserved.

A client has a list of open reads for each queue, the oldest first: these items are reserved for it. `/close` and
`/abort` end the oldest read, `confirm` a number of them.

Waiting clients do not poll: an item goes at once to the client that has waited longest, so no later client overtakes
it. A `monitor` goes to the end of the line with each item that it gets.
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


# --- what a key asks for --------------------------------------------------------------------------------------------


class KeyRequest(NamedTuple):
    """What a key of a `get` asks for: `name/option/...`."""

    key: bytes
    """As in the request."""
    name: bytes
    wait_ms: int = 0
    opens: bool = False
    closes: bool = False
    aborts: bool = False
    peeks: bool = False

    @property
    def fetches(self) -> bool:
        """Whether it asks for an item."""
        return self.opens or not (self.closes or self.aborts)


_FLAGS = {b"open": "opens", b"close": "closes", b"abort": "aborts", b"peek": "peeks"}
_MOST_WAIT_DIGITS = 12


def parse_key(key: bytes) -> KeyRequest | None:
    """Parse a key; None for options that are unknown or contradict each other."""
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
    wanted = KeyRequest(key, name, wait_ms, **flags)
    if ((wanted.peeks or wanted.aborts) and (wanted.opens or wanted.closes)) or (wanted.peeks and wanted.aborts):
        return None
    return wanted


# --- waiting --------------------------------------------------------------------------------------------------------


class Waiter:
    """A client that waits for an item of a queue, or as a monitor for several."""

    __slots__ = ("_most", "_timer", "client", "is_monitor", "queue", "wanted")

    def __init__(self, client: Reads, queue: Served, wanted: KeyRequest, seconds: float, most: int = 0) -> None:
        self.client, self.queue, self.wanted = client, queue, wanted
        self.is_monitor = most > 0
        self._most = most
        queue.waiters.append(self)
        self._timer = asyncio.get_running_loop().call_later(seconds, self.give_up)

    def cancel(self) -> None:
        """The client has disconnected, or has its item."""
        self._timer.cancel()
        if self in self.queue.waiters:
            self.queue.waiters.remove(self)

    def give_up(self) -> None:
        """End the wait: the time is over, or the queue is gone."""
        self.cancel()
        self.client.end_wait()

    def serve(self) -> bool:
        """Give the client an item; returns whether there was one."""
        item = self.client.fetch(self.queue, self.wanted)
        if item is None:
            return False
        data, _ = item
        if self.is_monitor:
            self._most -= 1
            self.client.send_item(self.queue, self.wanted, data)
            self.queue.waiters.rotate(-1)
            if not self._most:
                self.give_up()
        else:
            self.cancel()
            self.client.end_wait(data)
        return True


def serve_waiters(queue: Served) -> None:
    """Give the items of a queue to waiting clients, except those that do not read their answers."""
    skipped = 0
    while skipped < len(queue.waiters):
        waiter = queue.waiters[0]
        if waiter.client.is_stuck:
            queue.waiters.rotate(-1)
            skipped += 1
            continue
        skipped = 0
        try:
            if not waiter.serve():
                return
        except LogwrightError as error:
            waiter.client.server.notice(error)  # they keep waiting, and are served when the queue is reopened
            return


# --- the reads of a client ------------------------------------------------------------------------------------------


class Reads:
    """The reads of one client."""

    answer: Callable[..., None]
    has_ended: bool

    def __init__(self, server: QueueServer) -> None:
        self.server = server
        self.connected = time.monotonic()
        self.opens: dict[bytes, deque[tuple[Served, int]]] = {}
        self._waiter: Waiter | None = None
        self._keys: deque[KeyRequest] = deque()
        """The remaining keys of the current `get`."""
        self._with_number = False
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        """The data so far: a `get` of many keys returns no more items than fit into the output buffer."""
        self._sources: list[Served] = []

    # --- implemented by Connection ----------------------------------------------------------------------------------

    def refuse(self, answer: bytes) -> None:
        raise NotImplementedError

    def hold(self, reason: int) -> None:
        raise NotImplementedError

    def continue_after_wait(self) -> None:
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
        """Get one item for each key. If one of the keys is not valid, nothing is done."""
        _, keys, with_number = request
        server = self.server
        if len(keys) == 1 and not self.opens and server.no_gets is None:
            key = keys[0]
            queue = server.queues.by_key.get(key)
            if queue is not None and not server.queues.is_changing(key) and not queue.can_move:
                server.counters.cmd_get += 1
                data = queue.engine.get()
                if data is None:
                    server.counters.get_misses += 1
                    self.answer(answers.END)
                    return
                server.counters.get_hits += 1
                number = b" %d" % server.next_number() if with_number else b""
                self.answer(b"VALUE %b 0 %d%b\r\n%b\r\nEND\r\n" % (key, len(data), number, data), queue.alone)
                return
        self._get_keys(keys, request)

    def _get_keys(self, keys: list[bytes], request: Request) -> None:
        parsed = [parse_key(key) for key in keys]
        counts: dict[bytes, int] = {}
        refusal = None
        for key, wanted in zip(keys, parsed, strict=True):
            if len(key) > self.server.limits.max_key_bytes:
                refusal = answers.BAD_LINE
            elif wanted is None:
                refusal = answers.BAD_OPTIONS
            elif name_of(wanted.name) is None:
                refusal = answers.BAD_NAME
            else:
                refusal = self._refusal(wanted, counts)
            if refusal is not None:
                self.refuse(refusal)
                return
        found = [wanted for wanted in parsed if wanted is not None]
        for wanted in found:
            if self._needs_queue(wanted):
                self.with_queue(wanted.name, request)
                return
        self._keys = deque(found)
        self._with_number = request[2]
        self._parts, self._parts_bytes, self._sources = [], 0, []
        self._grant()

    def _refusal(self, wanted: KeyRequest, counts: dict[bytes, int]) -> bytes | None:
        """The error for a key, or None. `counts` are the open reads of each queue after the preceding keys."""
        count = counts.get(wanted.name, len(self.opens.get(wanted.name, ())))
        if wanted.closes or wanted.aborts:
            count = max(0, count - 1)
        counts[wanted.name] = count + wanted.opens
        if self.server.no_gets is not None and (wanted.fetches or wanted.aborts):
            return self.server.no_gets
        if not wanted.fetches or wanted.peeks:
            return None
        if wanted.opens:
            return answers.ERROR if count >= self.server.limits.max_open_reads else None
        return answers.ERROR if count > 0 else None

    def _needs_queue(self, wanted: KeyRequest) -> bool:
        """Whether a queue has to be opened first. A `get` that does not wait creates no queue.

        A fan-out queue is always created: it receives items from then on.
        """
        queues = self.server.queues
        if wanted.name in queues.refused or queues.is_changing(wanted.name):
            return True
        if wanted.name in queues.by_key or not wanted.fetches:
            return False
        return b"+" in wanted.name or wanted.wait_ms > 0

    def _grant(self) -> None:
        """Carry out the remaining keys until one has to wait. If one fails, the preceding ones are answered."""
        while self._keys:
            try:
                if not self._grant_one(self._keys[0]):
                    return
            except LogwrightError as error:
                if not self._parts:
                    raise
                self.server.notice(error)
                break  # the items are removed or reserved: the client must get them
            self._keys.popleft()
        parts, self._parts = self._parts, []
        self.answer(b"".join([*parts, answers.END]), tuple(dict.fromkeys(self._sources)))

    def _grant_one(self, wanted: KeyRequest) -> bool:
        """Carry out a key; False if it has to wait."""
        queue = self.server.queues.by_key.get(wanted.name)
        if wanted.aborts:
            self._abort(wanted.name)
        elif wanted.closes:
            self._sources += self.confirm(wanted.name, 1) or ()
        if not wanted.fetches:
            return True
        self._count(wanted)
        has_space = self._parts_bytes < self.server.limits.output_buffer_bytes
        item = self.fetch(queue, wanted) if queue is not None and has_space else None
        if item is not None and queue is not None:
            self._add_item(queue, wanted, *item)
        elif wanted.wait_ms and queue is not None and has_space and not self.has_ended:
            seconds = min(wanted.wait_ms / 1000, self.server.limits.max_wait_seconds)
            self._waiter = Waiter(self, queue, wanted, seconds)
            self.hold(_WAITING)
            return False
        else:
            self.server.counters.get_misses += not wanted.peeks
        return True

    def _count(self, wanted: KeyRequest) -> None:
        counters = self.server.counters
        if wanted.peeks:
            counters.cmd_peek += 1
        else:
            counters.cmd_get += 1

    def fetch(self, queue: Served, wanted: KeyRequest) -> tuple[bytes, int] | None:
        """An item for a key, and its id if it is reserved; None if there is none."""
        found = self._fetch(queue, wanted)
        if queue.can_move:
            self.server.sweeper.move_from(queue)
        return found

    def _fetch(self, queue: Served, wanted: KeyRequest) -> tuple[bytes, int] | None:
        if wanted.peeks:
            item = queue.engine.peek()
            return None if item is None else (item.data, 0)
        if not wanted.opens:
            data = queue.engine.get()
            if data is None:
                return None
            self.server.counters.get_hits += 1
            return data, 0
        queue.transactions += 1
        item = queue.engine.reserve()
        if item is None:
            return None
        self.server.counters.get_hits += 1
        self.opens.setdefault(wanted.name, deque()).append((queue, item.xid))
        return item.data, item.xid

    def _add_item(self, queue: Served, wanted: KeyRequest, data: bytes, _: int) -> None:
        number = b" %d" % self.server.next_number() if self._with_number else b""
        key = wanted.name if self.server.answers_with_names else wanted.key
        self._parts.append(b"VALUE %b 0 %d%b\r\n%b\r\n" % (key, len(data), number, data))
        self._parts_bytes += len(data)
        self._sources.append(queue)

    def send_item(self, queue: Served, wanted: KeyRequest, data: bytes) -> None:
        """Send an item of a `monitor`."""
        self.answer(b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (wanted.name, len(data), data), queue.alone)

    def end_wait(self, data: bytes | None = None) -> None:
        """A wait is over, with or without an item."""
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            return
        if waiter.is_monitor:
            self.answer(answers.END)
        else:
            wanted = self._keys.popleft()
            if data is None:
                self.server.counters.get_misses += not wanted.peeks
            else:
                self._add_item(waiter.queue, wanted, data, 0)
            try:
                self._grant()
            except LogwrightError as error:
                self.refuse(answers.failure(error))
                self.server.notice(error)
        if self._waiter is None:
            self.continue_after_wait()

    # --- open reads -------------------------------------------------------------------------------------------------

    def confirm(self, name: bytes, count: int) -> tuple[Served, ...] | None:
        """Confirm the oldest reads of a queue; returns the changed queues, None if there are fewer reads.

        Reads of a queue that was deleted or reopened meanwhile are already over.
        """
        reads = self.opens.get(name, deque())
        if len(reads) < count:
            return None
        chosen = [reads.popleft() for _ in range(count)]
        if not reads:
            self.opens.pop(name, None)
        if any(queue.is_lost for queue, _ in chosen):
            raise Poisoned("the queue has failed meanwhile, and its reserved items are back at the head")
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
        """Send the items of a queue, each an open read, until `most` were sent or the time is over."""
        wanted = KeyRequest(queue.key, queue.key, opens=True)
        allowed = self.server.limits.max_monitored_items - len(self.opens.get(queue.key, ()))
        if allowed <= 0:
            self.answer(answers.END)
            return
        self._waiter = Waiter(self, queue, wanted, seconds, min(most, allowed))
        self.hold(_WAITING)
        serve_waiters(queue)
        if (self.has_ended or not seconds) and self._waiter is not None:
            self._waiter.give_up()

    def leave(self) -> None:
        """The client has disconnected: end its wait, and put its reserved items back."""
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        reads: dict[Served, list[int]] = {}
        for line in self.opens.values():
            for queue, xid in line:
                reads.setdefault(queue, []).append(xid)
        self.opens = {}
        self.put_back(reads.items())
