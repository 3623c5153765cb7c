"""The copies that a hub holds: each is a sej journal in a directory of its own, written by one thread at a time.

A put is one of three things, by the offset of its first message:

    as the copy goes on     it is appended
    earlier                 a repeat, after a failure on the way: what the copy has already is compared, and passed over
    later                   `OutOfStep`: something between is missing, and nothing is written; unless the request says
                            that it is lost at the source: then the copy has the same gap, and its account has the loss

A repeat that differs from what is there is a `Conflict`. All puts that wait for one copy are written together, and one
sync carries them; none is answered before it. A write or sync that fails fails them all, and closes the writer: the
next put opens another one, which finds what is whole. So does a copy that somebody has moved or removed meanwhile.
Reading goes on in the meantime.
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
from ...errors import Closed, DamagedJournal, Locked, LogwrightError, NotFound
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
"""How many places are remembered for those who read copies piece by piece."""
Answer = int | LogwrightError
"""Where a copy goes on after a put, or why the put failed."""


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
        """Have a put done behind those that wait already; the future is where the copy goes on, after the sync."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((put, future))
        if not self.busy:
            self.busy = True
            self._copies.start(self._work())
        return future

    def retire(self) -> None:
        """Close the files for the time being; what comes meanwhile is done behind that."""
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
                except Exception as error:  # a mistake of ours: whoever waits for an answer must not wait for ever
                    answers = [error] * len(taken)
                    await self._copies.in_thread(self.close)
                for (_, future), answer in zip(taken, answers, strict=True):
                    _settle(future, answer)
        finally:
            self.busy = False
            self._copies.rest(self)

    # --- in a thread ------------------------------------------------------------------------------------------------

    def take(self, puts: list[Put]) -> list[Answer]:
        """Write puts, then sync once; an answer for each."""
        answers: list[Answer] = []
        for put in puts:
            try:
                with _damage_named(self.directory):
                    answers.append(self._put(put))
            except LogwrightError as error:
                told = self._moved() or error
                answers.append(told)
                self._fail(answers, told)
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
        """What was written is on the disk, but not in its place any more: it must not be acknowledged."""
        if self._writer is None or self._copies.disk.identity(self._segments) == self._identity:
            return None
        return Closed(f"{self.directory} was moved or removed while it was written")

    def _fail(self, answers: list[Answer], error: LogwrightError) -> None:
        """If it was the writer that failed, nothing of what it was given since the last sync is certain."""
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
        """Open the copy, or begin it where the put has something for it; False when there is none."""
        copies, batch = self._copies, put.batch
        if not copies.disk.is_directory(self._segments):
            begins_at = batch.first_offset if put.begins else 0
            if put.is_question or not batch.continues(begins_at):
                return False
            copies.check_room()
            # One by one: a link in the place of the directory is refused, and not followed.
            make_directories(copies.disk, self.directory)
            self._writer = copies.open_writer(self.directory, begins_at)
        else:
            copies.disk.make_directory(self.directory)  # is there, and refused if it is a link
            self._writer = copies.open_writer(self.directory, 0)
        self._identity = copies.disk.identity(self._segments)
        if self._writer.recovered is not None:
            logger.warning("%s: cut off a torn tail, kept in %s", self._writer.recovered, self._writer.kept)
        return True

    def _without_repeat(self, put: Put, expected: int) -> Batch:
        """A batch without what the copy has already, which must be the same."""
        batch = put.batch
        stop = min(expected, batch.next_offset)
        differs = find_difference(Reader(self.directory, disk=self._copies.disk), batch, stop)
        if differs is not None:
            words = f"the copy of {put.journal} has another message of offset {differs}; it goes on with {expected}"
            raise Conflict(f"{words}: this is not the journal that was copied", expected)
        self._copies.count_repeated(stop - batch.first_offset)
        return batch.behind(stop)

    def close(self) -> None:
        """Close the files and give the lock back, until the next put."""
        writer, self._writer = self._writer, None
        self._unsynced = False
        if writer is not None:
            with contextlib.suppress(LogwrightError):  # told already to whoever waited for it
                writer.close()

    @property
    def is_open(self) -> bool:
        """Whether files and the lock are held."""
        return self._writer is not None


@contextlib.contextmanager
def _damage_named(directory: Path) -> Iterator[None]:
    """Let damage in a copy be told with the copy's directory."""
    try:
        yield
    except DamagedJournal as error:
        raise type(error)(directory / error.file, error.position, error.reason) from error


def _settle(future: asyncio.Future[int], answer: int | Exception) -> None:
    if future.done():  # nobody waits for it any more
        return
    if isinstance(answer, int):
        future.set_result(answer)
    else:
        future.set_exception(answer)
        future.exception()  # seen, also where a call has ended before it could be told


def _out_of_step(put: Put, expected: int) -> OutOfStep:
    first = put.batch.first_offset
    words = f"the copy of {put.journal} expects offset {expected}, and the messages begin with {first}"
    return OutOfStep(words, expected)


