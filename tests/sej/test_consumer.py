"""A consumer: calls of its handler, commits, and the effects of failures, stopping and kills."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import Closed, DamagedJournal, HandlerFailed, Locked, StorageFailed, WrongUse
from logwright.sej.bytes.records import Message
from logwright.sej.files.offset_file import stored_offset
from logwright.sej.files.writer import Writer
from logwright.sej.model.consumer import Consumer, Delivery
from logwright.sej.model.offset import Offset, read_offset
from tests.sej.samples import MESSAGE_BYTES, make_journal, offsets_of, value_of
from tests.support.children import Child
from tests.support.faulty_disk import FaultyDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS

JOURNAL = Path("/journal")


@pytest.fixture
def journal(journal_directory: Path) -> Path:
    """A journal of 25 messages in segments of 10."""
    return make_journal(journal_directory, 25)


def consumer(journal: Path, handler: Any, **options: Any) -> Consumer:
    """A consumer named `reader` that never waits."""
    return Consumer(journal, "reader", handler, **{"timeout": 0, "backoff_ms": 0, **options})


class Failing:
    """A handler that fails a number of times on some offsets; `calls` are the offsets of its calls."""

    def __init__(self, failures: dict[int, int]) -> None:
        self.calls: list[int] = []
        self._failures = dict(failures)

    def __call__(self, message: Message) -> None:
        self.calls.append(message.offset)
        if self._failures.get(message.offset, 0):
            self._failures[message.offset] -= 1
            raise RuntimeError(f"cannot handle {message.offset}")


# --- what is handled ------------------------------------------------------------------------------------------------


def test_every_message_is_handled_once_in_order_and_the_next_run_continues(journal: Path) -> None:
    handled: list[Message] = []
    with consumer(journal, handled.append) as reader:
        assert reader.run() == 25
        assert (reader.next, reader.committed) == (25, 25)
        make_journal(journal, 3)
        assert reader.run() == 3
    assert offsets_of(handled) == list(range(28))
    assert [message.value for message in handled] == [value_of(offset) for offset in range(28)]
    assert read_offset(journal, "reader") == 28
    with consumer(journal, handled.append) as reader:
        assert reader.run() == 0


def test_consumer_follows_messages_written_while_it_runs(journal: Path) -> None:
    handled: list[Message] = []
    done = threading.Event()

    def handle(message: Message) -> None:
        handled.append(message)
        if message.offset == 59:
            done.set()

    with consumer(journal, handle, timeout=None) as reader:
        thread = threading.Thread(target=reader.run)
        thread.start()
        make_journal(journal, 35)
        assert done.wait(DEADLINE_SECONDS)
        reader.stop()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
    assert offsets_of(handled) == list(range(60))
    assert read_offset(journal, "reader") == 60


def test_new_consumer_starts_at_its_default(journal: Path) -> None:
    handled: list[Message] = []
    with consumer(journal, handled.append, default="last") as reader:
        assert reader.committed == 25, "on the disk at once, so that a crash does not move the beginning"
        make_journal(journal, 2)
        reader.run()
    assert offsets_of(handled) == [25, 26]


def test_removed_messages_are_reported(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Offset(journal, "reader") as offset:
        offset.commit(4)
    (journal / "jnl" / "0000000000000000.jnl").unlink()
    handled: list[Message] = []
    with consumer(journal, handled.append) as reader:
        assert reader.missed == 6
        assert reader.run() == 15
    assert offsets_of(handled) == list(range(10, 25))
    assert "the consumer reader had come to offset 4, the journal now begins with 10" in caplog.text


@pytest.mark.parametrize("mode", ["permissive", "dropmalformed"])
def test_damage_is_skipped_according_to_the_mode(journal: Path, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    segment = journal / "jnl" / "000000000000000a.jnl"
    data = bytearray(segment.read_bytes())
    data[5 * MESSAGE_BYTES - 1] ^= 0xFF
    segment.write_bytes(data)
    handled: list[Message] = []
    with consumer(journal, handled.append) as reader:
        with pytest.raises(DamagedJournal):
            reader.run()
        assert reader.committed == 14, "what came before the damage is done"
    with consumer(journal, handled.append, mode=mode) as reader:
        assert reader.run() == 10
    assert offsets_of(handled) == [*range(14), *range(15, 25)]
    assert ("skipped" in caplog.text) == (mode == "permissive")


# --- when it commits ------------------------------------------------------------------------------------------------


def test_commit_happens_after_a_number_of_messages_and_at_the_end(journal: Path) -> None:
    committed = []
    with consumer(
        journal, lambda _: committed.append(read_offset(journal, "reader")), commit_messages=10, commit_ms=1e9
    ) as reader:
        reader.run()
    assert committed == [0] * 10 + [10] * 10 + [20] * 5
    assert read_offset(journal, "reader") == 25


def test_commit_happens_after_an_interval(journal: Path) -> None:
    committed = []
    with consumer(
        journal, lambda _: committed.append(read_offset(journal, "reader")), commit_messages=1000, commit_ms=0
    ) as reader:
        reader.run()
    assert committed == list(range(25)), "no time at all: each message is committed before the next"


def test_waiting_consumer_commits_what_is_due(journal: Path) -> None:
    with consumer(journal, lambda _: None, timeout=None, commit_ms=1) as reader:
        watch = REAL_DISK.watch(journal / "ofs")
        thread = threading.Thread(target=reader.run)
        thread.start()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while read_offset(journal, "reader") < 25 and time.monotonic() < deadline:
            watch.wait(1)
        assert thread.is_alive()
        assert read_offset(journal, "reader") == 25
        watch.close()
    thread.join(DEADLINE_SECONDS)


def test_commit_that_fails_ends_the_run(simulated_disk: SimulatedDisk) -> None:
    make_journal(JOURNAL, 25, disk=simulated_disk)
    faulty = FaultyDisk(simulated_disk, fail_at=2, only={"rename"})  # the first is that of the beginning
    handled: list[Message] = []
    with consumer(JOURNAL, handled.append, commit_messages=10, disk=faulty) as reader:
        with pytest.raises(StorageFailed, match="rename") as raised:
            reader.run()
        assert "could not be committed" in raised.value.__notes__[0]
        assert len(handled) == 10
    assert stored_offset(simulated_disk, JOURNAL, "reader") == 0


# --- a handler that fails -------------------------------------------------------------------------------------------


def test_handler_that_fails_is_called_again_with_the_same_message(journal: Path) -> None:
    handler = Failing({3: 2, 24: 4})
    with consumer(journal, handler, attempts=5) as reader:
        assert reader.run() == 25
    assert handler.calls == [0, 1, 2, 3, 3, 3, *range(4, 24), 24, 24, 24, 24, 24]


def test_run_ends_after_the_last_attempt_without_committing_the_message(journal: Path) -> None:
    handler = Failing({7: 4})
    with consumer(journal, handler, attempts=3) as reader:
        with pytest.raises(HandlerFailed, match="message 7 failed after 3 attempts: cannot handle 7") as raised:
            reader.run()
        assert isinstance(raised.value.__cause__, RuntimeError)
        assert read_offset(journal, "reader") == 7, "what was done before is committed"
        assert reader.run() == 18, "another run counts from zero: one more failure, then it works"
    assert handler.calls == [*range(7), 7, 7, 7, 7, 7, *range(8, 25)]


def test_one_attempt_means_no_retry(journal: Path) -> None:
    with consumer(journal, Failing({0: 1}), attempts=1) as reader, pytest.raises(HandlerFailed, match="1 attempt: "):
        reader.run()


def test_message_that_keeps_failing_is_set_aside_and_the_others_are_handled(journal: Path) -> None:
    handler = Failing({7: 9, 9: 9})
    aside: list[tuple[int, str]] = []
    with consumer(
        journal, handler, attempts=2, on_failure=lambda message, error: aside.append((message.offset, str(error)))
    ) as reader:
        assert reader.run() == 25
    assert aside == [(7, "cannot handle 7"), (9, "cannot handle 9")]
    assert handler.calls == [*range(7), 7, 7, 8, 9, 9, *range(10, 25)]
    assert read_offset(journal, "reader") == 25


def test_message_that_cannot_be_set_aside_is_not_committed(journal: Path) -> None:
    def fail(message: Message, error: Exception) -> None:
        raise OSError("no space")

    with consumer(journal, Failing({7: 99}), attempts=2, on_failure=fail) as reader:
        with pytest.raises(OSError, match="no space"):
            reader.run()
        assert reader.committed == 7


def test_messages_can_be_set_aside_in_another_journal_and_replayed(journal: Path, tmp_path: Path) -> None:
    with Writer(tmp_path / "aside") as aside:

        def keep(message: Message, error: Exception) -> None:
            aside.append(message.value, message.key, message.type, message.timestamp)

        with consumer(journal, Failing({3: 99, 5: 99}), attempts=1, on_failure=keep) as reader:
            reader.run()
    replayed: list[Message] = []
    with consumer(tmp_path / "aside", replayed.append) as reader:
        reader.run()
    assert [(message.value, message.timestamp) for message in replayed] == [(value_of(3), 3), (value_of(5), 5)]


def test_only_false_means_that_a_message_is_not_done(journal: Path) -> None:
    answers = iter([0, None, False, False, "", True])
    calls = []

    def handle(message: Message) -> object:
        calls.append(message.offset)
        return next(answers, None)

    with consumer(journal, handle, attempts=3) as reader:
        assert reader.run() == 25
    assert calls == [0, 1, 2, 2, 2, *range(3, 25)]
    make_journal(journal, 1)
    with consumer(journal, lambda _: False, attempts=2) as reader, pytest.raises(HandlerFailed, match="25 is not done"):
        reader.run()


def test_pause_after_a_failure_doubles_up_to_a_limit(journal: Path) -> None:
    delivery = Delivery(
        journal,
        "reader",
        default="first",
        batch_messages=None,
        commit_messages=1,
        commit_ms=0,
        attempts=6,
        backoff_ms=100,
        most_backoff_ms=500,
        sets_aside=False,
        mode="failfast",
        ahead="refuse",
        disk=REAL_DISK,
    )
    assert delivery.fetch()
    messages = delivery.waiting()
    error = RuntimeError()
    assert [delivery.failed(messages, error) for _ in range(2)] == [0.1, 0.2]
    delivery.done(1)
    messages = delivery.waiting()
    assert [delivery.failed(messages, error) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    with pytest.raises(HandlerFailed):
        delivery.failed(messages, error)
    delivery.close()


# --- batches --------------------------------------------------------------------------------------------------------


def test_batch_handler_gets_lists_and_returns_the_number_done(journal: Path) -> None:
    answers = iter([None, 4, True, 1])
    batches = []

    def handle(messages: list[Message]) -> object:
        batches.append(offsets_of(messages))
        return next(answers, None)

    with consumer(journal, handle, batch_messages=8) as reader:
        assert reader.run() == 25
    assert batches == [
        list(range(8)),
        list(range(8, 16)),
        list(range(12, 20)),
        list(range(20, 25)),
        list(range(21, 25)),
    ]


def test_batch_that_keeps_failing_is_handled_message_by_message(journal: Path) -> None:
    batches = []
    aside = []

    def handle(messages: list[Message]) -> None:
        batches.append(offsets_of(messages))
        if any(message.offset == 3 for message in messages):
            raise RuntimeError("3 is bad")

    with consumer(
        journal,
        handle,
        batch_messages=5,
        attempts=2,
        on_failure=lambda message, _: aside.append(message.offset),
    ) as reader:
        assert reader.run() == 25
    first = list(range(5))
    assert batches[:9] == [first, first, [0], [1], [2], [3], [3], [4], list(range(5, 10))]
    assert aside == [3]


@pytest.mark.parametrize("answer", ["all", 99, -1, 2.0])
def test_unknown_return_value_ends_the_run(journal: Path, answer: object) -> None:
    with consumer(journal, lambda _: answer, batch_messages=5) as reader, pytest.raises(WrongUse, match="returns None"):
        reader.run()


def test_batch_without_any_message_done_has_failed(journal: Path) -> None:
    reason = "message 0 failed after 2 attempts"
    with (
        consumer(journal, lambda _: 0, batch_messages=5, attempts=2) as reader,
        pytest.raises(HandlerFailed, match=reason),
    ):
        reader.run()


# --- stopping -------------------------------------------------------------------------------------------------------


def test_handler_can_stop_its_consumer(journal: Path) -> None:
    handled: list[int] = []

    def handle(message: Message) -> None:
        handled.append(message.offset)
        if message.offset == 4:
            reader.stop()
            with pytest.raises(WrongUse, match="call stop"):
                reader.close()

    with consumer(journal, handle, timeout=None) as reader:
        assert reader.run() == 5
        assert reader.run() == 0, "stopped is stopped"
    assert handled == [0, 1, 2, 3, 4]
    assert read_offset(journal, "reader") == 5


def test_consumer_that_waits_between_attempts_can_be_closed(journal: Path) -> None:
    failed = threading.Event()

    def handle(message: Message) -> None:
        failed.set()
        raise RuntimeError

    reader = consumer(journal, handle, attempts=100, backoff_ms=3_600_000, most_backoff_ms=3_600_000)
    thread = threading.Thread(target=reader.run)
    thread.start()
    assert failed.wait(DEADLINE_SECONDS)
    with pytest.raises(WrongUse, match="running already"):
        reader.run()
    reader.close()
    reader.close()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    with pytest.raises(Closed):
        reader.run()
    assert read_offset(journal, "reader") == 0


def test_interrupt_leaves_handled_messages_committed(journal: Path) -> None:
    def handle(message: Message) -> None:
        if message.offset == 12:
            raise KeyboardInterrupt

    with consumer(journal, handle, attempts=5) as reader, pytest.raises(KeyboardInterrupt):
        reader.run()
    assert read_offset(journal, "reader") == 12


def test_only_one_consumer_of_a_name_runs(journal: Path) -> None:
    with consumer(journal, print), pytest.raises(Locked):
        consumer(journal, print)
    with consumer(journal, lambda _: None) as reader:
        assert reader.run() == 25


@pytest.mark.parametrize("option", ["attempts", "commit_messages", "batch_messages"])
def test_invalid_numbers_are_refused(journal: Path, option: str) -> None:
    with pytest.raises(WrongUse, match=f"{option} must be at least 1"):
        consumer(journal, print, **{option: 0})
    Offset(journal, "reader").close()  # and nothing is locked


@pytest.mark.parametrize("option", ["default", "mode"])
def test_invalid_words_are_refused_and_no_consumer_is_registered(journal: Path, option: str) -> None:
    with pytest.raises(WrongUse, match=f"{option} 'x' is n"):
        consumer(journal, print, **{option: "x"})
    assert not (journal / "ofs").exists()


# --- dying ----------------------------------------------------------------------------------------------------------


def test_messages_are_repeated_after_a_kill_between_handling_and_commit(simulated_disk: SimulatedDisk) -> None:
    make_journal(JOURNAL, 25, disk=simulated_disk)
    dead: list[tuple[int, SimulatedDisk]] = []
    with consumer(
        JOURNAL,
        lambda message: dead.append((message.offset, simulated_disk.copy())),
        commit_messages=4,
        commit_ms=1e9,
        disk=simulated_disk,
    ) as reader:
        reader.run()
    assert len(dead) == 25
    for offset, disk in dead:  # the disk while this message was being handled
        again: list[Message] = []
        with consumer(JOURNAL, again.append, disk=disk) as reader:
            reader.run()
        assert offsets_of(again) == list(range(offset // 4 * 4, 25)), "from the last commit on, and nothing is left out"


CONSUME = """
import sys
from logwright import sej

def handle(message):
    print(message.offset, flush=True)
    sys.stdin.readline()

with sej.Consumer(sys.argv[1], "reader", handle, commit_messages=7, commit_ms=1e9, timeout=None) as consumer:
    consumer.run()
"""


def test_killed_consumer_releases_its_lock_and_loses_nothing(journal: Path) -> None:
    seen: list[int] = []
    for lines in (1, 9, 3, 12):
        with Child(CONSUME, journal) as child:
            for number in range(lines):
                if number:
                    child.say("next")  # it must not be ahead of the messages that we have received
                seen.append(int(child.line()))
            child.kill()
    make_journal(journal, 5)
    rest: list[Message] = []
    with consumer(journal, rest.append) as reader:
        reader.run()
    seen += offsets_of(rest)
    assert set(seen) == set(range(30))
    assert seen[-1] == 29
    jumps_ahead = [(one, other) for one, other in pairwise(seen) if other > one + 1]
    assert jumps_ahead == [], "a message is handled before the following ones"
