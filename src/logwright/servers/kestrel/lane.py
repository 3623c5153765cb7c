"""Lane and Line: how requests come in and answers leave; and where the simplest requests overtake the general way.

A `Line` is the part of a client that does something for every request. A `Lane` is what all of them share: the queues,
and what was done since the last commit: `changed` queues, and clients that are `talking`.

A request may take the lane if it is a `set` without expiry or a `get` without options, whole, plainly written, for a
queue that is there, has no children, nobody who waits, no items that may move, and whose files are not being changed.
What the lane does is what the general way, `receive`, would have done. The first request that is not simple ends it.

This is the reference; `_lane.pyx` has a twin. Here no request takes the lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from .queues import Served


class Lane:
    """What the clients of a server share. `is_open` says whether there is no reason for requests not to take it."""

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
        """About now, as the server has it."""
        self.changed: list[Served] = []
        self.talking: list[Line] = []
        self.is_due = False
        """Whether somebody has asked for a commit."""
        self.sets = self.hits = self.misses = self.bytes_read = self.bytes_written = 0
        """What was done since somebody has looked."""
        self.fresh_bytes = 0
        """What came from clients since somebody has looked at the disk."""
        self.last: Line | None = None
        """Who was heard last."""
        self.is_at_once = False
        """Whether the commit is at the end of these requests, and not at the end of the turn of the loop."""
        self.is_direct = False
        """Whether what was done at once needs no commit any more, only answers: it is with the system already."""
        self.is_written_at_once = False
        """Whether operations are written when they are made, unless others have begun to gather."""
        self.look_bytes = 1 << 62
        """After so many fresh bytes the commit looks at the disk."""
        self.commits = 0
        self.commit_now = commit_now
        self._commit_later = commit_later

    def change(self, queue: Served) -> None:
        """Have what was done to a queue written with the next commit."""
        if not queue.is_dirty:
            queue.is_dirty = True
            self.changed.append(queue)
            self.become_due()
            if not self.is_at_once:
                queue.gather()  # others will follow before the commit

    def taken(self) -> tuple[list[Served], list[Line]]:
        """What was changed and who is talking; nothing and nobody then."""
        found = self.changed, self.talking
        self.changed, self.talking = [], []
        self.is_due = False
        for queue in found[0]:
            queue.is_dirty = False
        self.commits += bool(found[0])
        return found

    def unwritten(self, queues: tuple[Served, ...]) -> tuple[Served, ...]:
        """Those whose operations wait for the commit. What is done at once, or first in a turn, is written already."""
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
    """A client's requests and answers. `holds` is why nothing is done for it now, 0 for no reason."""

    def __init__(self, lane: Lane, most_bytes: int) -> None:
        self.lane = lane
        self.transport: asyncio.Transport | None = None
        self.holds = 0
        self.is_plain = False
        """Whether it may take the lane: it has no open reads, and is in the middle of no request."""
        self.has_ended = False
        """Whether the client will send nothing more."""
        self.heard = lane.now
        self.answers: list[bytes] = []
        self.owners: list[tuple[Served, ...]] = []
        """The queues that each of the answers depends on."""
        self.unsent_bytes = 0
        self.most_unsent_bytes = most_bytes

    def data_received(self, data: bytes) -> None:
        """Do what these bytes ask for. A client that is alone needs not wait for others to commit with."""
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
                if lane.is_due and lane.is_direct and lane.fresh_bytes <= lane.look_bytes:
                    send_all(lane.taken()[1])
                elif lane.is_due:
                    lane.commit_now()

    def receive(self, data: bytes) -> None:
        """Do it in the general way."""
        raise NotImplementedError

    def answer(self, answer: bytes, queues: tuple[Served, ...] = ()) -> None:
        """Send this with the next commit; something else if one of the queues fails in that."""
        if not self.answers:
            self.lane.talking.append(self)
            self.lane.become_due()
        self.answers.append(answer)
        self.owners.append(self.lane.unwritten(queues))
        self.unsent_bytes += len(answer)
        for queue in queues:
            self.lane.change(queue)
        if self.unsent_bytes > self.most_unsent_bytes:
            self.said_much()

    def said_much(self) -> None:
        """There are many answers that wait for a commit."""
        raise NotImplementedError

    def taken_answers(self) -> tuple[list[bytes], list[tuple[Served, ...]]]:
        """The answers that wait for a commit, and their queues; there are none then."""
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
            self.sent()

    def sent(self) -> None:
        """Answers have left, and that may have been waited for."""
        raise NotImplementedError


def send_all(lines: list[Line]) -> None:
    """Send the answers of clients for whom nothing has failed."""
    for line in lines:
        line.send(line.taken_answers()[0])