class Copies:
    """All copies below a root. `open` ones are closed again when others need their place."""

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
        # Those who read look for their place in large files, and must not hold up those who write.
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="logwright-hub")
        self._reading_threads = ThreadPoolExecutor(threads, thread_name_prefix="logwright-hub-read")
        self._tasks: set[asyncio.Task[None]] = set()
        self._places: dict[tuple[Path, int], tuple[int, int]] = {}
        self._counting = threading.Lock()
        self._closing = False
        self._lock: Lock | None = None
        make_directories(disk, self.root)

    def lock(self) -> None:
        """Have the root for ourselves until `close`; `Locked` when another hub has it."""
        own = self.root / KEPT_DIRECTORY
        if self.disk.exists(own):
            self.disk.make_directory(own)  # creates nothing, and refuses a link
        make_directories(self.disk, own)
        try:
            self._lock = Lock.acquire(self.disk, own / _LOCK_NAME)
        except Locked:
            raise Locked(f"{self.root} is locked: another hub, or another server, has this directory") from None

    def told_outside(self, error: LogwrightError) -> str:
        """What an error says, with names as they are below the root: where that is concerns nobody else."""
        return str(error).replace(f"{self.root}{os.sep}", "").replace(str(self.root), "the hub's directory")

    # --- what copies use --------------------------------------------------------------------------------------------

    def open_writer(self, directory: Path, first_offset: int) -> CopyWriter:
        """The writer of a copy; `Locked` when another program writes to it."""
        return CopyWriter(directory, first_offset=first_offset, segment_size=self._segment_size, disk=self.disk)

    def check_room(self) -> None:
        """Raise `Refused` when there are as many copies as there may be."""
        names = [name for name in self.disk.list_directory(self.root) if name != KEPT_DIRECTORY]
        if len(names) >= self.limits.journals:
            raise Refused(f"this hub has {self.limits.journals} journals, and takes no more")

    def count_written(self, batch: Batch) -> None:
        """Count messages that were appended."""
        with self._counting:
            self.written_messages += batch.count
            self.written_bytes += len(batch.frames)

    def count_repeated(self, messages: int) -> None:
        """Count messages that were there already."""
        with self._counting:
            self.repeated_messages += messages

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """Do something that may wait for the disk, without holding up the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def in_reading_thread(self, work: Callable[[], Any]) -> Any:
        """The same for what is asked of copies and changes nothing."""
        return await asyncio.get_running_loop().run_in_executor(self._reading_threads, work)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done that `close` waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what a hub uses --------------------------------------------------------------------------------------------

    def put(self, put: Put) -> asyncio.Future[int]:
        """Have a put done: the future is where the copy goes on, once all of it is on the disk."""
        if self._closing:
            raise Closed("the hub is stopping")
        directory = self._checked(put.client, put.journal)
        copy = self._copies.pop(directory, None) or Copy(self, directory)
        self._copies[directory] = copy  # the last one used is at the end
        return copy.submit(put)

    def rest(self, copy: Copy) -> None:
        """A copy has nothing to do. Forget it if it holds nothing, and close the least recent one if too many do."""
        if not copy.is_open:
            self._copies.pop(copy.directory, None)
        open_ones = [other for other in self._copies.values() if other.is_open]
        if len(open_ones) > self.limits.open_journals:
            idle = next((other for other in open_ones if not other.busy), None)
            if idle is not None:
                idle.retire()

    def _checked(self, client: str, journal: str) -> Path:
        check_client(client)
        check_journal(journal)
        return _directory_of(self.root, client, journal)

    def get(self, get: Get) -> bytes:
        """The answer to a question for messages: as many as an answer may have, all of one segment. In a thread."""
        directory = self._checked(get.client, get.journal)
        segments = directory / _SEGMENTS
        linked = self.disk.is_link(directory) or self.disk.is_link(segments)
        if linked or not self.disk.is_directory(segments):
            raise NotFound(f"this hub has no journal {get.journal} of {get.client}")
        with _damage_named(directory):
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
            if size + more > self.limits.answer_bytes:  # the next one would be about as large: do not even read it
                break
        if messages:
            self._remember(following, place)
        if segment is None:  # perhaps it ends with a segment that is empty
            last = reader.segments()[-1:]
            segment = last[0].first_offset if last and last[0].first_offset >= offset else None
        return requests.get_answer(messages, segment, lost_from)

    def _chunks(self, reader: Reader, offset: int) -> Iterator[Chunk]:
        """The messages from an offset on; where the last answer ended, they need not be looked for."""
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
        """Where the message is that will be asked for next: its segment, and the position in there."""
        with self._counting:
            self._places[following] = place
            while len(self._places) > _MOST_PLACES:
                self._places.pop(next(iter(self._places)))

    def journals_of(self, client: str) -> list[str]:
        """The journals of a client. In a thread."""
        check_client(client)
        return _journals_among(self.disk.list_directory(self.root), client)

    @property
    def open_count(self) -> int:
        """How many copies hold files and a lock."""
        return sum(copy.is_open for copy in self._copies.values())

    async def close(self) -> None:
        """Finish what was submitted, sync and close everything."""
        self._closing = True
        while self._tasks:
            await asyncio.wait(self._tasks)
        for copy in list(self._copies.values()):
            await self.in_thread(copy.close)
        self._copies.clear()
        self.shut()

    def shut(self) -> None:
        """Let threads and lock go; what was open is closed."""
        self._threads.shutdown()
        self._reading_threads.shutdown()
        if self._lock is not None:
            self._lock.release()


def _directory_of(root: Path, client: str, journal: str) -> Path:
    """The directory of a journal's copy; both names were checked."""
    return root / f"{client}.{journal}"


def _journals_among(names: list[str], client: str) -> list[str]:
    """The journals of a client, of all directories there are."""
    found = [name.partition(".")[2] for name in names if name.partition(".")[0] == client]
    return sorted(filter(is_journal, found))
