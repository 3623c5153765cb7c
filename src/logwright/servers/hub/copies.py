"""The copies of a hub: each is a sej journal in its own directory, written by one thread at a time.

    ROOT/CLIENT.JOURNAL/

A client's name has no dot, so no two pairs of names share a directory. The offset of its first message decides what
happens to a put:

    where the copy ends     it is appended
    earlier                 a repeat after a failure: messages that the copy has are compared and skipped
    later                   `OutOfStep`: messages are missing, and nothing is written; unless the request says that the
                            source has lost them: then the copy gets the same gap, and its account the same loss

A repeat that differs is a `Conflict`. All puts that wait for one copy are written together and synced once; none is
answered before. If a write or sync fails, all of them fail and the writer is closed: the next put opens another one,
which recovers the copy. The same happens if a copy was moved or removed meanwhile. Reading continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import REAL_DISK, Disk, make_directories
from ...core.io.lock import Lock
from ...core.io.quarantine import DIRECTORY as KEPT_DIRECTORY
from ...errors import Closed, Locked, LogwrightError, NotFound, renaming_damage
from ...sej.files.reader import Reader
from ...sej.files.segment import Chunk
from ...sej.model.copying import SEGMENT_BYTES, Batch, CopyWriter, find_difference
from . import requests
from .errors import Conflict, OutOfStep, Refused
from .limits import Limits
from .requests import Get, Put, check_client, check_journal, is_journal

logger = logging.getLogger("logwright.hub")

_SEGMENTS: Final = "jnl"
_LOCK_NAME: Final = ".server.lck"
_MOST_PLACES: Final = 256
"""The number of remembered positions of clients that read copies piece by piece."""
Answer = int | LogwrightError
"""The offset that a copy continues with after a put, or why the put failed."""


class Copy:
    """One copy. Its methods without `async` run in the hub's threads, one at a time."""

    def __init__(self, copies: Copies, directory: Path) -> None:
        self.directory = directory
        self.busy = False
        self._copies = copies
        self._waiting: list[tuple[Put, asyncio.Future[int]]] = []
        self._writer: CopyWriter | None = None
        self._unsynced = False
        self._segments = directory / _SEGMENTS
        self._identity: tuple[int, int] | None = None

    # --- in the event loop ------------------------------------------------------------------------------------------

    def submit(self, put: Put) -> asyncio.Future[int]:
        """Queue a put; after its sync, the future has the offset that the copy continues with."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((put, future))
        if not self.busy:
            self.busy = True
            self._copies.start(self._work())
        return future

    def close_later(self) -> None:
        """Close the files in a thread; puts that arrive meanwhile reopen them."""
        self.busy = True
        self._copies.start(self._work(self.close))

    async def _work(self, first: Callable[[], None] | None = None) -> None:
        try:
            if first is not None:
                await self._copies.in_thread(first)
            while self._waiting:
                taken, self._waiting = self._waiting, []
                answers: Sequence[int | Exception]
                try:
                    answers = await self._copies.in_thread(partial(self.take, [put for put, _ in taken]))
                except Exception as error:  # a bug: the callers must get an answer anyway
                    answers = [error] * len(taken)
                    await self._copies.in_thread(self.close)
                for (_, future), answer in zip(taken, answers, strict=True):
                    _settle(future, answer)
        finally:
            self.busy = False
            self._copies.became_idle(self)

    # --- in a thread ------------------------------------------------------------------------------------------------

    def take(self, puts: list[Put]) -> list[Answer]:
        """Write puts, then sync once; returns an answer for each."""
        answers: list[Answer] = []
        for put in puts:
            try:
                with renaming_damage(lambda file: self.directory / file):
                    answers.append(self._put(put))
            except LogwrightError as error:
                reason = self._moved() or error
                answers.append(reason)
                self._fail(answers, reason)
        try:
            if self._writer is not None and self._unsynced:
                self._writer.sync()
                self._unsynced = False
            moved = self._moved()
            if moved is not None:
                raise moved
        except LogwrightError as error:
            self._fail_all(answers, self._moved() or error)
        return answers

    def _moved(self) -> Closed | None:
        """An error if the copy was moved: then written messages must not be acknowledged."""
        if self._writer is None or self._copies.disk.identity(self._segments) == self._identity:
            return None
        return Closed(f"{self.directory} was moved or removed while it was written")

    def _fail(self, answers: list[Answer], error: LogwrightError) -> None:
        """Fail the other puts too if the writer failed: nothing since the last sync is certain."""
        if self._writer is not None and self._writer.failed:
            self._fail_all(answers, error)

    def _fail_all(self, answers: list[Answer], error: LogwrightError) -> None:
        self.close()
        for number, answer in enumerate(answers):
            if isinstance(answer, int):
                answers[number] = error

    def _put(self, put: Put) -> int:
        batch = put.batch
        if self._writer is None and not self._open(put):
            if batch.count and batch.first_offset:
                raise _out_of_step(put, 0)
            return 0
        assert self._writer is not None
        expected = self._writer.next_offset
        if batch.first_offset > expected and not put.is_question and not batch.continues(expected):
            raise _out_of_step(put, expected)
        if batch.first_offset < expected and batch.count:
            batch = self._without_repeat(put, expected)
        if batch.count or (batch.segment == batch.first_offset and batch.continues(expected)):
            self._unsynced = True
            self._writer.write(batch)
            self._copies.count_written(batch)
        return self._writer.next_offset

    def _open(self, put: Put) -> bool:
        """Open the copy, or create it if the put has messages for it; False if there is none."""
        copies, batch = self._copies, put.batch
        if not copies.disk.is_directory(self._segments):
            begins_at = batch.first_offset if put.begins else 0
            if put.is_question or not batch.continues(begins_at):
                return False
            copies.check_journal_count()
            # One by one: a link in place of the directory is refused, not followed.
            make_directories(copies.disk, self.directory)
            self._writer = copies.open_writer(self.directory, begins_at)
        else:
            copies.disk.make_directory(self.directory)  # exists; refused if it is a link
            self._writer = copies.open_writer(self.directory, 0)
        self._identity = copies.disk.identity(self._segments)
        if self._writer.recovered is not None:
            logger.warning("%s: cut off a torn tail, kept in %s", self._writer.recovered, self._writer.kept)
        return True

    def _without_repeat(self, put: Put, expected: int) -> Batch:
        """The batch without the messages that the copy has, which must be equal."""
        batch = put.batch
        stop = min(expected, batch.next_offset)
        differs = find_difference(Reader(self.directory, disk=self._copies.disk), batch, stop)
        if differs is not None:
            words = f"the copy of {put.journal} has another message at offset {differs}; it continues with {expected}"
            raise Conflict(f"{words}: this is not the journal that was copied", expected)
        self._copies.count_repeated(stop - batch.first_offset)
        return batch.from_offset(stop)

    def close(self) -> None:
        """Close the files and release the lock until the next put."""
        writer, self._writer = self._writer, None
        self._unsynced = False
        if writer is not None:
            with contextlib.suppress(LogwrightError):  # the callers have got the error
                writer.close()

    @property
    def is_open(self) -> bool:
        """Whether files and the lock are held."""
        return self._writer is not None


def _settle(future: asyncio.Future[int], answer: int | Exception) -> None:
    if future.done():  # the caller has gone
        return
    if isinstance(answer, int):
        future.set_result(answer)
    else:
        future.set_exception(answer)
        future.exception()  # marks it as retrieved, in case the call has ended


def _out_of_step(put: Put, expected: int) -> OutOfStep:
    first = put.batch.first_offset
    words = f"the copy of {put.journal} expects offset {expected}, and the messages begin with {first}"
    return OutOfStep(words, expected)


class Copies:
    """All copies below a root. The least recently used are closed when too many are open."""

    def __init__(
        self,
        root: Path | str,
        limits: Limits,
        *,
        segment_size: int = SEGMENT_BYTES,
        threads: int = 4,
        disk: Disk = REAL_DISK,
    ) -> None:
        self.root = Path(root).absolute()
        self.disk = disk
        self.limits = limits
        self.written_messages = self.written_bytes = self.repeated_messages = 0
        self._segment_size = segment_size
        self._copies: dict[Path, Copy] = {}
        # Reads search large files, and must not delay writes.
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="logwright-hub")
        self._reading_threads = ThreadPoolExecutor(threads, thread_name_prefix="logwright-hub-read")
        self._tasks: set[asyncio.Task[None]] = set()
        self._places: dict[tuple[Path, int], tuple[int, int]] = {}
        self._counting = threading.Lock()
        self._closing = False
        self._lock: Lock | None = None
        make_directories(disk, self.root)

    def lock(self) -> None:
        """Lock the root until `close`; raises `Locked` if another hub has it."""
        own = self.root / KEPT_DIRECTORY
        if self.disk.exists(own):
            self.disk.make_directory(own)  # creates nothing, and refuses a link
        make_directories(self.disk, own)
        try:
            self._lock = Lock.acquire(self.disk, own / _LOCK_NAME)
        except Locked as error:
            words = f"{self.root} is locked: another hub or another server uses this directory"
            raise Locked(words, error.holder) from None

    def public_message(self, error: LogwrightError) -> str:
        """The message of an error with paths below the root only: clients must not learn where the root is.

        Neither do they learn which processes run on this machine.
        """
        words = str(error)
        if isinstance(error, Locked):
            words = words.replace(f" ({error.holder})", "")
        return words.replace(f"{self.root}{os.sep}", "").replace(str(self.root), "the hub's directory")

    # --- what copies use --------------------------------------------------------------------------------------------

    def open_writer(self, directory: Path, first_offset: int) -> CopyWriter:
        """The writer of a copy; raises `Locked` if another program writes to it."""
        return CopyWriter(directory, first_offset=first_offset, segment_size=self._segment_size, disk=self.disk)

    def check_journal_count(self) -> None:
        """Raise `Refused` if no more copies are allowed."""
        names = [name for name in self.disk.list_directory(self.root) if name != KEPT_DIRECTORY]
        if len(names) >= self.limits.journals:
            raise Refused(f"this hub has {self.limits.journals} journals and accepts no more")

    def count_written(self, batch: Batch) -> None:
        """Count messages that were appended."""
        with self._counting:
            self.written_messages += batch.count
            self.written_bytes += len(batch.frames)

    def count_repeated(self, messages: int) -> None:
        """Count messages that the copy already had."""
        with self._counting:
            self.repeated_messages += messages

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """Run work that may wait for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def in_reading_thread(self, work: Callable[[], Any]) -> Any:
        """The same for work that only reads."""
        return await asyncio.get_running_loop().run_in_executor(self._reading_threads, work)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that `close` waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what a hub uses --------------------------------------------------------------------------------------------

    def put(self, put: Put) -> asyncio.Future[int]:
        """Queue a put; once it is on the disk, the future has the offset that the copy continues with."""
        if self._closing:
            raise Closed("the hub is stopping")
        directory = self._checked(put.client, put.journal)
        copy = self._copies.pop(directory, None) or Copy(self, directory)
        self._copies[directory] = copy  # the last one used is at the end
        return copy.submit(put)

    def became_idle(self, copy: Copy) -> None:
        """A copy has no work: forget it if it is closed, and close the least recently used one if too many are open."""
        if not copy.is_open:
            self._copies.pop(copy.directory, None)
        opened = [other for other in self._copies.values() if other.is_open]
        if len(opened) > self.limits.open_journals:
            idle = next((other for other in opened if not other.busy), None)
            if idle is not None:
                idle.close_later()

    def _checked(self, client: str, journal: str) -> Path:
        check_client(client)
        check_journal(journal)
        return _directory_of(self.root, client, journal)

    def get(self, get: Get) -> bytes:
        """The answer to a Get: as many messages of one segment as fit. Runs in a thread."""
        directory = self._checked(get.client, get.journal)
        segments = directory / _SEGMENTS
        linked = self.disk.is_link(directory) or self.disk.is_link(segments)
        if linked or not self.disk.is_directory(segments):
            raise NotFound(f"this hub has no journal {get.journal} of {get.client}")
        with renaming_damage(lambda file: directory / file):
            return self._messages_of(directory, get.offset)

    def _messages_of(self, directory: Path, offset: int) -> bytes:
        reader = Reader(directory, disk=self.disk)
        messages: list[bytes] = []
        segment: int | None = None
        size = 0
        lost_from: int | None = None
        for chunk in self._chunks(reader, offset):
            if not messages and reader.first <= offset < chunk.first_offset:
                lost_from = offset
            more = chunk.stop - chunk.start
            if size and (segment != chunk.segment.first_offset or size + more > self.limits.answer_bytes):
                break
            segment = chunk.segment.first_offset
            messages.append(requests.get_messages(chunk.data[chunk.start : chunk.stop], chunk.count))
            size += more
            place = segment, chunk.position + more
            following = directory, chunk.first_offset + chunk.count
            if size + more > self.limits.answer_bytes:  # the next chunk is about as large: do not read it
                break
        if messages:
            self._remember(following, place)
        if segment is None:  # the journal may end with an empty segment
            last = reader.segments()[-1:]
            segment = last[0].first_offset if last and last[0].first_offset >= offset else None
        return requests.get_answer(messages, segment, lost_from)

    def _chunks(self, reader: Reader, offset: int) -> Iterator[Chunk]:
        """The messages from an offset on; those after the last answer are found without a search."""
        with self._counting:
            place = self._places.pop((reader.path, offset), None)
        segments = reader.segments()
        for number, segment in enumerate(segments if place is not None else ()):
            if place is None or segment.first_offset != place[0]:
                continue
            following = segments[number + 1] if number + 1 < len(segments) else None
            found = False
            for chunk in reader.segment_chunks(segment, following, offset, None, "failfast", at=place[1]):
                assert isinstance(chunk, Chunk)  # damage is raised
                found = True
                yield chunk
            if found:
                return
        for chunk in reader.chunks(offset):
            assert isinstance(chunk, Chunk)
            yield chunk

    def _remember(self, following: tuple[Path, int], place: tuple[int, int]) -> None:
        """Remember the segment and position of the message that the client will ask for next."""
        with self._counting:
            self._places[following] = place
            while len(self._places) > _MOST_PLACES:
                self._places.pop(next(iter(self._places)))

    def journals_of(self, client: str) -> list[str]:
        """The journals of a client. Runs in a thread."""
        check_client(client)
        return _journals_among(self.disk.list_directory(self.root), client)

    @property
    def open_count(self) -> int:
        """The number of open copies."""
        return sum(copy.is_open for copy in self._copies.values())

    async def close(self) -> None:
        """Finish queued puts, then sync and close everything."""
        self._closing = True
        while self._tasks:
            await asyncio.wait(self._tasks)
        for copy in list(self._copies.values()):
            await self.in_thread(copy.close)
        self._copies.clear()
        self.shut()

    def shut(self) -> None:
        """End the threads and release the lock; the copies are closed."""
        self._threads.shutdown()
        self._reading_threads.shutdown()
        if self._lock is not None:
            self._lock.release()


def _directory_of(root: Path, client: str, journal: str) -> Path:
    """The directory of a copy; both names are valid."""
    return root / f"{client}.{journal}"


def _journals_among(names: list[str], client: str) -> list[str]:
    """The journals of a client among the names of all directories."""
    found = [name.partition(".")[2] for name in names if name.partition(".")[0] == client]
    return sorted(filter(is_journal, found))
