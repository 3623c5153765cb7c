"""Hub: the gRPC server that stores copies of journals.

    async with Hub("copies", parse_address("127.0.0.1:7878")) as hub:
        print(hub.address)
        await hub.wait()

The requests and answers are those of the original, but a call may have any number of them, answered in order, and a
client sends many before the first answer. `Put` is answered when its messages are on the disk. `Get` returns messages
from an offset on, as many as fit in an answer.

Time limits apply to the next request of a call, to a client that does not read its answers, and to a dead connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Self

import grpc
import grpc.aio

from ...core.options import NamedOptions
from ...errors import Closed, DamagedJournal, Locked, LogwrightError, NotFound, WrongUse, is_no_space
from ...sej.model.copying import SEGMENT_BYTES
from ..metrics import Metrics
from ..security import Address, Protection, check_limits, listening
from . import requests
from .copies import Copies
from .errors import Conflict, Mismatch, OutOfStep, Refused
from .limits import Busy, Call, Calls, Limits
from .requests import EXPECTED_KEY
from .retry import RateLimitedLog

logger = logging.getLogger("logwright.hub")

_LEAST_REQUEST_BYTES: Final = 1024
_MOST_REQUEST_BYTES: Final = 2**31 - 1
_METHODS: Final = ("Put", "Get", "List")
_Handle = Callable[[bytes], Awaitable["asyncio.Future[bytes]"]]


class Hub(NamedOptions):
    """A server of copies below a directory. `async with` starts it, and leaving the block stops it cleanly."""

    def __init__(
        self,
        directory: Path | str,
        address: Address,
        *,
        protection: Protection | None = None,
        limits: Limits | None = None,
        segment_size: int = SEGMENT_BYTES,
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self.protection = Protection() if protection is None else protection
        check_limits(self.limits)
        if self.limits.request_bytes > _MOST_REQUEST_BYTES:
            raise WrongUse(f"requests of {self.limits.request_bytes} bytes are too large: the limit is 2^31 - 1")
        if self.limits.request_bytes < _LEAST_REQUEST_BYTES:
            words = f"the minimum is {_LEAST_REQUEST_BYTES}, for names and a small message"
            raise WrongUse(f"requests of {self.limits.request_bytes} bytes are too small: {words}")
        if not 0 < segment_size < 2**62:
            raise WrongUse(f"a segment size of {segment_size} bytes is not possible")
        self.protection.check(address)
        self.address = address
        self.copies = Copies(directory, self.limits, segment_size=segment_size)
        self.metrics = Metrics("logwright_hub")
        self.calls = Calls(self.limits.calls, self.limits.idle_seconds)
        self._buffered_bytes = 0
        self._waiting_for_buffer: list[asyncio.Future[None]] = []
        self._limited_log = RateLimitedLog(logger)
        self._server: Any = None
        self._describe_metrics()

    def _describe_metrics(self) -> None:
        metrics, copies = self.metrics, self.copies
        self.requests = metrics.counter("requests_total", "Requests answered, by method.", "method")
        self.failures = metrics.counter("failures_total", "Calls that ended with an error, by its code.", "code")
        self.dropped = metrics.counter("dropped_total", "Calls ended because the client was too slow.")
        for name, about, read in (
            ("written_messages_total", "Messages written.", lambda: copies.written_messages),
            ("written_bytes_total", "Bytes of the messages written.", lambda: copies.written_bytes),
            ("repeated_messages_total", "Messages that the copy already had.", lambda: copies.repeated_messages),
        ):
            metrics.gauge(name, about, read, grows=True)
        metrics.gauge("open_journals", "Copies open for writing.", lambda: copies.open_count)
        metrics.gauge("calls", "Running calls.", lambda: len(self.calls))
        metrics.gauge("buffered_bytes", "Bytes of requests being handled.", lambda: self._buffered_bytes)

    # --- starting and stopping --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to listen; `address` has the port afterwards. Raises `Locked` if another hub has the directory."""
        limits = self.limits
        self.copies.lock()
        # `Calls` chooses which calls to end; these still run for a moment, so gRPC has to allow more.
        self._server = grpc.aio.server(maximum_concurrent_rpcs=2 * limits.calls, options=_options(limits))
        handlers = {name: grpc.stream_stream_rpc_method_handler(self._handler(name)) for name in _METHODS}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("hub.Hub", handlers),))
        with listening(self.address):
            try:
                port = self._listen()
            except RuntimeError as error:  # raised by gRPC, with a long message
                raise OSError(str(error)) from error
            if port == 0:
                raise OSError("the address is in use, or not an address of this machine")
        self.address = Address(self.address.host, port)
        await self._server.start()

    def _listen(self) -> int:
        protection = self.protection
        if protection.certificate is None:
            return int(self._server.add_insecure_port(str(self.address)))
        credentials = grpc.ssl_server_credentials(
            [(protection.key, protection.certificate)],
            root_certificates=protection.client_authority,
            require_client_auth=protection.client_authority is not None,
        )
        return int(self._server.add_secure_port(str(self.address), credentials))

    async def wait(self) -> None:
        """Return when the hub has been stopped."""
        await self._server.wait_for_termination()

    async def stop(self) -> None:
        """Answer pending requests, accept no more, and close everything."""
        self.calls.stop()
        try:
            if self._server is not None:
                await self._server.stop(self.limits.stop_seconds)
        finally:
            await self.copies.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.copies.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- calls ------------------------------------------------------------------------------------------------------

    def _handler(self, method: str) -> Callable[[Any, Any], Awaitable[None]]:
        handle: _Handle = {"Put": self._put, "Get": self._get, "List": self._list}[method]

        async def answer(_: Any, context: Any) -> None:
            call: Call | None = None
            try:
                self._admit(context)
                call = self.calls.enter(context.peer())
                await self._answer_all(method, handle, context, call)
            except LogwrightError as error:
                await self._refuse(context, error)
            except TimeoutError:
                self.dropped.add()
                await self._end(context, grpc.StatusCode.DEADLINE_EXCEEDED, "too slow: the hub has ended the call")
            except grpc.aio.BaseError:  # the client is gone
                raise
            except Exception as error:
                logger.error("a bug in the hub: %r", error)
                raise
            finally:
                if call is not None:
                    self.calls.leave(call)

        return answer

    async def _answer_all(self, method: str, handle: _Handle, context: Any, call: Call) -> None:
        """Read requests and answer them in order, several at a time."""
        # Answers to puts are small. Others are large, so they are not made far ahead.
        ahead = self.limits.requests_in_flight if method == "Put" else 1
        answers: asyncio.Queue[asyncio.Future[bytes] | None] = asyncio.Queue(ahead)
        reading = asyncio.ensure_future(self._read_all(handle, context, call, answers))
        try:
            while (answer := await answers.get()) is not None:
                data = await answer
                async with asyncio.timeout(self.limits.answer_seconds):
                    await context.write(data)
                self.calls.touch(call, -1)
                self.requests.add(1, method)
            await reading
        finally:
            reading.cancel()
            while not answers.empty():
                _forget(answers.get_nowait())

    def _admit(self, context: Any) -> None:
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                given = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
                kind, _, token = given.partition(b" ")
                if kind.lower() == b"bearer" and self.protection.admits(token.strip()):
                    return
        if not self.protection.admits(None):
            raise _NotAdmitted("this hub requires a valid token: give --token FILE")

    async def _read_all(
        self, handle: _Handle, context: Any, call: Call, answers: asyncio.Queue[asyncio.Future[bytes] | None]
    ) -> None:
        """Read requests until the client ends them, or until one fails: then the error is its answer."""
        try:
            while (data := await self._next_request(context, call)) is not None:
                self.calls.touch(call, 1)
                await answers.put(await self._begin(handle, data))
        except Exception as error:  # any error: the call must not wait for ever
            await answers.put(_failed(error))
        await answers.put(None)

    async def _begin(self, handle: _Handle, data: bytes) -> asyncio.Future[bytes]:
        """Start to handle a request; returns the future of its answer."""
        size = len(data)
        await self._reserve_buffer(size)
        try:
            answer = await handle(data)
        except LogwrightError as error:
            answer = _failed(error)
        except BaseException:
            self._release_buffer(size)
            raise
        answer.add_done_callback(lambda _: self._release_buffer(size))
        return answer

    async def _next_request(self, context: Any, call: Call) -> bytes | None:
        """The next request; None after the last. Raises `TimeoutError`."""
        reading = asyncio.ensure_future(context.read())
        try:
            waiting = {reading, call.leaving}
            await asyncio.wait(waiting, timeout=self.limits.silence_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                if call.leaving.done():
                    raise call.leaving.result()
                raise TimeoutError
            data = reading.result()
        finally:
            reading.cancel()
        return None if data is grpc.aio.EOF else bytes(data)

    # --- the memory of requests ---------------------------------------------------------------------------------------

    async def _reserve_buffer(self, size: int) -> None:
        """Wait until the buffer has space for one more request."""
        while self._buffered_bytes and self._buffered_bytes + size > self.limits.buffer_bytes:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting_for_buffer.append(turn)
            await turn
        self._buffered_bytes += size

    def _release_buffer(self, size: int) -> None:
        self._buffered_bytes -= size
        waiting, self._waiting_for_buffer = self._waiting_for_buffer, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    # --- methods ----------------------------------------------------------------------------------------------------

    async def _put(self, data: bytes) -> asyncio.Future[bytes]:
        put = await self.copies.in_thread(lambda: requests.read_put(data, 2 * self.limits.request_bytes))
        written = self.copies.put(put)

        async def answer() -> bytes:
            return requests.put_answer(await written)

        return asyncio.ensure_future(answer())

    async def _get(self, data: bytes) -> asyncio.Future[bytes]:
        get = requests.read_get(data)
        return asyncio.ensure_future(self.copies.in_reading_thread(lambda: self.copies.get(get)))

    async def _list(self, data: bytes) -> asyncio.Future[bytes]:
        client = requests.read_list(data)

        async def answer() -> bytes:
            return requests.list_answer(await self.copies.in_reading_thread(lambda: self.copies.journals_of(client)))

        return asyncio.ensure_future(answer())

    # --- errors -----------------------------------------------------------------------------------------------------

    async def _refuse(self, context: Any, error: LogwrightError) -> None:
        code = _code_of(error)
        words = self.copies.public_message(error)
        if is_no_space(error):
            words = f"the hub's disk is full ({_reason_of(error)})"
            self._limited_log.log(words, f"{error}: clients will retry", logging.ERROR)
        elif code in (grpc.StatusCode.ABORTED, grpc.StatusCode.DATA_LOSS) or isinstance(error, Locked):
            self._limited_log.log(words, str(error), logging.ERROR)
        expected = error.expected if isinstance(error, Mismatch) else None
        await self._end(context, code, words, () if expected is None else ((EXPECTED_KEY, str(expected)),))

    async def _end(self, context: Any, code: Any, words: str, more: tuple[tuple[str, str], ...] = ()) -> None:
        self.failures.add(1, code.name)
        with contextlib.suppress(asyncio.InvalidStateError):
            await context.abort(code, words, more)


class _NotAdmitted(LogwrightError):
    """The client has no valid token."""


_CODES: Final[list[tuple[type[LogwrightError], Any]]] = [
    (OutOfStep, grpc.StatusCode.OUT_OF_RANGE),
    (Conflict, grpc.StatusCode.ALREADY_EXISTS),
    (_NotAdmitted, grpc.StatusCode.UNAUTHENTICATED),
    (Refused, grpc.StatusCode.FAILED_PRECONDITION),
    (WrongUse, grpc.StatusCode.INVALID_ARGUMENT),
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (Busy, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Locked, grpc.StatusCode.UNAVAILABLE),
    (Closed, grpc.StatusCode.UNAVAILABLE),
    (DamagedJournal, grpc.StatusCode.DATA_LOSS),
]


def _code_of(error: LogwrightError) -> Any:
    """The gRPC code of an error. A full disk may pass; INTERNAL is left to gRPC itself."""
    if is_no_space(error):
        return grpc.StatusCode.UNAVAILABLE
    return next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.ABORTED)


def _reason_of(error: LogwrightError) -> str:
    """Why a file operation failed, without the file's name."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno is not None else str(error)


def _failed(error: BaseException) -> asyncio.Future[bytes]:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def _forget(answer: asyncio.Future[bytes] | None) -> None:
    """Ignore an answer; its request is carried out all the same."""
    if answer is not None:
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())


def _options(limits: Limits) -> list[tuple[str, int]]:
    """The limits that gRPC enforces."""
    keepalive_ms = int(limits.keepalive_seconds * 1000)
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", limits.header_bytes),
        ("grpc.absolute_max_metadata_size", limits.header_bytes),
        ("grpc.max_concurrent_streams", limits.calls_of_one_connection),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake_seconds * 1000)),
        ("grpc.max_connection_idle_ms", int(limits.unused_seconds * 1000)),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a small message must not expand to a large one
    ]
