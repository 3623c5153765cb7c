# cython: annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""How requests arrive and answers are sent, with a fast path (the lane) for the simplest requests.

A `Line` is the part of a client that is used for every request. The clients share a `Lane`, which has the queues, and
what the next commit must do: write the `changed` queues, and answer the `pending` clients.

A request may take the lane if it is a complete `set` without expiry or `get` without options, in the usual spelling,
for an open queue that has no children, no waiting clients and no items to move, and whose files are not being changed.
The result is the same as on the general path, `receive`. The first other request leaves the lane.

This source runs interpreted, and compiled as `_lane` with the C types of `_lane.pxd`. Indexes are not checked there, so
every advance is checked against the end of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .answers import END, STORED
from .queues import OPEN, Served

try:
    import cython
except ModuleNotFoundError:
    from ...core.bytes import cython_shim as cython

if TYPE_CHECKING:
    import asyncio

if not cython.compiled:
    SPACE, SLASH, ZERO, NINE, DELETE, CARRIAGE_RETURN, LINE_FEED = b" /09\x7f\r\n"
    SYNC_NONE, SYNC_INTERVAL, SYNC_ALWAYS = range(3)

    def item_answer(key: bytes, item: bytes) -> bytes:
        """The answer to a `get` with an item."""
        return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (key, len(item), item)


MOST_DIGITS: Final = 9
"""Of the flags and of the size of a `set` that takes the lane."""

# --- the state of a client: bits ------------------------------------------------------------------------------------

WAITING: Final = 1
"""Its request waits for an item."""
CHANGING: Final = 2
"""Its request waits for the files of a queue."""
ANSWERING: Final = 4
"""Many of its answers wait for a commit."""
UNREAD: Final = 8
"""It does not read its answers."""
CLOSING: Final = 16
"""The connection is closed once the answers are sent."""
BLOCKED: Final = WAITING | CHANGING | ANSWERING | UNREAD | CLOSING
"""Any of these blocks its next request."""
ENDED: Final = 32
"""It sends no more, or the server stops."""
PAUSED: Final = 64
"""Nothing is read from it: too many of its requests are buffered, or the server stops."""
NO_TOKEN: Final = 128
"""It must send its token first."""
GENERAL: Final = 256
"""It has reserved items or an incomplete request, so its next request needs the general path."""
_WATCHES_ANSWERS: Final = BLOCKED | ENDED
"""In these states, sending answers has consequences."""


