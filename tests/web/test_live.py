"""Live events: one reader for all browsers, bursts, names and values that are hostile, and the end of followers."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from logwright import kestrel, sej
from logwright.web.live import event
from tests.web.support import serving, wait_until


def test_appended_records_reach_all_clients_by_one_reader(tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "orders") as writer, serving(tmp_path) as site, contextlib.ExitStack() as stack:
        writer.append(b"before")
        writer.flush()
        clients = [stack.enter_context(site.events("journal/live", name="orders")) for _ in range(8)]
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


@pytest.mark.parametrize("text", ["a\nevent: records\ndata: {}\n\n", "\r\n\r\n", "\u2028", "</script>"])
def test_value_cannot_end_an_event(text: str) -> None:
    encoded = event("records", {"rows": [{"text": text}]})
    assert encoded.count(b"\n") == 3
    assert b"\r" not in encoded


def test_live_of_an_unknown_journal_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        assert site.refused("journal/live", name="../../etc")[0] == 404
        assert site.refused("check", name="nothing")[0] == 404
