"""Live events: one reader for all browsers, bursts, names and values that are hostile, and the end of followers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

from logwright import kestrel, sej
from logwright.web.catalog import Catalog
from logwright.web.live import Live, Topic, event
from tests.web.support import WAIT_SECONDS, serving, wait_until


def test_appended_records_reach_all_clients_by_one_reader(tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "orders") as writer, serving(tmp_path) as site, contextlib.ExitStack() as stack:
        writer.append(b"before")
        writer.flush()
        clients = [stack.enter_context(site.events("journal/live", name="orders")) for _ in range(50)]
        assert {next(client)[0] for client in clients} == {"ready"}
        wait_until(lambda: site.server.api.live.followers == 1)
        writer.append(b"live", key=b"k")
        writer.flush()
        for client in clients:
            data = next(data for name, data in client if name == "records")
            assert [row["text"] for row in data["rows"]] == ["live"]
            assert (data["records"], data["rows"][0]["key"]) == (1, "k")
        assert site.server.api.live.started == 1


def test_follower_ends_with_its_last_client_and_starts_again(tmp_path: Path) -> None:
    with kestrel.Queue(tmp_path / "queues", "jobs") as queue, serving(tmp_path) as site:
        queue.put(b"first")
        with site.events("journal/live", name="queues") as events:
            assert next(events)[0] == "ready"
        live = site.server.api.live
        wait_until(lambda: live.followers == 0)
        with site.events("journal/live", name="queues") as events:
            assert next(events)[0] == "ready"
            queue.put(b"second")
            assert next(events)[1]["rows"][-1]["text"] == "second"
        assert live.started == 2


def test_tail_of_one_part_has_only_its_records(tmp_path: Path) -> None:
    with (
        kestrel.Queue(tmp_path / "queues", "jobs") as jobs,
        kestrel.Queue(tmp_path / "queues", "mail") as mail,
        serving(tmp_path) as site,
    ):
        jobs.put(b"before")
        mail.put(b"before")
        with site.events("journal/live", name="queues", part="mail") as events:
            assert next(events)[0] == "ready"
            jobs.put(b"of the other queue")
            mail.put(b"of this queue")
            data = next(events)[1]
            assert [row["text"] for row in data["rows"]] == ["of this queue"]
            assert data["records"] == 1


def test_burst_is_counted_and_its_end_is_shown(tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "orders") as writer, serving(tmp_path) as site:
        writer.append(b"before")
        writer.flush()
        with site.events("journal/live", name="orders") as events:
            assert next(events)[0] == "ready"
            for number in range(20_000):
                writer.append(b"%d" % number)
            writer.flush()
            seen = 0
            while seen < 20_000:
                name, data = next(events)
                assert name == "records"
                assert len(data["rows"]) <= 200
                seen += data["records"]
            assert seen == 20_000
            assert data["rows"][-1]["text"] == "19999"


def test_browser_that_comes_as_the_last_one_leaves_gets_events() -> None:
    """A topic that has ended is not joined: each browser is either before its end or starts a new one."""

    async def scenario() -> None:
        live = Live(Catalog("."))
        runs: list[Topic] = []

        def run(topic: Topic) -> None:
            runs.append(topic)
            topic.publish("ready", len(runs), keep=True)
            topic.stopped.wait(WAIT_SECONDS)

        async with contextlib.aclosing(live.watch("journal", run)) as first:
            found = [await anext(first), await anext(first)]
            late = live.watch("journal", run)  # it is asked for now, and read when the first one has left
        async with contextlib.aclosing(late):
            found += [await anext(late), await anext(late)]
        assert [one for one in found if one.startswith(b"event")] == [event("ready", 1), event("ready", 2)]
        assert all(topic.stopped.is_set() for topic in runs)

    asyncio.run(scenario())


def test_browser_that_is_too_slow_is_sent_how_many_events_it_missed() -> None:
    async def scenario() -> None:
        begun = threading.Event()
        topics: list[Topic] = []

        def run(topic: Topic) -> None:
            topics.append(topic)
            begun.set()

        async with contextlib.aclosing(Live(Catalog(".")).watch("journal", run)) as events:
            await anext(events)
            assert await asyncio.to_thread(begun.wait, WAIT_SECONDS)
            for number in range(100):
                topics[0].publish("records", number)
            await asyncio.sleep(0)  # the loop takes what was published
            found = [await anext(events) for _ in range(64)]
            topics[0].publish("records", 100)
            await asyncio.sleep(0)
            found += [await anext(events), await anext(events)]
        kept = [event("records", number) for number in range(64)]
        assert found == [*kept, event("missed", {"events": 36}), event("records", 100)]

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["a\nevent: records\ndata: {}\n\n", "\r\n\r\n", "\u2028", "</script>"])
def test_value_cannot_end_an_event(text: str) -> None:
    encoded = event("records", {"rows": [{"text": text}]})
    assert encoded.count(b"\n") == 3
    assert b"\r" not in encoded


def test_live_of_an_unknown_journal_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        assert site.refused("journal/live", name="../../etc")[0] == 404
        assert site.refused("check", name="nothing")[0] == 404
