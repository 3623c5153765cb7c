"""Live: what is appended to a journal, sent to any number of browsers by one reader.

The first browser that watches a journal starts a follower in its own thread; when the last one leaves, the follower
ends. Events are encoded once. A browser that does not keep up loses events, and is sent the number that it missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

from ..core.bytes.outcome import Damage
from ..core.format import Located, Reader
from ..errors import LogwrightError
from .catalog import Catalog
from .records import row_of

_QUEUED_EVENTS: Final = 64
_SHOWN_ROWS: Final = 200
"""The most records in one event. If more arrive together, the last ones are sent, and all are counted."""
_GATHER_SECONDS: Final = 0.1
_WAIT_SECONDS: Final = 0.25
_SILENCE_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.5
"""How long journals are looked at before the overview is sent with those that are known."""
_REST_FACTOR: Final = 10
"""An overview is made again only after this number of times the time that it took."""


def event(name: str, data: Any) -> bytes:
    """A server-sent event. JSON has no line breaks, so nothing in a journal can end an event."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


class Topic:
    """The browsers that watch one thing, and the thread that watches it for all of them."""

    def __init__(self, run: Callable[[Topic], None]) -> None:
        self.stopped = threading.Event()
        self._clients: dict[asyncio.Queue[bytes], int] = {}
        self._loop = asyncio.get_running_loop()
        self._run = run
        self._thread: threading.Thread | None = None
        self._kept: bytes | None = None

    @property
    def is_empty(self) -> bool:
        return not self._clients

    def publish(self, name: str, data: Any, *, keep: bool = False) -> None:
        """Send an event to all browsers; called by the thread. With `keep`, later browsers get it first."""
        encoded = event(name, data)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._send, encoded, keep)

    def _send(self, encoded: bytes, keep: bool) -> None:
        if keep:
            self._kept = encoded
        for client, missed in self._clients.items():
            if client.qsize() + bool(missed) >= _QUEUED_EVENTS:
                self._clients[client] += 1
                continue
            if missed:
                client.put_nowait(event("missed", {"events": missed}))
                self._clients[client] = 0
            client.put_nowait(encoded)

    async def events(self) -> AsyncGenerator[bytes]:
        """The events for one browser, until it leaves. The last event of a topic that has ended is sent again."""
        client: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED_EVENTS)
        self._clients[client] = 0
        if self._kept is not None:
            client.put_nowait(self._kept)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self,), daemon=True)
            self._thread.start()
        try:
            yield b"retry: 2000\n\n"
            while True:
                try:
                    yield await asyncio.wait_for(client.get(), _SILENCE_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            del self._clients[client]
            if not self._clients:
                self.stopped.set()


class Live:
    """All topics. `followers` is the number of topics that a browser watches."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._topics: dict[str, Topic] = {}
        self.started = 0
        """How many followers were ever started."""

    @property
    def followers(self) -> int:
        return sum(not topic.is_empty for topic in self._topics.values())

    async def watch(self, name: str, run: Callable[[Topic], None]) -> AsyncGenerator[bytes]:
        """The events of a topic for one browser. The topic is a new one if the last browser has left the old one.

        It is looked up when the first event is taken, so it cannot end between that and the entry of the browser.
        """
        topic = self._topics.get(name)
        if topic is None or topic.stopped.is_set():
            topic = self._topics[name] = Topic(run)
            self.started += 1
        async with contextlib.aclosing(topic.events()) as events:
            async for encoded in events:
                yield encoded

    def journal(self, name: str, part: str | None = None) -> AsyncIterator[bytes]:
        """The records that are appended to a journal, or to one part of it."""
        self._catalog.entry(name)
        return self.watch(f"journal {name!r} {part!r}", lambda topic: self._follow(name, part, topic))

    def overview(self) -> AsyncIterator[bytes]:
        """The overview, whenever it changes."""
        return self.watch("overview", self._watch_overview)

    def stop(self) -> None:
        """End all followers."""
        for topic in self._topics.values():
            topic.stopped.set()

    # --- in threads -------------------------------------------------------------------------------------------------

    def _follow(self, name: str, part: str | None, topic: Topic) -> None:
        try:
            entry = self._catalog.entry(name)
            reader = self._catalog.open(name)
            ends = reader.end
            with entry.format.follow(entry.path, ends, timeout=_WAIT_SECONDS, mode="permissive") as follower:
                topic.publish("ready", {"name": name}, keep=True)
                burst = _Burst(reader, topic, part if reader.has_parts else None)
                while not topic.stopped.is_set():
                    for item in follower.located():
                        burst.add(item)
                        if topic.stopped.is_set():
                            break
                        burst.send_if_due()
                    burst.send()
        except (LogwrightError, OSError) as error:
            topic.publish("failed", {"error": str(error)}, keep=True)
        finally:
            topic.stopped.set()  # the next browser that asks starts a new follower

    def _watch_overview(self, topic: Topic) -> None:
        last: Any = None
        while not topic.stopped.is_set():
            started = time.monotonic()
            try:
                found = self._catalog.overview(_LOOK_SECONDS)
            except (LogwrightError, OSError) as error:
                found = {
                    "error": str(error),
                    "root": str(self._catalog.root),
                    "journals": [],
                    "unreadable": [],
                    "pending": 0,
                }
            if found != last:
                topic.publish("overview", found, keep=True)
                last = json.loads(json.dumps(found))
            if not found["pending"]:
                topic.stopped.wait(max(1.0, _REST_FACTOR * (time.monotonic() - started)))


class _Burst:
    """Records that are sent together."""

    def __init__(self, reader: Reader, topic: Topic, part: str | None) -> None:
        self._reader = reader
        self._topic = topic
        self._part = part
        self._rows: list[Located | Damage] = []
        self._records = 0
        self._bytes = 0
        self._since = time.monotonic()

    def add(self, item: Located | Damage) -> None:
        if self._part is not None and not isinstance(item, Damage) and self._reader.number_of(item)[0] != self._part:
            return
        if not self._rows:
            self._since = time.monotonic()
        self._rows.append(item)
        if len(self._rows) > 2 * _SHOWN_ROWS:
            del self._rows[:_SHOWN_ROWS]
        if not isinstance(item, Damage):
            self._records += 1
            self._bytes += item.span.size

    def send_if_due(self) -> None:
        if time.monotonic() - self._since >= _GATHER_SECONDS:
            self.send()

    def send(self) -> None:
        if not self._rows:
            return
        rows = [row_of(self._reader, item) for item in self._rows[-_SHOWN_ROWS:]]
        self._topic.publish("records", {"rows": rows, "records": self._records, "bytes": self._bytes})
        self._rows, self._records, self._bytes = [], 0, 0
