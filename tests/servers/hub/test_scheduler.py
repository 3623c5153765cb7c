"""Many journals at once: each gets its turn, and all together use bounded resources."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.watch import PollingWatch
from logwright.errors import DamagedJournal
from logwright.sej import Writer
from logwright.servers.hub import (
    Access,
    Barred,
    Hub,
    HubClient,
    Limits,
    Protection,
    Sent,
    Unreachable,
    scheduler,
    send_path,
    upload,
)
from logwright.servers.hub.retry import AGAIN_SECONDS, RateLimitedLog
from logwright.servers.hub.scheduler import Scheduler
from logwright.servers.hub.sender import Sender
from tests.servers.hub.support import access_to, damage, in_loop, running, unlike, write_journal, write_secret

SHARDS = 40


def append_to_all(root: Path, count: int = 1) -> None:
    for index in range(SHARDS):
        with Writer(root / f"7.{index:03x}") as writer:
            for _ in range(count):
                writer.append(b"value")


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "polled"])
def test_more_shards_than_concurrent_calls_are_followed_without_a_failure(
    is_watched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "events"
    append_to_all(root, 3)
    monkeypatch.setattr(scheduler, "_MOST_FEEDS", 5)
    if not is_watched:
        monkeypatch.setattr(upload, "watch_directories", lambda _: PollingWatch())
    done: list[Sent] = []

    async def work() -> None:
        async with running(tmp_path / "hub", limits=Limits(calls=10, calls_of_one_connection=8)) as hub:
            following = asyncio.ensure_future(
                send_path(access_to(hub), root, client="web", follow=True, finished=done.append)
            )
            for each in (3, 4, 5):
                if each > 3:
                    await asyncio.to_thread(append_to_all, root)
                while hub.copies.written_messages < SHARDS * each:
                    assert not following.done()
                    assert sum(thread.name.startswith("logwright-copy") for thread in threading.enumerate()) <= 4
                    await asyncio.sleep(0.01)
            following.cancel()
            await asyncio.wait([following])

    in_loop(work())
    assert sorted(sent.journal for sent in done) == [f"7.{index:03x}" for index in range(SHARDS)]
    assert sum(sent.failures for sent in done) == 0
    for index in range(SHARDS):
        assert unlike(root / f"7.{index:03x}", tmp_path / "hub" / f"web.7.{index:03x}") == []


def test_large_journal_does_not_delay_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "CALLS", 1)
    monkeypatch.setattr(scheduler, "TURN_BYTES", 1)
    sizes = {"large": 2000, "small": 10, "little": 10}
    for name, count in sizes.items():
        write_journal(tmp_path / name, count)
    answered: list[str] = []

    async def work() -> None:
        async with running(tmp_path / "hub") as hub, HubClient(access_to(hub), "web") as client:
            shared = Scheduler()

            def sender(name: str) -> Sender:
                note: Any = lambda *_: answered.append(name)  # noqa: E731
                return Sender(client, tmp_path / name, name, shared, request_bytes=5000, progress=note)

            following = [asyncio.ensure_future(sender(name).run(follow=True)) for name in sizes]
            while hub.copies.written_messages < sum(sizes.values()):
                await asyncio.sleep(0.001)
            for task in following:
                task.cancel()
            await asyncio.wait(following)
            shared.close()

    in_loop(work())
    assert answered[:4] == ["large", "small", "little", "large"]
    assert len(answered) > 30
    for name in sizes:
        assert unlike(tmp_path / name, tmp_path / "hub" / f"web.{name}") == []


@pytest.mark.parametrize("follow", [False, True])
def test_damaged_shard_is_reported_and_does_not_stop_the_others(
    follow: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "events"
    names = ["2.000", "2.001", "2.002"]
    for name in names:
        write_journal(root / name, 40)
    damage(root / "2.000", 20)
    failures: list[Exception] = []

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            sending = asyncio.ensure_future(
                send_path(access_to(hub), root, client="web", follow=follow, failed=failures.append, request_bytes=1000)
            )
            if follow:
                while hub.copies.written_messages < 100 or not failures:
                    await asyncio.sleep(0.001)
                sending.cancel()
                await asyncio.wait([sending])
            else:
                with pytest.raises(DamagedJournal):
                    await sending

    in_loop(work())
    assert [type(error) for error in failures] == [DamagedJournal]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["2.000 is no longer copied"]
    for name in names[1:]:
        assert unlike(root / name, tmp_path / "hub" / f"web.{name}") == []


def test_error_common_to_all_shards_ends_them_all_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "events"
    for index in range(16):
        write_journal(root / f"4.{index:03x}", 1)
    protection = Protection.load(tokens=write_secret(tmp_path / "tokens", b"a-token-of-twenty-chars"))
    failures: list[Exception] = []

    async def work() -> None:
        async with running(tmp_path / "hub", protection=protection) as hub:
            with pytest.raises(Barred, match="requires a valid token"):
                await send_path(access_to(hub), root, client="web", follow=True, failed=failures.append)

    in_loop(work())
    assert [type(error) for error in failures] == [Barred]
    assert [record for record in caplog.records if record.name.startswith("logwright")] == []


def test_common_problem_and_its_end_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "events"
    for index in range(8):
        write_journal(root / f"3.{index:03x}", 5)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            address = hub.address
        following = asyncio.ensure_future(send_path(Access.load(address), root, client="web", follow=True))
        while not caplog.records:
            await asyncio.sleep(0.001)
        async with Hub(tmp_path / "hub", address) as hub:
            while hub.copies.written_messages < 40:
                await asyncio.sleep(0.001)
            following.cancel()
            await asyncio.wait([following])
        logged = [record.getMessage() for record in caplog.records]
        assert logged == [
            f"{address}: no answer (Connection refused); retrying every few seconds",
            f"{address}: the hub answers again",
        ]

    in_loop(work())


def test_problem_is_logged_at_its_start_every_minute_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 100.0
    limited_log = RateLimitedLog(logging.getLogger("logwright.hub"), lambda: now)
    limited_log.log_end("full", "there is space")
    for passed in (0.0, AGAIN_SECONDS / 2, AGAIN_SECONDS / 2, 1.0):
        now += passed
        limited_log.log("full", f"full at {now:g}")
    limited_log.log("another", "another")
    limited_log.log_end("full", "there is space")
    limited_log.log("full", "full again")
    assert [record.getMessage() for record in caplog.records] == [
        "full at 100",
        "full at 160",
        "another",
        "there is space",
        "full again",
    ]


def test_memory_of_logged_problems_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    limited_log = RateLimitedLog(logging.getLogger("logwright.hub"), lambda: 0.0)
    for number in range(3000):
        limited_log.log(str(number), "cause")
    assert len(limited_log._logged_at) == 1000


def test_following_waits_for_a_hub_and_copying_once_gives_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_journal(tmp_path / "orders", 1)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1: no answer \(Connection refused\)"):
        in_loop(send_path(Access.load("127.0.0.1:1"), tmp_path / "orders", client="web", patience_seconds=0.1))
    (logged,) = caplog.records
    assert logged.getMessage().endswith("; retrying for up to 0.1 seconds")
