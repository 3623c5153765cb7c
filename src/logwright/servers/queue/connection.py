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
from collections.abc import Callable
from typing import Final, cast

from ...errors import LogwrightError
from . import answers
from .kernel import ANSWERING, BLOCKED, CHANGING, CLOSING, ENDED, GENERAL, NO_TOKEN, PAUSED, UNREAD, WAITING, Line
from .parser import Parser, Request
from .queues import name_of
from .reads import Reads
from .service import Service

_TOKEN_BYTES: Final = 1024
"""The most bytes that a client may send before it has sent its token."""
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""Keep-alive settings: a client whose machine is gone is noticed in two minutes."""


class Connection(Line, asyncio.Protocol):
    """One client. Its `state` is explained in `lane.py`; `carry_out` carries out one of its requests."""

    def __init__(self, service: Service, carry_out: Callable[[Connection, Request], None]) -> None:
        Line.__init__(self, service.lane, service.limits.output_buffer_bytes)
        self.service = service
        self.reads = Reads(service, self)
        self._carry_out = carry_out
        self._parser = Parser(service.limits, service.arriving)
        self._backlog: deque[Request] = deque()
        self._held_bytes = 0
        self._connected = self._begun = self._stuck = time.monotonic()
        """When it connected, when its current request began, and when it stopped reading answers."""
        if service.protection.tokens:
            self.state = NO_TOKEN
            self._parser.max_item_bytes = _TOKEN_BYTES

    # --- events -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast(asyncio.Transport, transport)  # uvloop's transport does not subclass it
        limits = self.service.limits
        if not self.service.admit(self):
            transport.write(answers.MANY_CLIENTS)
            transport.close()
            self.state |= CLOSING
            return
        transport.set_write_buffer_limits(high=limits.output_buffer_bytes)
        _keep_alive(transport.get_extra_info("socket"))

    def receive(self, data: bytes) -> None:
        parser = self._parser
        was_within = parser.is_within
        requests = parser.feed(data)
        if parser.is_within and (requests or not was_within):
            self._begun = time.monotonic()  # the server's clock may be a second late, and would drop it too early
        self._backlog.extend(requests)
        if self.state & BLOCKED:
            self._hold(len(data))
        else:
            self._run()
        self._choose_path()

    def _choose_path(self) -> None:
        if self._parser.is_within or self.reads.opens:
            self.state |= GENERAL
        elif self.state:
            self.state &= ~GENERAL

    def eof_received(self) -> bool:
        """The client sends no more: pending requests are answered, but waits end."""
        self.state |= ENDED
        if self.transport is None or self.transport.get_extra_info("sslcontext") is not None:
            return False
        if self.reads.waiter is not None:
            self.reads.waiter.give_up()
        self._close_if_done()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.state |= CLOSING
        self._backlog.clear()
        self._parser.close()
        self.service.dismiss(self)
        self.reads.leave()

    def pause_writing(self) -> None:
        self._stuck = time.monotonic()
        self.state |= UNREAD

    def resume_writing(self) -> None:
        self._release(UNREAD)

    # --- requests, in order -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Carry out the backlog until a request has to wait."""
        backlog = self._backlog
        while backlog and not self.state & BLOCKED:
            request = backlog.popleft()
            try:
                self._carry_out(self, request)
            except LogwrightError as error:
                self.refuse(answers.failure(error))
                self.service.notice(error)
        self._close_if_done()

    def _hold(self, size: int) -> None:
        """Requests of this size wait. If there are too many, read no more."""
        self._held_bytes += size
        if self._held_bytes > self.service.limits.input_buffer_bytes:
            self._pause()

    def _pause(self) -> None:
        if not self.state & PAUSED and self.transport is not None and not self.transport.is_closing():
            self.state |= PAUSED
            self.transport.pause_reading()

    def begin_wait(self) -> None:
        """Block the later requests until `continue_after_wait`."""
        self.state |= WAITING

    def continue_after_wait(self) -> None:
        """A wait is over. Continue in the next turn of the loop, because requests may serve other clients."""
        if self._backlog:
            asyncio.get_running_loop().call_soon(self._release, WAITING)
        else:
            self._release(WAITING)

    def _release(self, reason: int) -> None:
        """A reason that blocked this client is over: continue unless there are others."""
        self.state &= ~reason
        if reason & (ANSWERING | UNREAD) and self.reads.waiter is not None:
            self.reads.waiter.queue.serve_waiters()
        if self.state & BLOCKED:
            return
        self._run()
        self._choose_path()
        if self.state & BLOCKED:
            return
        self._held_bytes = 0
        if (
            self.state & PAUSED
            and not self.has_ended
            and self.transport is not None
            and not self.transport.is_closing()
        ):
            self.state &= ~PAUSED
            self.transport.resume_reading()

    # --- queues that are not ready ----------------------------------------------------------------------------------

    def with_queue(self, key: bytes, request: Request, *, quiet: bool = False) -> None:
        """Open a queue, or wait until it is settled, and repeat the request. The name is valid."""
        queues = self.service.queues
        if key in queues.refused:
            self.refuse(b"" if quiet else answers.failure(queues.refused[key]))
            return
        if queues.is_changing(key):
            queues.when_settled(key, self.repeating(request))
            return
        if not queues.can_create:
            self.refuse(b"" if quiet else answers.MANY_QUEUES)
            return
        name = name_of(key)
        assert name is not None
        self._wait_to_repeat(request)
        queues.create(key, name, lambda error: self._created(error, quiet))

    def repeating(self, request: Request) -> Callable[[], None]:
        """Block this client, and return a function that repeats the request."""
        self._wait_to_repeat(request)
        return self.settle

    def _wait_to_repeat(self, request: Request) -> None:
        self._backlog.appendleft(request)
        self.unsettle()

    def unsettle(self) -> None:
        """Block this client while the files of a queue are changed."""
        self.state |= CHANGING

    def settle(self) -> None:
        """The files of the queue have been changed."""
        self._release(CHANGING)

    def _created(self, error: BaseException | None, quiet: bool) -> None:
        if error is not None and self._backlog:
            self._backlog.popleft()
            self.refuse(b"" if quiet else answers.failure(error))
        self.settle()

    # --- answers ----------------------------------------------------------------------------------------------------

    def accept_token(self) -> None:
        """The client has sent a valid token."""
        self.state &= ~NO_TOKEN
        self._parser.max_item_bytes = self.service.limits.max_item_bytes

    def many_unsent(self) -> None:
        self.state |= ANSWERING

    def refuse(self, answer: bytes) -> None:
        """Send an error, unless the client wants no answer."""
        self.service.counters.refused += 1
        if answer:
            self.answer(answer)

    def after_send(self) -> None:
        if self.state & ANSWERING:
            self._release(ANSWERING)
        else:
            self._close_if_done()

    def hang_up(self) -> None:
        """Close the connection after the answers are sent."""
        self.state |= CLOSING
        self._backlog.clear()
        self._close_if_done()

    def _close_if_done(self) -> None:
        """Close the connection of a client that sends no more, once it has its answers."""
        is_done = self.state & CLOSING or (self.state & ENDED and not self.state & BLOCKED)
        if is_done and not self.answers and self.transport is not None and not self.service.commits.is_answering(self):
            self.transport.close()

    # --- slow clients -----------------------------------------------------------------------------------------------

    def why_overdue(self, now: float) -> str | None:
        """Why this client must be dropped; None if it need not be."""
        limits = self.service.limits
        if self.state & UNREAD and now - self._stuck > limits.answer_seconds:
            return "does not read its answers"
        if self.state & (WAITING | CHANGING):
            return None
        if self.state & NO_TOKEN and now - self._connected > limits.handshake_seconds:
            return "does not send its token"
        if self._parser.is_within and now - self._begun > limits.command_seconds:
            return "does not finish its request"
        return "is idle" if now - self.heard_at > limits.idle_seconds else None

    @property
    def has_ended(self) -> bool:
        """Whether the client sends no more."""
        return bool(self.state & ENDED)

    @property
    def is_stuck(self) -> bool:
        """Whether the client does not read its answers."""
        return bool(self.state & (ANSWERING | UNREAD))

    def finish(self) -> None:
        """The server stops: answer pending requests, end waits, and close."""
        self.state |= ENDED
        if self.reads.waiter is not None:
            self.reads.waiter.give_up()
        self._pause()
        self._close_if_done()

    def drop(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()


def _keep_alive(found: socket.socket | None) -> None:
    """Let the system probe silent clients."""
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
