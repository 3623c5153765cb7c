"""Journals that vanish, shrink, are enormous or have odd names, and clients that do not keep up."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

from logwright import sej
from logwright.web.api import Api
from logwright.web.live import Topic
from tests.web.support import serving, wait_until


def test_root_without_journals_is_an_empty_overview(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        found = site.get("overview")
        assert (found["journals"], found["unreadable"], found["pending"]) == ([], [], 0)


def test_journal_that_vanishes_is_an_error_and_leaves_the_overview(tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "orders") as writer:
        writer.append(b"value")
    with serving(tmp_path) as site:
        assert len(site.get("rows", name="orders")["rows"]) == 1
        shutil.rmtree(tmp_path / "orders")
        for request in ("rows", "journal", "timeline", "files", "shards"):
            status, error = site.refused(request, name="orders")
            assert status in (404, 422), request
            assert "orders" in error
        wait_until(lambda: site.get("overview")["journals"] == [])


def test_tail_of_a_journal_that_is_cut_ends_with_an_error_and_can_be_started_again(tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "orders") as writer:
        for number in range(100):
            writer.append(b"%d" % number)
    (segment,) = (tmp_path / "orders" / "jnl").iterdir()
    with serving(tmp_path) as site:
        with site.events("journal/live", name="orders") as events:
            assert next(events)[0] == "ready"
            with sej.Writer(tmp_path / "orders") as writer:
                writer.append(b"live")
            assert next(events)[1]["rows"][-1]["text"] == "live"  # the follower has the file open
            os.truncate(segment, segment.stat().st_size // 2)
            name, data = next(events)
            assert name == "failed"
            assert "orders" in data["error"]
        assert site.get("journal", name="orders")["rows"] < 100
        with site.events("journal/live", name="orders") as events:
            assert next(events)[0] == "ready"  # a new follower


def test_names_that_are_not_utf8_or_very_long_are_shown_and_opened(tmp_path: Path) -> None:
    odd, long = os.fsdecode(b"caf\xe9\n"), "x" * 250
    for name in (odd, long):
        with sej.Writer(tmp_path / name) as writer:
            writer.append(b"value")
    with serving(tmp_path) as site:
        names = {journal["name"] for journal in site.get("overview")["journals"]}
        assert len(names) == 2
        assert long in names
        for name in names:
            assert name.encode()  # text that can be sent
            assert site.get("rows", name=name)["rows"][0]["text"] == "value"


def test_enormous_value_is_shown_in_part(tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "orders") as writer:
        writer.append(b"a" * (20 << 20))
        writer.append(b"small")
    with serving(tmp_path) as site:
        first = site.ask("/api/rows?name=orders&row=0&count=100")
        assert len(first.body) < 4096
        found = site.get("record", name="orders", number="0", offset=str(20 << 20))
        assert (found["value_bytes"], found["hex"], found["decoded"]) == (20 << 20, "", None)
        assert "too many to decode" in found["undecoded"]
        assert len(site.ask("/api/record?name=orders&number=0").body) < 32 << 10


def test_overview_answers_before_all_journals_were_looked_at(tmp_path: Path) -> None:
    for number in range(3):
        with sej.Writer(tmp_path / f"journal {number}") as writer:
            writer.append(b"value")
    catalog = Api(tmp_path).catalog
    known = [len(catalog.overview(seconds=0)["journals"]) for _ in range(3)]
    assert known == [1, 2, 3]  # each continues with those that were not reached
    assert catalog.overview(seconds=0)["pending"] == 0


def test_slow_client_misses_events_and_delays_no_other() -> None:
    async def run() -> tuple[list[bytes], list[bytes]]:
        topic = Topic(lambda topic: None)
        fast, slow = topic.events(), topic.events()
        await anext(fast), await anext(slow)
        pending = [asyncio.ensure_future(anext(client)) for client in (fast, slow)]
        await asyncio.sleep(0)
        seen: list[bytes] = []
        for number in range(200):
            topic.publish("records", {"number": number})
            seen.append(await pending[0])
            pending[0] = asyncio.ensure_future(anext(fast))
            await asyncio.sleep(0)
        late = [await pending[1]]
        while b"199" not in late[-1] and len(late) < 64:
            late.append(await anext(slow))
        topic.publish("records", {"number": 200})
        late += [await asyncio.wait_for(anext(slow), 60) for _ in range(3)]
        return seen, late

    seen, late = asyncio.run(run())
    assert [_data(event)["number"] for event in seen] == list(range(200))
    assert len(late) <= 67
    (missed,) = [_data(event)["events"] for event in late if event.startswith(b"event: missed")]
    numbers = [_data(event)["number"] for event in late if event.startswith(b"event: records")]
    assert len(numbers) + missed == 201  # all are sent or counted
    assert numbers[-1] == 200


def _data(event: bytes) -> Any:
    return json.loads(event.partition(b"data: ")[2])
