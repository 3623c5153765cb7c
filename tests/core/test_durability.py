"""When records become durable: the policies, and how threads and tasks share one sync."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType

import pytest

from logwright.core.io.durability import (
    ALWAYS,
    NONE,
    AsyncGroupCommit,
    GroupCommit,
    IntervalSync,
    Sync,
    interval,
    parse_sync,
)
from logwright.errors import WrongUse
from tests.support.threads import DEADLINE_SECONDS, in_a_thread

# --- policies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("none", NONE),
        ("always", ALWAYS),
        ("interval(100)", Sync("interval", 100.0)),
        ("interval(0.5)", Sync("interval", 0.5)),
    ],
)
def test_policy_round_trips_through_text(text: str, policy: Sync) -> None:
    assert parse_sync(text) == policy
    assert str(policy) == text
    assert parse_sync(policy) is policy


@pytest.mark.parametrize(
    "text", ["", "never", "Always", "interval", "interval()", "interval(-1)", "interval(1e3)", "interval(5) ", "none\n"]
)
def test_invalid_policy_is_wrong_use(text: str) -> None:
    with pytest.raises(WrongUse, match="is none of: none, always, interval"):
        parse_sync(text)


@pytest.mark.parametrize("milliseconds", [0, -5, float("inf"), float("nan")])
def test_interval_is_a_time(milliseconds: float) -> None:
    with pytest.raises(WrongUse, match="makes no sense"):
        interval(milliseconds)
    assert interval(20) == parse_sync("interval(20)")
    with pytest.raises(WrongUse, match="makes no sense"):
        parse_sync("interval(0)")


# --- a commit that waits for the test's signal-----------------------------------------------------------------------


class Journal:
    """A stand-in for a writer: records are appended, and a commit makes all preceding records durable.

    While `gate` is closed, a commit that has begun waits there; `begun` counts the commits that have begun.
    """

    def __init__(self) -> None:
        self.appended = 0
        self.durable = 0
        self.commits = 0
        self.failure: BaseException | None = None
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)

    def commit(self) -> None:
        self.commits += 1
        appended = self.appended
        self.begun.release()
        assert self.gate.wait(DEADLINE_SECONDS)
        if self.failure is not None:
            raise self.failure
        self.durable = appended

    def wait_for_commit(self) -> None:
        assert self.begun.acquire(timeout=DEADLINE_SECONDS)


class CountingLock:
    """A lock that counts how often it was acquired and released, so that a test can wait for a number of threads.

    `wanted` is released each time a thread is about to acquire it.
    """

    def __init__(self) -> None:
        self.wanted = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._passed = 0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        self.wanted.release()
        self._lock.acquire()

    def locked(self) -> bool:
        return self._lock.locked()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        with self._changed:
            self._passed += 1
            self._changed.notify_all()

    def passed(self) -> int:
        with self._changed:
            return self._passed

    def wait_for(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._passed >= number, DEADLINE_SECONDS)


class Crew:
    """A group commit over a `Journal`, and threads that append to it and wait."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.group = GroupCommit(self.journal.commit)
        self.joined = CountingLock()
        self.group._mutex = self.joined  # type: ignore[assignment]
        self._mutex = threading.Lock()

    def append(self) -> int:
        """Append a record and wait for it; the number of durable records at that time."""
        with self._mutex:
            self.journal.appended += 1
            number = self.journal.appended
        self.group.wait()
        assert self.journal.durable >= number, "an append returned before its record was durable"
        return self.journal.durable

    def start(self, number: int) -> list[Future[int]]:
        """Let `number` threads append, and return once each of them leads a batch or has joined one."""
        before = self.joined.passed()
        futures = [in_a_thread(self.append) for _ in range(number)]
        self.joined.wait_for(before + number)
        return futures

    def start_leader(self) -> Future[int]:
        """Let one thread append, and return once it is in its commit."""
        future = in_a_thread(self.append)
        self.journal.wait_for_commit()
        return future


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.journal.gate.set()


def results(futures: list[Future[int]]) -> list[int]:
    return [future.result(DEADLINE_SECONDS) for future in futures]


# --- threads --------------------------------------------------------------------------------------------------------


def test_threads_arriving_during_a_sync_share_the_next_one(crew: Crew) -> None:
    leader = crew.start_leader()
    others = crew.start(9)
    assert not any(future.done() for future in [leader, *others]), "no thread returns before the sync"
    crew.journal.gate.set()
    assert results([leader]) in ([1], [10])
    assert results(others) == [10] * 9
    assert crew.journal.commits == 2


