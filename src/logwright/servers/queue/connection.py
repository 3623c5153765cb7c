"""A client of the queue server.

Requests are carried out in order, and their answers are sent in that order, after a commit: see `commits.py`. A request
that must wait blocks the later requests of the same client: they stay in `_backlog`. No more is read from a client than
may be buffered for it.

When the client disconnects, its reserved items go back to the heads of their queues.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, cast

from ...errors import LogwrightError
from . import answers
from .commands import do_other
from .kernel import Line
from .parser import GET, HANG_UP, OTHER, SET, Parser, Request
from .queues import Served, name_of
from .reads import Reads, serve_waiters

if TYPE_CHECKING:
    from .server import QueueServer

WAITING: Final = 1
"""For an item."""
CHANGING: Final = 2
"""For the files of a queue."""
ANSWERING: Final = 4
"""Many answers have not been sent."""
NOT_TAKEN: Final = 8
"""The client does not read its answers."""
ENDED: Final = 16

_TOKEN_BYTES: Final = 1024
"""The most bytes that a client may send before it has sent its token."""
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""Keep-alive settings: a client whose machine is gone is noticed in two minutes."""


class Connection(Reads, Line, asyncio.Protocol):
    """One client."""

    def __init__(self, server: QueueServer) -> None:
        Line.__init__(self, server.lane, server.limits.output_buffer_bytes)
        Reads.__init__(self, server)
        self._parser = Parser(server.limits, server.arriving)
        self._backlog: deque[Request] = deque()
        self._held_bytes = 0
        self._is_reading = True
        self.needs_token = bool(server.protection.tokens)
        if self.needs_token:
            self._parser.max_item_bytes = _TOKEN_BYTES
        self._begun = self._stuck = time.monotonic()
        """When its current request began, and when it stopped reading answers."""
        self.decide()

    # --- events -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast(asyncio.Transport, transport)  # uvloop's transport does not subclass it
        limits = self.server.limits
        if not self.server.admit(self):
            transport.write(answers.MANY_CLIENTS)
            transport.close()
            self.holds = ENDED
            return
        transport.set_write_buffer_limits(high=limits.output_buffer_bytes)
        _keep_alive(transport.get_extra_info("socket"))

    def receive(self, data: bytes) -> None:
        """Carry out the requests in these bytes, on the general path."""
        parser = self._parser
        was_within = parser.is_within
        requests = parser.feed(data)
        if parser.is_within and (requests or not was_within):
            self._begun = time.monotonic()  # the server's clock may be a second late, and would drop it too early
        self._backlog.extend(requests)
        if self.holds:
            self._hold(len(data))
        else:
            self._run()
        self.decide()

    def decide(self) -> None:
        """Decide whether requests may take the lane: see `lane.py`."""
        self.is_plain = not (self._parser.is_within or self.opens or self.needs_token or self._backlog)

    def eof_received(self) -> bool:
        """The client sends no more: pending requests are answered, but waits end."""
        self.has_ended = True
        if self.transport is None or self.transport.get_extra_info("sslcontext") is not None:
            return False
        if self._waiter is not None:
            self._waiter.give_up()
        self._close_if_done()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.holds |= ENDED
        self._backlog.clear()
        self._parser.close()
        self.server.dismiss(self)
        self.leave()

    def pause_writing(self) -> None:
        self._stuck = time.monotonic()
        self.hold(NOT_TAKEN)

    def resume_writing(self) -> None:
        self.release(NOT_TAKEN)

    # --- requests, one after the other ------------------------------------------------------------------------------

    def _run(self) -> None:
        """Carry out the backlog until a request has to wait."""
        backlog, server = self._backlog, self.server
        while backlog and not self.holds:
            request = backlog.popleft()
            try:
                self._do(request)
            except LogwrightError as error:
                self.refuse(answers.failure(error))
                server.notice(error)
        self._close_if_done()

    def _do(self, request: Request) -> None:
        kind = request[0]
        if self.needs_token:
            self._authenticate(request)
        elif kind == SET:
            self._set(request)
        elif kind == GET:
            self.get(request)
        elif kind == OTHER:
            do_other(self, request)
        else:
            self.refuse(request[1])
            if kind == HANG_UP:
                self.hang_up()

    def repeat(self, request: Request) -> None:
        """Repeat a request, before those that wait after it."""
        self._backlog.appendleft(request)

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        if self._held_bytes > self.server.limits.input_buffer_bytes and self._is_reading and self.transport is not None:
            self._is_reading = False
            self.transport.pause_reading()

    def hold(self, reason: int) -> None:
        """Block this client until the reason is released."""
        self.holds |= reason

    def continue_after_wait(self) -> None:
        """A wait is over. Continue in the next turn of the loop, because requests may serve other clients."""
        if self._backlog:
            asyncio.get_running_loop().call_soon(self.release, WAITING)
        else:
            self.release(WAITING)

    def release(self, reason: int) -> None:
        """Release a reason, and continue unless there are others."""
        self.holds &= ~reason
        if reason & (ANSWERING | NOT_TAKEN) and self._waiter is not None:
            serve_waiters(self._waiter.queue)
        if self.holds:
            return
        self._run()
        self.decide()
        if not self.holds:
            self._held_bytes = 0
            can_read = self.transport is not None and not self.transport.is_closing() and not self.has_ended
            if can_read and not self._is_reading and self.transport is not None:
                self._is_reading = True
                self.transport.resume_reading()

    def _set(self, request: Request) -> None:
        _, key, expiry, data, quiet = request
        server = self.server
        queue = server.queues.by_key.get(key)
        if server.no_puts is not None:
            self.refuse(b"" if quiet else server.no_puts)
            return
        if queue is None or queue.is_changing or key in server.suspended:
            self._set_elsewhere(request)
            return
        if queue.handle.has_children and (child := server.queues.changing_child(key)) is not None:
            server.queues.when_settled(child, self.repeating(request))
            return
        server.counters.cmd_set += 1
        try:
            changed = server.put(queue, data, expiry)
        except LogwrightError as error:
            answer = answers.failure(error)
            self.refuse(b"" if quiet else answer)
            server.notice(error)
            return
        if not quiet:
            self.answer(answers.STORED, changed)

    def _set_elsewhere(self, request: Request) -> None:
        """Handle a `set` for a queue that is not open, or accepts nothing at present."""
        _, key, _, _, quiet = request
        refusal = self.server.suspended.get(key)
        if refusal is None:
            name = name_of(key)
            if name is None or len(key) > self.server.limits.max_key_bytes:
                refusal = answers.BAD_NAME
        if refusal is not None:
            self.refuse(b"" if quiet else refusal)
        else:
            self.with_queue(key, request, quiet=quiet)

    def with_queue(self, key: bytes, request: Request, *, quiet: bool = False) -> None:
        """Open a queue, or wait until it is settled, and repeat the request. The name is valid."""
        queues = self.server.queues
        if key in queues.refused:
            self.refuse(b"" if quiet else answers.failure(queues.refused[key]))
            return
        if queues.is_changing(key):
            queues.when_settled(key, self.repeating(request))
            return
        if not queues.can_create:
            self.refuse(b"" if quiet else answers.MANY_QUEUES)
            return
        self.hold(CHANGING)
        self.repeat(request)
        name = name_of(key)
        assert name is not None
        queues.create(key, name, lambda error: self._created(error, quiet))

    def repeating(self, request: Request) -> Callable[[], None]:
        """Block this client, and return a function that repeats the request."""
        self.hold(CHANGING)
        self.repeat(request)
        return lambda: self.release(CHANGING)

    def unsettle(self) -> None:
        """Block this client while the files of a queue are changed."""
        self.hold(CHANGING)

    def settle(self) -> None:
        """The files of the queue have been changed."""
        self.release(CHANGING)

    def _created(self, error: BaseException | None, quiet: bool) -> None:
        if error is not None and self._backlog:
            self._backlog.popleft()
            self.refuse(b"" if quiet else answers.failure(error))
        self.release(CHANGING)

    # --- tokens -----------------------------------------------------------------------------------------------------

    def _authenticate(self, request: Request) -> None:
        """Check the token of a client: the data of a `set`, alone or after a name and a space."""
        if request[0] == SET:
            if self.server.protection.admits(request[3].rpartition(b" ")[2]):
                self.needs_token = False
                self._parser.max_item_bytes = self.server.limits.max_item_bytes
                self.answer(answers.STORED)
            else:
                self.server.counters.refused_tokens += 1
                self.answer(answers.BAD_TOKEN)
                self.hang_up()
        elif request[0] == OTHER and request[1][0].lower() == b"quit":
            self.hang_up()
        else:
            self.answer(request[1] if request[0] == HANG_UP else answers.UNAUTHENTICATED)
            if request[0] == HANG_UP:
                self.hang_up()

    # --- answers ----------------------------------------------------------------------------------------------------

    def many_unsent(self) -> None:
        self.hold(ANSWERING)

    def refuse(self, answer: bytes) -> None:
        """Send an error, unless the client wants no answer."""
        self.server.counters.refused += 1
        if answer:
            self.answer(answer)

    def after_send(self) -> None:
        if self.holds & ANSWERING:
            self.release(ANSWERING)
        else:
            self._close_if_done()

    def hang_up(self) -> None:
        """Close the connection after the answers are sent."""
        self.holds |= ENDED
        self._backlog.clear()
        self._close_if_done()

    def _close_if_done(self) -> None:
        """Close the connection of a client that sends no more, once it has its answers."""
        if not (self.has_ended or self.holds & ENDED) or self.answers or self.transport is None:
            return
        if (self.holds & ENDED or not self.holds) and not self.server.commits.is_answering(self):
            self.transport.close()

    # --- slow clients -----------------------------------------------------------------------------------------------

    def why_overdue(self, now: float) -> str | None:
        """Why this client must be dropped; None if it need not be."""
        limits = self.server.limits
        if self.holds & NOT_TAKEN and now - self._stuck > limits.answer_seconds:
            return "does not read its answers"
        if self.holds & (WAITING | CHANGING):
            return None
        if self.needs_token and now - self.connected > limits.handshake_seconds:
            return "does not send its token"
        if self._parser.is_within and now - self._begun > limits.command_seconds:
            return "does not finish its request"
        return "is idle" if now - self.heard > limits.idle_seconds else None

    @property
    def is_stuck(self) -> bool:
        """Whether the client does not read its answers."""
        return bool(self.holds & (ANSWERING | NOT_TAKEN))

    def finish(self) -> None:
        """The server stops: answer pending requests, end waits, and close."""
        self.has_ended = True
        if self._waiter is not None:
            self._waiter.give_up()
        if self._is_reading and self.transport is not None and not self.transport.is_closing():
            self._is_reading = False
            self.transport.pause_reading()
        self._close_if_done()

    def drop(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def put_back(self, reads: Iterable[tuple[Served, list[int]]]) -> None:
        """Put reserved items back at the heads of their queues."""
        for queue, xids in reads:
            if queue.is_gone:
                continue
            try:
                xids = [xid for xid in xids if queue.engine.is_open(xid)]
                queue.engine.abort(xids)
            except LogwrightError as error:
                self.server.notice(error)
                continue
            queue.canceled += len(xids)
            if queue.can_move:
                self.server.sweeper.move_from(queue)
            self.lane.change(queue)
            serve_waiters(queue)


def _keep_alive(found: socket.socket | None) -> None:
    """Let the system probe silent clients."""
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