class Lane:
    """What the clients of a server share. `is_open` says whether requests may take the lane.

    A commit is due if there are changed queues or pending clients.
    """

    def __init__(
        self,
        queues: dict[bytes, Served],
        sync: str,
        commit_later: Callable[[], None],
        commit_now: Callable[[], None],
        max_line: int,
        max_item: int,
    ) -> None:
        self.is_open = True
        self.now = 0.0
        """The server's approximate time."""
        self.changed: list[Served] = []
        self.pending: list[Line] = []
        self.sets = self.hits = self.misses = self.bytes_read = self.bytes_written = 0
        """Counters since they were last collected."""
        self.fresh_bytes = 0
        """Bytes from clients since the last check of the disk."""
        self.check_bytes = 1 << 62
        """The number of new bytes after which a commit checks the disk."""
        self.commits = 0
        self._last: Line | None = None
        """The client that sent bytes last."""
        self._is_at_once = False
        """Whether to commit right after the requests of this client, not at the end of the loop's turn."""
        self._sync = ("none", "interval", "always").index(sync)
        """The policy. With `always`, the commit writes and syncs. With the others, an operation is written at once,
        unless changes of its queue already wait for a commit; with `none`, the commit then only sends answers."""
        self._commit_later = commit_later
        self._commit_now = commit_now
        self._queues = queues
        self._max_line = max_line
        self._max_item = max_item

    def change(self, queue: Served) -> None:
        """Write the changes of a queue with the next commit."""
        if not queue.is_dirty:
            queue.is_dirty = True
            self._ask_for_commit()
            self.changed.append(queue)
            if not self._is_at_once:
                queue.hold_writes()  # more requests may follow before the commit

    def add_pending(self, line: Line) -> None:
        """Send the answers of a client with the next commit."""
        self._ask_for_commit()
        self.pending.append(line)

    def _ask_for_commit(self) -> None:
        """Ask for a commit, unless one is due already or follows at once."""
        if not (self._is_at_once or self.changed or self.pending):
            self._commit_later()

    def begin(self, line: Line, size: int) -> None:
        """A client has sent bytes. If it also did so last, and no commit is due, it is committed alone."""
        self.bytes_read += size
        self.fresh_bytes += size
        self._is_at_once = self._last is line and not self.changed and not self.pending
        self._last = line

    def end(self) -> None:
        """The requests in these bytes are carried out."""
        if not self._is_at_once:
            return
        self._is_at_once = False
        if not self.changed and not self.pending:
            return
        if self._sync == SYNC_NONE and self.fresh_bytes <= self.check_bytes:
            send_all(self.take()[1])  # the operating system already has the changes
        else:
            self._commit_now()

    def take(self) -> tuple[list[Served], list[Line]]:
        """Take the changed queues and the pending clients; both are empty afterwards."""
        changed, pending = self.changed, self.pending
        self.changed, self.pending = [], []
        for queue in changed:
            queue.is_dirty = False
        if changed:
            self.commits += 1
        return changed, pending

    def unwritten(self, queues: tuple[Served, ...]) -> tuple[Served, ...]:
        """The queues whose operations wait for the commit. Others are written already."""
        if self._sync == SYNC_ALWAYS:
            return queues
        if not self._is_at_once:
            for queue in queues:
                if queue.is_dirty:
                    return queues
        return ()

    def _find(self, key: bytes) -> Served | None:
        """The queue of a key; None if there is none, or if it may not take the lane."""
        queue = self._queues.get(key)
        if queue is None or queue.phase is not OPEN or queue.waiters or queue.handle.has_children or queue.can_move:
            return None
        return queue