def test_single_thread_syncs_for_each_append(crew: Crew) -> None:
    crew.journal.gate.set()
    assert [crew.append() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert crew.journal.commits == 5


def test_many_rounds_of_many_threads_lose_nothing(crew: Crew) -> None:
    crew.journal.gate.set()
    barrier = threading.Barrier(8, timeout=DEADLINE_SECONDS)

    def append_often() -> int:
        barrier.wait()
        return [crew.append() for _ in range(50)][-1]

    last = results([in_a_thread(append_often) for _ in range(8)])
    assert max(last) == crew.journal.durable == 400
    assert crew.journal.commits <= 400


def test_failed_sync_is_raised_in_every_waiting_thread(crew: Crew) -> None:
    leader = crew.start_leader()
    others = crew.start(5)
    crew.journal.failure = OSError("the disk is gone")
    crew.journal.gate.set()
    for future in [leader, *others]:
        with pytest.raises(OSError, match="the disk is gone"):
            future.result(DEADLINE_SECONDS)
    assert crew.journal.commits == 2, "the sync was not tried again for anybody"
    assert crew.journal.durable == 0


def test_failure_is_not_raised_in_threads_whose_sync_succeeded(crew: Crew) -> None:
    crew.journal.gate.set()
    assert crew.append() == 1
    crew.journal.failure = OSError("the disk is gone")
    with pytest.raises(OSError, match="the disk is gone"):
        crew.append()
    crew.journal.failure = None
    assert crew.append() == 3, "whether to continue after a failure is the writer's decision, not the group's"


def test_followers_of_an_interrupted_leader_sync_themselves(crew: Crew) -> None:
    """The leader of a batch waits for the preceding sync; a signal interrupts it there."""

    class Interrupt(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupt

    main = threading.get_ident()
    first = crew.start_leader()
    leading = crew.group._leading = CountingLock()  # type: ignore[assignment]
    leading.__enter__()  # as if by the first one, which is in its commit

    def send_the_signal_once_both_have_joined() -> Future[int]:
        for _ in range(2):
            assert leading.wanted.acquire(timeout=DEADLINE_SECONDS)  # once by us, once by the main thread, which leads
        [follower] = crew.start(1)
        signal.pthread_kill(main, signal.SIGUSR1)
        return follower

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        sender = in_a_thread(send_the_signal_once_both_have_joined)
        with pytest.raises(Interrupt):
            crew.group.wait()
    finally:
        signal.signal(signal.SIGUSR1, before)
    follower = sender.result(DEADLINE_SECONDS)
    crew.journal.gate.set()
    assert results([first]) == [1]
    leading.__exit__(None, None, None)
    assert results([follower]) == [2]
    assert crew.append() == crew.journal.appended, "and the next one leads as ever"


# --- tasks ----------------------------------------------------------------------------------------------------------


class Tasks:
    """An async group commit over a `Journal`, and tasks that append to it and wait."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.group = AsyncGroupCommit(self.journal.commit)

    async def append(self) -> int:
        self.journal.appended += 1
        number = self.journal.appended
        await self.group.wait()
        assert self.journal.durable >= number, "an append returned before its record was durable"
        return self.journal.durable

    async def start(self, number: int) -> list[asyncio.Task[int]]:
        """Start `number` tasks; each of them waits when this returns."""
        tasks = [asyncio.create_task(self.append()) for _ in range(number)]
        await asyncio.sleep(0)  # one turn of the loop, in which each task runs up to its wait
        return tasks

    async def in_commit(self) -> None:
        await asyncio.to_thread(self.journal.wait_for_commit)


def run(scenario: Callable[[Tasks], object]) -> None:
    """Run a scenario, and close the group as a writer would."""

    async def whole() -> None:
        tasks = Tasks()
        try:
            await asyncio.wait_for(scenario(tasks), DEADLINE_SECONDS)  # type: ignore[arg-type]
        finally:
            tasks.journal.gate.set()
            tasks.journal.failure = None
            await asyncio.wait_for(tasks.group.close(), DEADLINE_SECONDS)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("logwright-sync")]

    asyncio.run(whole())


def test_tasks_of_one_loop_iteration_share_a_sync() -> None:
    async def scenario(tasks: Tasks) -> None:
        tasks.journal.gate.set()
        assert await asyncio.gather(*(tasks.append() for _ in range(20))) == [20] * 20
        assert tasks.journal.commits == 1

    run(scenario)


def test_tasks_arriving_during_a_sync_share_the_next_one() -> None:
    async def scenario(tasks: Tasks) -> None:
        first = await tasks.start(3)
        await tasks.in_commit()
        later = await tasks.start(7)
        assert not any(task.done() for task in first + later)
        tasks.journal.gate.set()
        assert await asyncio.gather(*first) in ([3] * 3, [10] * 3)
        assert await asyncio.gather(*later) == [10] * 7
        assert tasks.journal.commits == 2

    run(scenario)


def test_failed_sync_is_raised_in_every_waiting_task() -> None:
    async def scenario(tasks: Tasks) -> None:
        first = await tasks.start(3)
        await tasks.in_commit()
        tasks.journal.failure = OSError("the disk is gone")
        tasks.journal.gate.set()
        outcomes = await asyncio.gather(*first, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["the disk is gone"] * 3
        assert tasks.journal.commits == 1
        tasks.journal.failure = None
        assert await tasks.append() == 4, "the group itself still works"

    run(scenario)


@pytest.mark.parametrize("cancelled", [0, 1, 2])
def test_cancelling_one_task_does_not_affect_the_others(cancelled: int) -> None:
    async def scenario(tasks: Tasks) -> None:
        waiting = await tasks.start(3)
        await tasks.in_commit()
        later = await tasks.start(3)
        for batch in (waiting, later):
            batch[cancelled].cancel()
        tasks.journal.gate.set()
        outcomes = await asyncio.gather(*waiting, *later, return_exceptions=True)
        for number, outcome in enumerate(outcomes):
            if number % 3 == cancelled:
                assert isinstance(outcome, asyncio.CancelledError)
            else:
                assert outcome in (3, 6)
        assert tasks.journal.durable == 6, "what a cancelled task had appended is synced with the rest"

    run(scenario)


def test_group_continues_after_all_waiters_were_cancelled() -> None:
    async def scenario(tasks: Tasks) -> None:
        for task in await tasks.start(2):
            task.cancel()
        tasks.journal.gate.set()
        assert await tasks.append() == 3

    run(scenario)


def test_closing_lets_running_syncs_finish() -> None:
    async def scenario(tasks: Tasks) -> None:
        waiting = await tasks.start(2)
        await tasks.in_commit()
        closing = asyncio.create_task(tasks.group.close())
        tasks.journal.gate.set()
        await closing
        assert await asyncio.gather(*waiting) == [2, 2]

    run(scenario)


def test_closing_ends_the_thread_even_if_the_last_sync_fails() -> None:
    async def scenario(tasks: Tasks) -> None:
        [waiting] = await tasks.start(1)
        await tasks.in_commit()
        tasks.journal.failure = OSError("the disk is gone")
        closing = asyncio.create_task(tasks.group.close())
        await asyncio.sleep(0)
        tasks.journal.gate.set()
        for task in (waiting, closing):
            with pytest.raises(OSError, match="the disk is gone"):
                await task
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("logwright-sync")]

    run(scenario)


# --- in the background ----------------------------------------------------------------------------------------------


def test_interval_syncs_repeatedly_until_it_is_closed() -> None:
    journal = Journal()
    journal.gate.set()
    background = IntervalSync(0.01, journal.commit)
    for _ in range(5):
        journal.wait_for_commit()
    background.close()
    commits = journal.commits
    assert commits >= 5
    assert not background._thread.is_alive()
    background.close()
    assert journal.commits == commits


def test_closing_an_interval_neither_waits_for_it_nor_syncs() -> None:
    journal = Journal()
    background = IntervalSync(3_600_000, journal.commit)
    background.close()
    assert journal.commits == 0
    assert not background._thread.is_alive()


def test_closing_waits_for_a_running_sync() -> None:
    journal = Journal()
    journal.appended = 7
    background = IntervalSync(0.01, journal.commit)
    journal.wait_for_commit()

    def open_the_gate_once_closing_has_begun() -> None:
        assert background._stop.wait(DEADLINE_SECONDS)
        journal.gate.set()

    opening = in_a_thread(open_the_gate_once_closing_has_begun)
    background.close()
    opening.result(DEADLINE_SECONDS)
    assert not background._thread.is_alive()
    assert (journal.commits, journal.durable) == (1, 7)


def test_interval_stops_after_a_failure() -> None:
    journal = Journal()
    journal.failure = OSError("the disk is gone")
    journal.gate.set()
    background = IntervalSync(0.01, journal.commit)
    background._thread.join(DEADLINE_SECONDS)
    assert not background._thread.is_alive()
    assert journal.commits == 1
    background.close()


def test_interval_may_be_closed_by_its_own_commit() -> None:
    closed = threading.Event()
    ready = threading.Event()

    def commit() -> None:
        assert ready.wait(DEADLINE_SECONDS)
        background.close()
        closed.set()

    background = IntervalSync(0.01, commit)
    ready.set()
    assert closed.wait(DEADLINE_SECONDS)
    background._thread.join(DEADLINE_SECONDS)
    assert not background._thread.is_alive()
