"""How a client gets items: at once or by waiting, removed or only reserved.

A client has a list of open reads for each queue, the oldest first: these items are reserved for it. `/close` and
`/abort` end the oldest read, `confirm` a number of them.

Waiting clients do not poll: an item goes at once to the client that has waited longest, so no later client overtakes
it. A `monitor` goes to the end of the line with each item that it gets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ...errors import LogwrightError, Poisoned
from . import answers
from .parser import Request
from .queues import Phase, Served, name_of
from .service import Service

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
    delay: float | None = None
    """How long an item that is aborted waits, in seconds."""

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
    delay: float | None = None
    flags: dict[str, bool] = {}
    for option in options:
        if option[:2] == b"t=":
            digits = option[2:]
            if not digits.isdigit() or len(digits) > _MOST_WAIT_DIGITS:
                return None
            wait_ms = int(digits)
        elif option[:6] == b"delay=":
            delay = parse_delay(option[6:])
            if delay is None:
                return None
        elif option in _FLAGS:
            flags[_FLAGS[option]] = True
        else:
            return None
    wanted = KeyRequest(key, name, wait_ms, **flags, delay=delay)
    if delay is not None and not wanted.aborts:
        return None
    if ((wanted.peeks or wanted.aborts) and (wanted.opens or wanted.closes)) or (wanted.peeks and wanted.aborts):
        return None
    return wanted


class PutOptions(NamedTuple):
    """What a key of a `set` asks for: `name/delay=seconds/id=id`."""

    name: bytes
    delay: float | None = None
    id: bytes | None = None


def parse_put_key(key: bytes) -> PutOptions | None:
    """Parse a key of a `set`; None for unknown options."""
    name, *options = key.split(b"/")
    delay: float | None = None
    id: bytes | None = None
    for option in options:
        if option[:6] == b"delay=":
            delay = parse_delay(option[6:])
            if delay is None:
                return None
        elif option[:3] == b"id=" and len(option) > 3:
            id = option[3:]
        else:
            return None
    return PutOptions(name, delay, id)


def parse_delay(word: bytes) -> float | None:
    """Seconds, such as 30 or 0.5; None if it is something else."""
    whole, _, part = word.partition(b".")
    is_number = (whole + part).isdigit() and whole != b"" and len(word) <= _MOST_WAIT_DIGITS
    return float(word) if is_number else None


# --- waiting --------------------------------------------------------------------------------------------------------


class Client(Protocol):
    """The connection of the reads."""

    @property
    def has_ended(self) -> bool:
        """Whether the client sends no more: then it does not wait."""

    @property
    def is_stuck(self) -> bool:
        """Whether the client does not read its answers."""

    def answer(self, answer: bytes, queues: tuple[Served, ...] = ()) -> None:
        """Send an answer with the next commit, or an error if one of the queues fails."""

    def refuse(self, answer: bytes) -> None:
        """Send an error, unless the client wants no answer."""

    def begin_wait(self) -> None:
        """Block the later requests of the client."""

    def continue_after_wait(self) -> None:
        """A wait is over: continue with the later requests."""

    def with_queue(self, key: bytes, request: Request, *, quiet: bool = False) -> None:
        """Open a queue, or wait until it is settled, and repeat the request."""


class Waiter:
    """A client that waits for an item of a queue, or as a monitor for several."""

    __slots__ = ("_most", "_reads", "_timer", "_wanted", "is_monitor", "queue")

    def __init__(self, reads: Reads, queue: Served, wanted: KeyRequest, seconds: float, most: int = 0) -> None:
        self.queue = queue
        self.is_monitor = most > 0
        self._reads, self._wanted = reads, wanted
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
        self._reads.end_wait()

    @property
    def is_stuck(self) -> bool:
        """Whether the client does not read its answers."""
        return self._reads.client.is_stuck

    def serve(self) -> bool:
        """Give the client an item; returns whether there was one."""
        try:
            data = self._reads.fetch(self.queue, self._wanted)
            if data is not None:
                self._give(data)
            return data is not None
        except LogwrightError as error:
            self._reads.service.notice(error)  # it keeps waiting, and is served when the queue is reopened
            return False

    def _give(self, data: bytes) -> None:
        if not self.is_monitor:
            self.cancel()
            self._reads.end_wait(data)
            return
        self._most -= 1
        self._reads.send_item(self.queue, self._wanted, data)
        self.queue.waiters.rotate(-1)
        if not self._most:
            self.give_up()


# --- the reads of a client ------------------------------------------------------------------------------------------


class Reads:
    """The reads of one client."""

    def __init__(self, service: Service, client: Client) -> None:
        self.service, self.client = service, client
        self.waiter: Waiter | None = None
        self.opens: dict[bytes, deque[tuple[Served, int]]] = {}
        self._keys: deque[KeyRequest] = deque()
        """The remaining keys of the current `get`."""
        self._with_number = False
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        """The data so far: a `get` of many keys returns no more items than fit into the output buffer."""
        self._sources: list[Served] = []

    # --- get --------------------------------------------------------------------------------------------------------

    def get(self, request: Request) -> None:
        """Get one item for each key. If one of the keys is not valid, nothing is done."""
        _, keys, with_number = request
        service = self.service
        if len(keys) == 1 and not self.opens and service.no_gets is None:
            key = keys[0]
            queue = service.queues.by_key.get(key)
            if queue is not None and not service.queues.is_changing(key) and not queue.can_move:
                service.counters.cmd_get += 1
                data = queue.engine.shelf.get()
                if data is None:
                    service.counters.get_misses += 1
                    self.client.answer(answers.END)
                    return
                service.counters.get_hits += 1
                number = b" %d" % service.next_number() if with_number else b""
                self.client.answer(b"VALUE %b 0 %d%b\r\n%b\r\nEND\r\n" % (key, len(data), number, data), queue.alone)
                return
        self._get_keys(keys, request)

    def _get_keys(self, keys: list[bytes], request: Request) -> None:
        parsed = [parse_key(key) for key in keys]
        counts: dict[bytes, int] = {}
        refusal = None
        for key, wanted in zip(keys, parsed, strict=True):
            if len(key) > self.service.limits.max_key_bytes:
                refusal = answers.BAD_LINE
            elif wanted is None:
                refusal = answers.BAD_OPTIONS
            elif name_of(wanted.name) is None:
                refusal = answers.BAD_NAME
            else:
                refusal = self._refusal(wanted, counts)
            if refusal is not None:
                self.client.refuse(refusal)
                return
        found = [wanted for wanted in parsed if wanted is not None]
        for wanted in found:
            if self._needs_queue(wanted):
                self.client.with_queue(wanted.name, request)
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
        if self.service.no_gets is not None and (wanted.fetches or wanted.aborts):
            return self.service.no_gets
        if not wanted.fetches or wanted.peeks:
            return None
        if wanted.opens:
            return answers.ERROR if count >= self.service.limits.max_open_reads else None
        return answers.ERROR if count > 0 else None

    def _needs_queue(self, wanted: KeyRequest) -> bool:
        """Whether a queue has to be opened first. A `get` that does not wait creates no queue.

        A fan-out queue is always created: it receives items from then on.
        """
        queues = self.service.queues
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
                self.service.notice(error)
                break  # the items are removed or reserved: the client must get them
            self._keys.popleft()
        parts, self._parts = self._parts, []
        self.client.answer(b"".join([*parts, answers.END]), tuple(dict.fromkeys(self._sources)))

    def _grant_one(self, wanted: KeyRequest) -> bool:
        """Carry out a key; False if it has to wait."""
        queue = self.service.queues.by_key.get(wanted.name)
        if wanted.aborts:
            self._abort(wanted.name, wanted.delay)
        elif wanted.closes:
            self._sources += self.confirm(wanted.name, 1) or ()
        if not wanted.fetches:
            return True
        self._count(wanted)
        has_space = self._parts_bytes < self.service.limits.output_buffer_bytes
        data = self.fetch(queue, wanted) if queue is not None and has_space else None
        if data is not None and queue is not None:
            self._add_item(queue, wanted, data)
        elif wanted.wait_ms and queue is not None and has_space and not self.client.has_ended:
            seconds = min(wanted.wait_ms / 1000, self.service.limits.max_wait_seconds)
            self.waiter = Waiter(self, queue, wanted, seconds)
            self.client.begin_wait()
            return False
        else:
            self.service.counters.get_misses += not wanted.peeks
        return True

    def _count(self, wanted: KeyRequest) -> None:
        counters = self.service.counters
        if wanted.peeks:
            counters.cmd_peek += 1
        else:
            counters.cmd_get += 1

    def fetch(self, queue: Served, wanted: KeyRequest) -> bytes | None:
        """An item for a key; None if there is none."""
        found = self._fetch(queue, wanted)
        if queue.can_move:
            self.service.sweeper.move_from(queue)
        return found

    def _fetch(self, queue: Served, wanted: KeyRequest) -> bytes | None:
        if wanted.peeks:
            item = queue.engine.peek()
            return None if item is None else item.data
        if wanted.opens:
            queue.transactions += 1
            item = queue.engine.reserve()
            if item is None:
                return None
            self.opens.setdefault(wanted.name, deque()).append((queue, item.xid))
            data: bytes | None = item.data
        else:
            data = queue.engine.shelf.get()
        self.service.counters.get_hits += data is not None
        return data

    def _add_item(self, queue: Served, wanted: KeyRequest, data: bytes) -> None:
        number = b" %d" % self.service.next_number() if self._with_number else b""
        key = wanted.name if self.service.settings.kestrel_names else wanted.key
        self._parts.append(b"VALUE %b 0 %d%b\r\n%b\r\n" % (key, len(data), number, data))
        self._parts_bytes += len(data)
        self._sources.append(queue)

    def send_item(self, queue: Served, wanted: KeyRequest, data: bytes) -> None:
        """Send an item of a `monitor`."""
        self.client.answer(b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (wanted.name, len(data), data), queue.alone)

    def end_wait(self, data: bytes | None = None) -> None:
        """A wait is over, with or without an item."""
        waiter, self.waiter = self.waiter, None
        if waiter is None:
            return
        if waiter.is_monitor:
            self.client.answer(answers.END)
        else:
            wanted = self._keys.popleft()
            if data is None:
                self.service.counters.get_misses += not wanted.peeks
            else:
                self._add_item(waiter.queue, wanted, data)
            try:
                self._grant()
            except LogwrightError as error:
                self.client.refuse(answers.failure(error))
                self.service.notice(error)
        if self.waiter is None:
            self.client.continue_after_wait()

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
        if any(queue.phase is Phase.FAILED for queue, _ in chosen):
            raise Poisoned("the queue has failed, and its reserved items were put back at the head")
        changed = []
        for queue in dict.fromkeys(queue for queue, _ in chosen if not queue.is_gone):
            xids = [xid for other, xid in chosen if other is queue and queue.engine.is_open(xid)]
            if xids:
                queue.engine.confirm(xids)
                changed.append(queue)
        return tuple(changed)

    def _abort(self, name: bytes, delay: float | None) -> None:
        reads = self.opens.get(name)
        if not reads:
            return
        queue, xid = reads.popleft()
        if not reads:
            del self.opens[name]
        if not queue.is_gone:
            self._sources.append(queue)
            self._put_back([(queue, [xid])], delay)

    def monitor(self, queue: Served, seconds: float, most: int) -> None:
        """Send the items of a queue, each an open read, until `most` were sent or the time is over."""
        wanted = KeyRequest(queue.key, queue.key, opens=True)
        allowed = self.service.limits.max_monitored_items - len(self.opens.get(queue.key, ()))
        if allowed <= 0:
            self.client.answer(answers.END)
            return
        self.waiter = Waiter(self, queue, wanted, seconds, min(most, allowed))
        self.client.begin_wait()
        queue.serve_waiters()
        if (self.client.has_ended or not seconds) and self.waiter is not None:
            self.waiter.give_up()

    def leave(self) -> None:
        """The client has disconnected: end its wait, and put its reserved items back."""
        if self.waiter is not None:
            self.waiter.cancel()
            self.waiter = None
        reads: dict[Served, list[int]] = {}
        for line in self.opens.values():
            for queue, xid in line:
                reads.setdefault(queue, []).append(xid)
        self.opens = {}
        self._put_back(reads.items())

    def _put_back(self, reads: Iterable[tuple[Served, list[int]]], delay: float | None = None) -> None:
        """Put reserved items back at the heads of their queues, at once or after a delay."""
        for queue, xids in reads:
            if queue.is_gone:
                continue
            try:
                xids = [xid for xid in xids if queue.engine.is_open(xid)]
                queue.engine.abort(xids, delay)
            except LogwrightError as error:
                self.service.notice(error)
                continue
            queue.canceled += len(xids)
            self.service.sweeper.watch(queue)
            if queue.can_move:
                self.service.sweeper.move_from(queue)
            self.service.lane.change(queue)
            queue.serve_waiters()
