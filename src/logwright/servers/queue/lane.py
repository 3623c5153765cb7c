"""How requests arrive and answers are sent, with a fast path (the lane) for the simplest requests.

A `Line` is the part of a client that is used for every request. The clients share a `Lane`: the queues, and the changes
since the last commit: `changed` queues, and clients (`talking`) that wait for answers.

A request may take the lane if it is a complete `set` without expiry or `get` without options, in the usual spelling,
for an open queue that has no children, no waiting clients and no items to move, and whose files are not being changed.
The result is the same as on the general path, `receive`. The first other request leaves the lane.

This is the reference for the compiled `_lane.pyx`. Here no request takes the lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from .queues import Served


class Lane:
    """What the clients of a server share. `is_open` says whether requests may take the lane."""

    def __init__(
        self,
        queues: dict[bytes, Served],
        commit_later: Callable[[], None],
        commit_now: Callable[[], None],
        max_line: int,
        max_item: int,
    ) -> None:
        self.is_open = True
        self.now = 0.0
        """The server's approximate time."""
        self.changed: list[Served] = []
        self.talking: list[Line] = []
        self.is_due = False
        """Whether a commit is due."""
        self.sets = self.hits = self.misses = self.bytes_read = self.bytes_written = 0
        """Counters since they were last collected."""
        self.fresh_bytes = 0
        """Bytes from clients since the last check of the disk."""
        self.last: Line | None = None
        """The client that sent bytes last."""
        self.is_at_once = False
        """Whether to commit after these requests, and not at the end of the turn of the loop."""
        self.is_direct = False
        """Whether changes written at once need no commit, only answers, because the system has them already."""
        self.is_written_at_once = False
        """Whether operations are written at once, unless others already wait for a commit."""
        self.check_bytes = 1 << 62
        """The number of new bytes after which a commit checks the disk."""
        self.commits = 0
        self.commit_now = commit_now
        self._commit_later = commit_later

    def change(self, queue: Served) -> None:
        """Write the changes of a queue with the next commit."""
        if not queue.is_dirty:
            queue.is_dirty = True
            self.changed.append(queue)
            self.become_due()
            if not self.is_at_once:
                queue.gather()  # others will follow before the commit

    def taken(self) -> tuple[list[Served], list[Line]]:
        """Take the changed queues and the talking clients; both are empty afterwards."""
        found = self.changed, self.talking
        self.changed, self.talking = [], []
        self.is_due = False
        for queue in found[0]:
            queue.is_dirty = False
        self.commits += bool(found[0])
        return found

    def unwritten(self, queues: tuple[Served, ...]) -> tuple[Served, ...]:
        """The queues whose operations wait for the commit. Others are written already."""
        if not self.is_written_at_once:
            return queues
        return () if self.is_at_once or not any(queue.is_dirty for queue in queues) else queues

    def become_due(self) -> None:
        """Ask for a commit, once."""
        if not self.is_due:
            self.is_due = True
            if not self.is_at_once:
                self._commit_later()


class Line:
    """A client's requests and answers. `holds` are the reasons why it is blocked, 0 for none."""

    def __init__(self, lane: Lane, most_bytes: int) -> None:
        self.lane = lane
        self.transport: asyncio.Transport | None = None
        self.holds = 0
        self.is_plain = False
        """Whether it may take the lane: it has no reserved items and no incomplete request."""
        self.has_ended = False
        """Whether the client sends no more."""
        self.heard = lane.now
        self.answers: list[bytes] = []
        self.owners: list[tuple[Served, ...]] = []
        """The queues that each answer depends on."""
        self.unsent_bytes = 0
        self.most_unsent_bytes = most_bytes

    def data_received(self, data: bytes) -> None:
        """Carry out the requests in these bytes. A single client does not wait for others to commit with."""
        lane = self.lane
        self.heard = lane.now
        lane.bytes_read += len(data)
        lane.fresh_bytes += len(data)
        lane.is_at_once = lane.last is self and not lane.is_due
        lane.last = self
        try:
            self.receive(data)
        finally:
            if lane.is_at_once:
                lane.is_at_once = False
                if lane.is_due and lane.is_direct and lane.fresh_bytes <= lane.check_bytes:
                    send_all(lane.taken()[1])
                elif lane.is_due:
                    lane.commit_now()

    def receive(self, data: bytes) -> None:
        """Carry out the requests in these bytes, on the general path."""
        raise NotImplementedError

    def answer(self, answer: bytes, queues: tuple[Served, ...] = ()) -> None:
        """Send an answer with the next commit, or an error if one of the queues fails."""
        if not self.answers:
            self.lane.talking.append(self)
            self.lane.become_due()
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

    def taken_answers(self) -> tuple[list[bytes], list[tuple[Served, ...]]]:
        """Take the waiting answers and their queues; none are left afterwards."""
        found = self.answers, self.owners
        self.answers, self.owners = [], []
        self.unsent_bytes = 0
        return found

    def send(self, lines: list[bytes]) -> None:
        """Send answers."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        data = lines[0] if len(lines) == 1 else b"".join(lines)
        self.lane.bytes_written += len(data)
        transport.write(data)
        if self.holds or self.has_ended:
            self.after_send()

    def after_send(self) -> None:
        """Answers have been sent; continue requests that waited for that."""
        raise NotImplementedError


def send_all(lines: list[Line]) -> None:
    """Send the answers of clients for whom nothing has failed."""
    for line in lines:
        line.send(line.taken_answers()[0])