class Line:
    """A client's requests and answers. `state` has the bits above; 0 lets its next request take the lane."""

    def __init__(self, lane: Lane, most_bytes: int) -> None:
        self.lane = lane
        self.transport: asyncio.Transport | None = None
        self.state = 0
        self.heard_at = lane.now
        self.answers: list[bytes] = []
        self.owners: list[tuple[Served, ...]] = []
        """The queues that each answer depends on."""
        self.unsent_bytes = 0
        self.most_unsent_bytes = most_bytes

    def data_received(self, data: bytes) -> None:
        """Carry out the requests in these bytes. A single client does not wait for others to commit with."""
        lane = self.lane
        if type(data) is not bytes:
            data = bytes(data)
        self.heard_at = lane.now
        lane.begin(self, len(data))
        try:
            done = self._take_lane(data) if self.state == 0 and lane.is_open else 0
            if done < len(data):
                self.receive(data[done:] if done else data)
        finally:
            lane.end()

    def receive(self, data: bytes) -> None:
        """Carry out the requests in these bytes, on the general path."""
        raise NotImplementedError

    def answer(self, answer: bytes, queues: tuple[Served, ...] = ()) -> None:
        """Send an answer with the next commit, or an error if one of the queues fails."""
        if not self.answers:
            self.lane.add_pending(self)
        self.answers.append(answer)
        self.owners.append(self.lane.unwritten(queues))
        self.unsent_bytes += len(answer)
        for queue in queues:
            self.lane.change(queue)
        if self.unsent_bytes > self.most_unsent_bytes:
            self.many_unsent()

    def many_unsent(self) -> None:
        """Many answers wait for a commit."""
        raise NotImplementedError

    def take_answers(self) -> tuple[list[bytes], list[tuple[Served, ...]]]:
        """Take the waiting answers and their queues; none are left afterwards."""
        answers, owners = self.answers, self.owners
        self.answers, self.owners = [], []
        self.unsent_bytes = 0
        return answers, owners

    def send(self, lines: list[bytes]) -> None:
        """Send answers."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        data = lines[0] if len(lines) == 1 else b"".join(lines)
        self.lane.bytes_written += len(data)
        transport.write(data)
        if self.state & _WATCHES_ANSWERS:
            self.after_send()

    def after_send(self) -> None:
        """Answers have been sent; continue requests that waited for that."""
        raise NotImplementedError

    # --- the lane ---------------------------------------------------------------------------------------------------

    def _take_lane(self, data: bytes) -> int:
        """Carry out the simple requests at the beginning of these bytes; returns the number of bytes."""
        text = data
        stop = len(data)
        at = 0
        while stop - at >= 6 and self.state == 0:
            if text[at + 1] != 101 or text[at + 2] != 116 or text[at + 3] != SPACE:  # "et "
                break
            if text[at] == 103:  # "g"
                after = self._take_get(data, at, stop)
            elif text[at] == 115:  # "s"
                after = self._take_set(data, at, stop)
            else:
                break
            if after < 0:
                break
            at = after
        return at

    def _take_set(self, data: bytes, at: int, stop: int) -> int:
        r"""`set KEY FLAGS 0 SIZE\r\n` and data; returns the beginning of the next request, -1 if it is not simple."""
        text = data
        lane = self.lane
        key_end = _past_key(data, at + 4, stop)
        if key_end == at + 4 or stop - key_end < 9 or text[key_end] != SPACE:
            return -1
        flags_end = _past_digits(data, key_end + 1, stop)
        if flags_end < 0 or stop - flags_end < 6:
            return -1
        if text[flags_end] != SPACE or text[flags_end + 1] != ZERO or text[flags_end + 2] != SPACE:
            return -1
        number = flags_end + 3
        start = _past_digits(data, number, stop)
        if start < 0 or stop - start < 2 or text[start] != CARRIAGE_RETURN or text[start + 1] != LINE_FEED:
            return -1
        size = 0
        while number < start:
            size = size * 10 + text[number] - ZERO
            number += 1
        if start - at >= lane._max_line or size > lane._max_item:
            return -1
        start += 2
        end = start + size
        if stop - end < 2 or text[end] != CARRIAGE_RETURN or text[end + 1] != LINE_FEED:
            return -1
        queue = lane._find(text[at + 4 : key_end])
        if queue is None:
            return -1
        try:
            queue.put(text[start:end])
        except Exception:
            return -1  # the general path gets the same error, and reports it
        lane.sets += 1
        self.answer(STORED, queue.alone)
        return end + 2

    def _take_get(self, data: bytes, at: int, stop: int) -> int:
        r"""`get KEY\r\n`; returns the beginning of the next request, -1 if it is not simple."""
        text = data
        lane = self.lane
        key_end = _past_key(data, at + 4, stop)
        if key_end == at + 4 or stop - key_end < 2 or key_end - at >= lane._max_line:
            return -1
        if text[key_end] != CARRIAGE_RETURN or text[key_end + 1] != LINE_FEED:
            return -1
        key = text[at + 4 : key_end]
        queue = lane._find(key)
        if queue is None:
            return -1
        try:
            item = queue.take()
        except Exception:
            return -1
        if item is None:
            lane.misses += 1
            self.answer(END)
        else:
            lane.hits += 1
            self.answer(item_answer(key, item), queue.alone)
        return key_end + 2


def _past_key(text: bytes, at: int, stop: int) -> int:
    """The end of a key without options that begins here."""
    while at < stop and text[at] > SPACE and text[at] != SLASH and text[at] != DELETE:
        at += 1
    return at


def _past_digits(text: bytes, at: int, stop: int) -> int:
    """The end of a number that begins here; -1 if there is none, or if it has too many digits."""
    start = at
    while at < stop and ZERO <= text[at] <= NINE:
        at += 1
    return at if 0 < at - start <= MOST_DIGITS else -1


def send_all(lines: list[Line]) -> None:
    """Send the answers of clients for whom nothing has failed."""
    for line in lines:
        answers = line.answers
        line.answers, line.owners = [], []
        line.unsent_bytes = 0
        line.send(answers)
