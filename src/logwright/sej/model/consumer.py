"""Consumer: runs a handler over a journal, and stores its offset in the journal's directory.

    def handle(message):
        send(message.value)

    with Consumer("orders", "billing", handle, timeout=None) as consumer:
        consumer.run()                      # until stop() is called, by another thread or a signal handler

Every message is handled at least once, in order. A message is done when the handler returns. The offset is committed
after `commit_messages` messages, after `commit_ms`, and at the end. After a crash, messages done since the last commit
are handled again: at most `commit_messages` messages, and no more than those of about `commit_ms`. With
`commit_messages=1` it is one message, at the cost of two syncs for each. A handler that must not act twice stores the
message's offset together with its own result.

A handler that raises is called again, after a pause that doubles each time. When all attempts have failed, `run` raises
`HandlerFailed`, and the message is not done. With `on_failure`, that function is called with the message and the error
instead, may set the message aside, and the message is done once it returns. Attempts are counted in memory: a restart
resets the count.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.io.disk import REAL_DISK, Disk
from ...core.io.watch import POLL_SECONDS
from ...core.read.files_scanner import DEFAULT_TIMEOUT_SECONDS
from ...core.write.closing import Closing
from ...errors import Closed, HandlerFailed, LogwrightError, WrongUse
from ..bytes import kernel
from ..bytes.records import Message
from ..files.reader import Reader
from ..files.scanner import Scanner
from .offset import Ahead, Default, Offset

logger = logging.getLogger("logwright.sej")

COMMIT_MESSAGES: Final = 1000
COMMIT_MS: Final = 1000.0
ATTEMPTS: Final = 5
BACKOFF_MS: Final = 100.0
MOST_BACKOFF_MS: Final = 10_000.0


# --- what a plain and an asynchronous consumer share ----------------------------------------------------------------


class DeliveryOptions(TypedDict, total=False):
    """The options of a consumer for its `Delivery`, which has their defaults."""

    default: Default
    batch_messages: int | None
    commit_messages: int
    commit_ms: float
    attempts: int
    backoff_ms: float
    most_backoff_ms: float
    mode: Mode
    ahead: Ahead
    disk: Disk


class Delivery:
    """The messages for a handler, and the commits of their offsets. It never waits."""

    def __init__(
        self,
        directory: Path | str,
        name: str,
        *,
        sets_aside: bool,
        default: Default = "first",
        batch_messages: int | None = None,
        commit_messages: int = COMMIT_MESSAGES,
        commit_ms: float = COMMIT_MS,
        attempts: int = ATTEMPTS,
        backoff_ms: float = BACKOFF_MS,
        most_backoff_ms: float = MOST_BACKOFF_MS,
        mode: Mode = "failfast",
        ahead: Ahead = "refuse",
        disk: Disk = REAL_DISK,
    ) -> None:
        # Everything is checked before the offset is opened, which registers the consumer.
        _check_numbers(batch_messages=batch_messages, commit_messages=commit_messages, attempts=attempts)
        check_mode(mode)
        self.batch_messages = batch_messages
        self.handled = 0
        self._attempts = attempts
        self._failures = 0
        self._backoff_seconds = backoff_ms / 1000
        self._most_backoff_seconds = most_backoff_ms / 1000
        self._sets_aside = sets_aside
        self._commit_messages = commit_messages
        self._commit_seconds = commit_ms / 1000
        self._queue: deque[Message] = deque()
        self._single_before = 0
        self._uncommitted = 0
        self._committed_at = time.monotonic()
        self.offset = Offset(directory, name, default, ahead=ahead, disk=disk)
        try:
            self.next = self.offset.value
            self.missed = self._say_what_is_missed(Reader(directory, disk=disk))
            self.offset.commit(self.next)  # so that a crash before the first message does not move the beginning
            self.scanner = Scanner(directory, self.next, timeout=0, mode=mode, disk=disk)
        except BaseException:
            self.offset.close()
            raise

    def _say_what_is_missed(self, reader: Reader) -> int:
        first = reader.first
        if self.next >= first:
            return 0
        logger.warning(
            "%s: the consumer %s had come to offset %d, the journal now begins with %d: the messages between are gone",
            reader.path,
            self.offset.name,
            self.next,
            first,
        )
        return first - self.next

    @property
    def is_full(self) -> bool:
        """Whether there are enough messages for a call of the handler."""
        return len(self._queue) >= (self.batch_messages or 1)

    def fetch(self, *, stalled: bool = False) -> bool:
        """Look for new messages without waiting; whether there are messages to handle."""
        while not self.is_full:
            item = self.scanner.poll(stalled=stalled)
            if item is None:
                break
            if isinstance(item, Damage):
                logger.warning("%s: skipped", item)
            else:
                self._queue.extend(kernel.messages(item.data, item.start, item.stop, item.count))
        return bool(self._queue)

    def waiting(self) -> list[Message]:
        """The messages for the next call of the handler."""
        single = self.batch_messages is None or self._queue[0].offset < self._single_before
        return list(islice(self._queue, 1 if single else self.batch_messages))

    def done(self, count: int) -> None:
        """The first `count` messages are done."""
        for _ in range(count):
            self.next = self._queue.popleft().offset + 1
        self.handled += count
        self._uncommitted += count
        self._failures = 0

    def failed(self, messages: list[Message], error: Exception) -> float | None:
        """After a failure: how long to pause before the next attempt; None if the first message is to be set aside.

        Raises `HandlerFailed` after the last attempt without `on_failure`.
        """
        self._failures += 1
        if self._failures < self._attempts:
            return min(self._backoff_seconds * 2.0 ** min(self._failures - 1, 60), self._most_backoff_seconds)
        self._failures = 0
        if not self._sets_aside:
            attempts = "1 attempt" if self._attempts == 1 else f"{self._attempts} attempts"
            reason = f"consumer {self.offset.name}: message {messages[0].offset} failed after {attempts}: {error}"
            raise HandlerFailed(reason) from error
        if len(messages) == 1:
            return None
        self._single_before = messages[-1].offset + 1
        return 0.0

    def must_commit(self) -> bool:
        """Whether it is time to commit."""
        if not self._uncommitted:
            return False
        return self._uncommitted >= self._commit_messages or self.until_commit_seconds() <= 0

    def until_commit_seconds(self) -> float:
        """How long the next commit can be postponed."""
        return self._committed_at + self._commit_seconds - time.monotonic()

    def commit(self) -> None:
        """Commit the offset, durably."""
        self.offset.commit(self.next)
        self._uncommitted = 0
        self._committed_at = time.monotonic()

    def close(self) -> None:
        """Close the files, and let another consumer of this name begin."""
        self.scanner.close()
        self.offset.close()


def count_done(answer: Any, messages: list[Message], in_batches: bool) -> int:
    """How many of the messages are done, by the return value of the handler."""
    if answer is False:
        return 0
    if not in_batches or answer is None or answer is True:
        return len(messages)
    if isinstance(answer, int) and 0 <= answer <= len(messages):
        return answer
    raise WrongUse(f"a handler of batches returns None, True, False or how many are done, not {answer!r}")


def not_done(message: Message) -> HandlerFailed:
    """The error of a handler that returns "not done"."""
    return HandlerFailed(f"the handler says that message {message.offset} is not done")


def _check_numbers(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise WrongUse(f"{name} must be at least 1, not {number}")


# --- the consumer ---------------------------------------------------------------------------------------------------


class Consumer(Closing):
    """Runs `handler` over the messages from the committed offset of the consumer `name` on.

    `handler` is given a message. It may return False to say that the message is not done, which counts as a failure.
    With `batch_messages` it is given a list of at most that many, and may return how many of them, from the first on,
    are done. A batch that keeps failing is retried message by message before `on_failure` is called.

    `default` says where a new consumer begins. `timeout` and `mode` are those of `Scanner`; damage that `mode` lets
    pass is logged, and so are messages that the account of losses names. A consumer whose offset is beyond the
    end of the journal is refused (`Truncated`), or continues at its end with `ahead="end"`. One consumer of a name at
    a time (`Locked`).
    """

    def __init__(
        self,
        directory: Path | str,
        name: str,
        handler: Callable[[Any], Any],
        *,
        on_failure: Callable[[Message, Exception], object] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        self.name = name
        self.timeout = timeout
        self._handler = handler
        self._on_failure = on_failure
        self._stopped = False
        self._closed = False
        self._running = threading.Lock()
        self._runner: threading.Thread | None = None
        self._delivery = Delivery(directory, name, sets_aside=on_failure is not None, **options)

    @property
    def next(self) -> int:
        """The offset of the next message that is not done."""
        return self._delivery.next

    @property
    def committed(self) -> int:
        """The offset that is on the disk."""
        return self._delivery.offset.value

    @property
    def missed(self) -> int:
        """How many messages were removed from the journal before this consumer read them."""
        return self._delivery.missed

    def run(self) -> int:
        """Handle messages until there are none for `timeout` seconds, or `stop` is called; how many were done."""
        if not self._running.acquire(blocking=False):
            raise WrongUse(f"the consumer {self.name} is running already")
        try:
            if self._closed:
                raise Closed(f"the consumer {self.name} is closed")
            self._runner = threading.current_thread()
            before = self._delivery.handled
            try:
                while not self._stopped and self._wait():
                    self._advance(self._delivery.waiting())
            except BaseException as error:
                self._commit_after(error)
                raise
            self._delivery.commit()
            return self._delivery.handled - before
        finally:
            self._runner = None
            self._running.release()

    def stop(self) -> None:
        """Let `run` return after the current call of the handler. For any thread or signal handler; final."""
        self._stopped = True

    def _commit_after(self, error: BaseException) -> None:
        """Commit before an error is raised. If the commit fails too, the first error is raised."""
        try:
            self._delivery.commit()
        except LogwrightError as other:
            error.add_note(f"and what was done before it could not be committed: {other}")

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _wait(self) -> bool:
        """Wait for messages; False after the timeout, or when it is time to stop."""
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        while not self._stopped:
            remaining = POLL_SECONDS if deadline is None else deadline - time.monotonic()
            if self._delivery.fetch(stalled=remaining <= 0 and bool(self.timeout)):
                return True
            if remaining <= 0:
                return False
            self._commit_if_due()
            self._delivery.scanner.watch.wait(min(remaining, POLL_SECONDS))
        return False

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopped and (remaining := deadline - time.monotonic()) > 0:
            self._commit_if_due()
            time.sleep(min(remaining, POLL_SECONDS))

    def _commit_if_due(self) -> None:
        if self._delivery.must_commit():
            self._delivery.commit()

    # --- handling ---------------------------------------------------------------------------------------------------

    def _advance(self, messages: list[Message]) -> None:
        """Call the handler once, and do what follows from it. Messages that are not done will come again."""
        outcome = self._attempt(messages)
        if isinstance(outcome, int):
            self._delivery.done(outcome)
        else:
            pause_seconds = self._delivery.failed(messages, outcome)
            if pause_seconds is None:
                assert self._on_failure is not None
                self._on_failure(messages[0], outcome)
                self._delivery.done(1)
            else:
                self._pause(pause_seconds)
        self._commit_if_due()

    def _attempt(self, messages: list[Message]) -> int | Exception:
        """Call the handler once: how many of the messages are done, at least one, or why none is."""
        in_batches = self._delivery.batch_messages is not None
        try:
            answer = self._handler(messages if in_batches else messages[0])
        except Exception as error:
            return error
        return count_done(answer, messages, in_batches) or not_done(messages[0])

    # --- closing ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop, wait for `run` to return, and let another consumer of this name begin. A second call does nothing."""
        if self._runner is threading.current_thread():
            raise WrongUse("a handler cannot close its consumer; call stop() instead")
        self.stop()
        with self._running:
            if not self._closed:
                self._closed = True
                self._delivery.close()
