"""Queues that cannot be opened are refused with the reason and not changed, and the others are served."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from logwright.errors import Locked
from logwright.kestrel.model.queue import Queue
from logwright.servers.queue.limits import ServerLimits
from tests.servers.queue.support import Client, serving

DAMAGED = b"SERVER_ERROR the queue's journal is damaged\r\n"
HELD = b"SERVER_ERROR another process has locked the queue\r\n"
NO_FILE = b"SERVER_ERROR a directory or a link has the name of the queue\r\n"
QUICK = ServerLimits(retry_seconds=0.002)
REQUESTS = (
    b"set q 0 0 1\r\n1\r\n", b"get q\r\n", b"get q/open\r\n", b"get q/peek\r\n", b"get q/t=1\r\n", b"monitor q 1\r\n",
    b"delete q\r\n", b"flush q\r\n",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the log of failures, which these tests do not check."""
    logging.getLogger("logwright").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("logwright").setLevel(logging.NOTSET)


def test_file_that_is_not_a_journal_is_not_changed_and_the_others_are_served(tmp_path: Path) -> None:
    text = b"hello, this is a list of things to do\n"
    (tmp_path / "q").write_bytes(text)
    with Queue(tmp_path, "other") as queue:
        queue.put(b"2")
    with serving(tmp_path, limits=QUICK) as served, Client(served) as client:
        for request in REQUESTS:
            assert client.ask(request) == DAMAGED, request
        assert client.ask(b"delete q noreply\r\nget other\r\n") == b"VALUE other 0 1\r\n2\r\nEND\r\n"
        assert (tmp_path / "q").read_bytes() == text
        (tmp_path / "q").unlink()
        served.until(lambda: b"q" in served.service.queues.by_key)
        assert client.ask(b"set q 0 0 1\r\n1\r\nget q\r\n") == b"STORED\r\nVALUE q 0 1\r\n1\r\nEND\r\n"
        assert client.ask(b"delete q\r\n") == b"DELETED\r\n"
    assert not (tmp_path / ".logwright" / "cut").exists()


def test_flush_all_names_failed_queues_and_flushes_the_others(tmp_path: Path) -> None:
    with serving(tmp_path, limits=QUICK) as served, Client(served) as client:
        assert client.ask(b"flush_all\r\n") == b"OK\r\n"
    for number in range(7):
        (tmp_path / f"q{number}").write_bytes(b"no journal")
    with Queue(tmp_path, "other") as queue:
        queue.put(b"2")
    with serving(tmp_path, limits=QUICK) as served, Client(served) as client:
        answer = b"SERVER_ERROR not flushed: q0, q1, q2, q3, q4 and 2 more\r\n"
        assert client.ask(b"flush_all\r\nget other\r\n") == answer + b"END\r\n"
        for number in range(1, 7):
            (tmp_path / f"q{number}").unlink()
        served.until(lambda: list(served.service.queues.refused) == [b"q0"])
        assert client.ask(b"flush_all\r\nflush_all noreply\r\n") == b"SERVER_ERROR not flushed: q0\r\n"
        (tmp_path / "q0").unlink()
        served.until(lambda: not served.service.queues.refused)
        assert client.ask(b"flush_all\r\n") == b"OK\r\n"


def test_damaged_child_does_not_prevent_reading_its_parent(tmp_path: Path) -> None:
    with Queue(tmp_path, "news") as queue:
        queue.put_many([b"1", b"2", b"3"])
    (tmp_path / "news+arch").write_bytes(b"no journal")
    with serving(tmp_path, limits=QUICK) as served, Client(served) as client:
        assert client.ask(b"get news/open\r\nget news/close\r\n") == b"VALUE news/open 0 1\r\n1\r\nEND\r\nEND\r\n"
        assert client.ask(b"set news 0 0 1\r\n4\r\n" * 3) == DAMAGED * 3
        assert client.ask(b"get news+arch\r\ndelete news+arch\r\nflush news+arch\r\n") == DAMAGED * 3
        assert client.ask(b"get news\r\n") == b"VALUE news 0 1\r\n2\r\nEND\r\n"
        (tmp_path / "news+arch").unlink()
        served.until(lambda: b"news+arch" in served.service.queues.by_key)
        assert client.ask(b"set news 0 0 1\r\n4\r\n") == b"STORED\r\n"
        assert served.state() == {"news": ([b"3", b"4"], 0), "news+arch": ([b"4"], 0)}
        assert client.ask(b"delete news+arch\r\nset news 0 0 1\r\n5\r\n") == b"DELETED\r\nSTORED\r\n"
        assert served.state() == {"news": ([b"3", b"4", b"5"], 0)}


def test_opening_is_retried_with_backoff(tmp_path: Path) -> None:
    (tmp_path / "q").write_bytes(b"no journal")
    with serving(tmp_path, limits=QUICK) as served:
        served.until(lambda: served.service.queues._delays[b"q"] >= 0.1)
        assert list(served.service.queues.refused) == [b"q"]


def test_directory_in_place_of_a_queue_is_reported_by_delete(tmp_path: Path) -> None:
    with serving(tmp_path) as served, Client(served) as client:
        (tmp_path / "q").mkdir()
        assert client.ask(b"delete q\r\nflush q\r\ndelete r\r\n") == NO_FILE * 2 + b"NOT_FOUND\r\n"


def test_queue_created_after_the_start_can_be_deleted(tmp_path: Path) -> None:
    with serving(tmp_path) as served, Client(served) as client:
        with Queue(tmp_path, "q") as queue:
            queue.put(b"1")
            assert client.ask(b"delete q\r\n") == HELD
        assert client.ask(b"delete q\r\n") == b"DELETED\r\n"
        assert not (tmp_path / "q").exists()


def test_server_does_not_start_while_another_process_has_a_queue(tmp_path: Path) -> None:
    with Queue(tmp_path, "q"), pytest.raises(Locked), serving(tmp_path):
        pass
