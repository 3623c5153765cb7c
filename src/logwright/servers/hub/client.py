"""HubClient: what one can ask a hub, and the stream of puts that copying is made of.

    async with HubClient(Access.load("127.0.0.1:7878"), client="web1") as hub:
        await hub.next_offset("orders")         # how far the copy is
        await hub.get("orders", 0)              # messages of the copy
        await hub.journals()                    # what it has of ours

Whatever goes wrong comes as one of the errors in `errors.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
import grpc.aio

from ...errors import LogwrightError
from ...sej.model.copying import Batch
from . import requests
from .access import Access, translated, why_unreachable
from .errors import HubError, NotConnected, Unreachable
from .requests import check_client, check_journal

Result = TypeVar("Result")

ANSWER_SECONDS: Final = 60.0
"""How long a hub may take for an answer: far longer than a sync takes."""
_LOOK_SECONDS: Final = 1.0
"""How often it is looked why a hub does not answer, at most: many journals ask for it at once."""
_CONNECTING_SECONDS: Final = 5.0
MOST_FRAMES_BYTES: Final = 2**32


class HubClient:
    """A client of a hub, under the name that its copies are kept by."""

    def __init__(self, access: Access, client: str, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        check_client(client)
        self.access = access
        self.client = client
        self._answer_seconds = answer_seconds
        self._channel: Any = None
        self._looking = asyncio.Lock()
        self._looked_at = -math.inf
        self._why: HubError | None = None

    async def __aenter__(self) -> Self:
        self._channel = self.access.channel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    # --- questions --------------------------------------------------------------------------------------------------

    async def next_offset(self, journal: str) -> int | None:
        """The offset that the copy of a journal goes on with; None from a hub that does not say."""
        return await self.put(requests.put_head(self.client, journal, None, False))

    async def put(self, request: bytes) -> int | None:
        """One PutRequest by itself: where the copy goes on, once its messages are on the disk."""
        return requests.read_put_answer(await self._ask(requests.PUT, request))

    async def get(self, journal: str, offset: int) -> Batch:
        """Messages of the copy from an offset on, all of one segment; none behind the last. `NotFound` for no copy."""
        check_journal(journal)
        answer = await self._ask(requests.GET, requests.get_request(self.client, journal, offset))
        return requests.read_get_answer(answer, offset, MOST_FRAMES_BYTES)

    async def journals(self) -> list[str]:
        """The journals of ours that the hub has copies of."""
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

    async def explained(self, error: HubError) -> HubError | None:
        """What no answer means: gRPC says little of a hub that it gets no connection to, so we look for ourselves.

        None when there is a connection again: gRPC tries that only every other second.
        """
        async with self._looking:
            if time.monotonic() - self._looked_at > _LOOK_SECONDS:
                self._why = await asyncio.to_thread(why_unreachable, self.access)
                self._looked_at = time.monotonic()
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
        """A stream of puts, for as long as the block lasts."""
        call = self._channel.stream_stream(requests.PUT)(metadata=self.access.metadata())
        try:
            yield PutStream(self, call, self._answer_seconds)
        finally:
            call.cancel()


class PutStream:
    """Puts of one call: sent one behind the other, and answered in that order."""

    def __init__(self, client: HubClient, call: Any, answer_seconds: float) -> None:
        self._client = client
        self._call = call
        self._answer_seconds = answer_seconds

    async def send(self, request: bytes) -> None:
        """Send a PutRequest; returns when it is on its way."""
        await self._or_why(self._call.write(request))

    async def done(self) -> None:
        """Say that no more will come."""
        await self._or_why(self._call.done_writing())

    async def answer(self) -> int | None:
        """The next answer: where the copy goes on, as in `HubClient.put`."""
        data = await self._or_why(self._call.read())
        if data is grpc.aio.EOF:
            raise await self._why_ended()
        return requests.read_put_answer(data)

    async def _or_why(self, step: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await step
        except TimeoutError:
            words = f"{self._client.access.address}: no answer for {self._answer_seconds:g} seconds"
            raise Unreachable(words) from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the latter where the call has ended before
            raise await self._why_ended() from None

    async def _why_ended(self) -> LogwrightError:
        """Why the call has ended."""
        call = self._call
        address = self._client.access.address
        return translated(address, await call.code(), await call.details(), await call.trailing_metadata())
