"""HubClient: ask a hub for offsets, messages and journals, and send a stream of puts.

    async with HubClient(Access.load("127.0.0.1:7878"), client="web1") as hub:
        await hub.next_offset("orders")         # where the copy continues
        await hub.get("orders", 0)              # messages of the copy
        await hub.journals()                    # the copied journals of this client

The errors are those of `errors.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final, Self, TypeVar

import grpc
import grpc.aio

from ...core.options import NamedOptions
from ...errors import LogwrightError
from ...sej.model.copying import Batch
from . import requests
from .client_access import Access, translated, why_unreachable
from .errors import HubError, NotConnected, Unreachable
from .requests import check_client, check_journal

Result = TypeVar("Result")

ANSWER_SECONDS: Final = 60.0
"""The time limit of an answer: far longer than a sync takes."""
_PROBE_SECONDS: Final = 1.0
"""The least time between two probes of a hub that does not answer: many journals ask at once."""
_CONNECTING_SECONDS: Final = 5.0
MOST_FRAMES_BYTES: Final = 2**32


class HubClient(NamedOptions):
    """A client of a hub. Its copies are stored under the name `client`."""

    def __init__(self, access: Access, client: str, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        check_client(client)
        self.access = access
        self.client = client
        self._answer_seconds = answer_seconds
        self._channel: Any = None
        self._probing = asyncio.Lock()
        self._probed_at = -math.inf
        self._why: HubError | None = None

    async def __aenter__(self) -> Self:
        self._channel = self.access.channel()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    # --- questions --------------------------------------------------------------------------------------------------

    async def next_offset(self, journal: str) -> int | None:
        """The offset that the copy of a journal continues with; None from another program's hub, which does not say."""
        return await self.put(requests.put_head(self.client, journal, None, False))

    async def put(self, request: bytes) -> int | None:
        """Send a single PutRequest; returns the offset that the copy continues with, once all is on the hub's disk."""
        return requests.read_put_answer(await self._ask(requests.PUT, request))

    async def get(self, journal: str, offset: int) -> Batch:
        """Messages of the copy from an offset on, all of one segment; empty after the last. Raises `NotFound`."""
        check_journal(journal)
        answer = await self._ask(requests.GET, requests.get_request(self.client, journal, offset))
        return requests.read_get_answer(answer, offset, MOST_FRAMES_BYTES)

    async def journals(self) -> list[str]:
        """The journals of this client that the hub has copies of."""
        return requests.read_list_answer(await self._ask(requests.LIST, requests.list_request(self.client)))

    async def _ask(self, method: str, request: bytes) -> bytes:
        call = self._channel.unary_unary(method)(
            request, metadata=self.access.metadata(), timeout=self._answer_seconds, wait_for_ready=False
        )
        try:
            answer: bytes = await call
        except grpc.aio.AioRpcError as error:
            address = self.access.address
            raise translated(address, error.code(), error.details(), error.trailing_metadata()) from None
        return answer

    async def explain(self, error: HubError) -> HubError | None:
        """The error with its cause, found by a probe: gRPC says little when it cannot connect.

        None if the connection works again: gRPC reconnects only every other second.
        """
        async with self._probing:
            if time.monotonic() - self._probed_at > _PROBE_SECONDS:
                self._why = await asyncio.to_thread(why_unreachable, self.access)
                self._probed_at = time.monotonic()
            why = self._why
        if why is None and isinstance(error, NotConnected):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CONNECTING_SECONDS):
                    await self._channel.channel_ready()
                return None
        return error if why is None else why

    # --- many puts --------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def putting(self) -> AsyncIterator[PutStream]:
        """Open a stream of puts until the end of the block."""
        call = self._channel.stream_stream(requests.PUT)(metadata=self.access.metadata())
        try:
            yield PutStream(self, call, self._answer_seconds)
        finally:
            call.cancel()


class PutStream:
    """The puts of one call, answered in order."""

    def __init__(self, client: HubClient, call: Any, answer_seconds: float) -> None:
        self._client = client
        self._call = call
        self._answer_seconds = answer_seconds

    async def send(self, request: bytes) -> None:
        """Send a PutRequest; returns without waiting for the answer."""
        await self._translating(self._call.write(request))

    async def done(self) -> None:
        """End the requests."""
        await self._translating(self._call.done_writing())

    async def answer(self) -> int | None:
        """The next answer, as that of `HubClient.put`."""
        data = await self._translating(self._call.read())
        if data is grpc.aio.EOF:
            raise await self._why_ended()
        return requests.read_put_answer(data)

    async def _translating(self, step: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await step
        except TimeoutError:
            words = f"{self._client.access.address}: no answer for {self._answer_seconds:g} seconds"
            raise Unreachable(words) from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the latter if the call has already ended
            raise await self._why_ended() from None

    async def _why_ended(self) -> LogwrightError:
        call = self._call
        address = self._client.access.address
        return translated(address, await call.code(), await call.details(), await call.trailing_metadata())
