"""The tables of docs/queue-server.md are the server's answers, however the requests are cut into pieces."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logwright import __version__
from logwright.kestrel.model.limits import Limits
from tests.servers.queue.support import VERSION, Client, Serving, serving
from tests.support.threads import DEADLINE_SECONDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "queue-server.md"
_ROW = re.compile(r"^\| `(?P<request>[^`]*⏎)` \|(?: `(?P<answer>[^`]*)`)? \|", re.MULTILINE)
Conversation = list[tuple[bytes, bytes]]


def conversations() -> Iterator[Conversation]:
    """The tables of requests and answers."""
    for table in PAGE.read_text().split("| request | answer | |\n|---|---|---|\n")[1:]:
        rows = table.partition("\n\n")[0]
        found = [tuple((match[name] or "").replace("⏎", "\r\n").encode() for name in ("request", "answer"))
                 for match in _ROW.finditer(rows)]  # fmt: skip
        assert len(found) == rows.count("\n") + 1
        yield [(request, answer) for request, answer in found]


CONVERSATIONS = list(conversations())


def at_once(client: Client, request: bytes) -> None:
    client.say(request)


def by_bytes(client: Client, request: bytes) -> None:
    for byte in request:
        client.say(bytes([byte]))


def by_lines(client: Client, request: bytes) -> None:
    for line in request.splitlines(keepends=True):
        client.say(line)


def hold(client: Client, conversation: Conversation, say: Callable[[Client, bytes], None]) -> None:
    for request, answer in conversation:
        say(client, request)
        assert client.hear(len(answer)) == answer, request
    ending = conversation[-1][0]
    if ending == b"quit\r\n":
        assert client.hear_all() == b""
    else:
        assert client.ask(b"") == b""  # and nothing else was sent


def test_page_has_the_tables() -> None:
    assert len(CONVERSATIONS) == 7
    assert sum(map(len, CONVERSATIONS)) > 80


@pytest.mark.parametrize("say", [at_once, by_lines, by_bytes])
@pytest.mark.parametrize("number", range(len(CONVERSATIONS)))
def test_conversation_matches_the_page(number: int, say: Callable[[Client, bytes], None], tmp_path: Path) -> None:
    with serving(tmp_path / "queues") as served, Client(served) as client:
        hold(client, CONVERSATIONS[number], say)


@pytest.mark.parametrize("number", range(len(CONVERSATIONS)))
def test_conversation_sent_at_once_gets_all_responses_in_order(number: int, tmp_path: Path) -> None:
    conversation = CONVERSATIONS[number]
    with serving(tmp_path / "queues") as served, Client(served) as client:
        client.say(b"".join(request for request, _ in conversation) + b"quit\r\n")
        assert client.hear_all() == b"".join(answer for _, answer in conversation)


@pytest.mark.parametrize("number", [1, 2, 4, 5])  # the others open the fast path again, by another status
def test_conversation_works_without_the_lane(number: int, tmp_path: Path) -> None:
    with serving(tmp_path / "queues") as served, Client(served) as client:
        served.call(lambda: setattr(served.service.lane, "is_open", False))
        hold(client, CONVERSATIONS[number], at_once)
        assert served.call(lambda: served.service.lane.sets + served.service.lane.hits) == 0


PURE = """
import sys
from pathlib import Path
from logwright.core.bytes.compiled import COMPILED
from tests.servers.queue.test_protocol import CONVERSATIONS, at_once, hold
from tests.servers.queue.support import Client, serving
assert not COMPILED
for number, conversation in enumerate(CONVERSATIONS):
    with serving(Path(sys.argv[1]) / str(number)) as served, Client(served) as client:
        hold(client, conversation, at_once)
print(len(CONVERSATIONS))
"""


def test_responses_are_the_same_without_kernels_and_uvloop(tmp_path: Path) -> None:
    program = "import sys\nsys.modules['uvloop'] = None\n" + PURE
    root = PAGE.parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env={**os.environ, "LOGWRIGHT_PURE": "1", "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, f"{len(CONVERSATIONS)}\n"), done.stderr
    assert "uvloop is not installed" in done.stderr


# --- beside the tables ----------------------------------------------------------------------------------------------


def test_lines_may_end_with_a_line_feed_alone(client: Client) -> None:
    assert client.ask(b"set q 0 0 2\nab\r\nget q\nversion\n") == b"STORED\r\nVALUE q 0 2\r\nab\r\nEND\r\n" + VERSION


def test_items_of_any_bytes_round_trip(client: Client) -> None:
    for item in (b"", b"\r\n", b"END\r\n", bytes(range(256)), b"get q\r\n" * 100, b"x" * (1 << 20)):
        assert client.ask(b"set q 0 0 %d\r\n%b\r\n" % (len(item), item)) == b"STORED\r\n"
        assert client.ask(b"get q\r\n") == b"VALUE q 0 %d\r\n%b\r\nEND\r\n" % (len(item), item)


def test_oversized_item_is_skipped_and_the_next_request_is_parsed(client: Client) -> None:
    large = b"flush_all\r\n" * 200_000
    answer = client.ask(b"set q 0 0 %d\r\n%b\r\n" % (len(large), large))
    assert answer == b"SERVER_ERROR object too large for cache\r\n"
    assert client.ask(b"set q 0 0 %d noreply\r\n%b\r\n" % (len(large), large)) == b""
    assert client.ask(b"get q\r\n") == b"END\r\n"


def test_overlong_line_ends_the_connection(served: Serving) -> None:
    for line in (b"get " + b"q" * 3000 + b"\r\n", b"x" * 3000):
        with Client(served) as client:
            client.say(line)
            assert client.hear_all() == b"CLIENT_ERROR line too long\r\n"


def test_overlong_name_is_refused(client: Client) -> None:
    name = b"q" * 230
    assert client.ask(b"set %b 0 0 1\r\n1\r\n" % name) == b"CLIENT_ERROR invalid queue name\r\n"
    assert client.ask(b"get %b\r\n" % name) == b"CLIENT_ERROR invalid queue name\r\n"
    assert client.ask(b"get %b\r\n" % (b"q" * 251)) == b"CLIENT_ERROR bad command line format\r\n"
    assert client.ask(b"set %b 0 0 1\r\n1\r\nget %b\r\n" % (name[:229], name[:229])).startswith(b"STORED\r\nVALUE ")


def test_client_that_stops_sending_gets_its_responses(served: Serving) -> None:
    with Client(served) as client:
        client.say(b"set q 0 0 1\r\n1\r\nget q\r\nversion\r\n")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.hear_all() == b"STORED\r\nVALUE q 0 1\r\n1\r\nEND\r\n" + VERSION


def test_stats_describe_the_server_and_each_queue(client: Client) -> None:
    client.ask(b"set q 0 0 3\r\nabc\r\nset q 0 0 1\r\nx\r\nget q\r\nget q/open\r\nget none\r\n")
    lines = client.ask(b"stats\r\n").decode().split("\r\n")
    assert lines[-2:] == ["END", ""]
    stats = dict(line.removeprefix("STAT ").split(" ", 1) for line in lines[:-2])
    expected = {
        "curr_items": "0", "total_items": "2", "bytes": "0", "curr_connections": "1", "cmd_get": "3", "cmd_set": "2",
        "get_hits": "2", "get_misses": "1", "queue_creates": "1", "queue_q_items": "0", "queue_q_total_items": "2",
        "queue_q_open_transactions": "1", "queue_q_transactions": "1", "queue_q_waiters": "0",
    }  # fmt: skip
    assert {name: stats[name] for name in expected} == expected
    dump = client.ask(b"dump_stats q\r\n").decode()
    assert dump.startswith("queue 'q' {\r\n  items=0\r\n")
    assert dump.endswith("}\r\nEND\r\n")
    assert client.ask(b"dump_stats other\r\n") == b"END\r\n"
    assert "  max_memory_bytes=134217728\r\n" in client.ask(b"dump_config\r\n").decode()
    assert "STAT max_item_bytes 1048576\r\n" in client.ask(b"stats settings\r\n").decode()


def test_kestrel_names_option_returns_plain_queue_names(tmp_path: Path) -> None:
    with serving(tmp_path / "queues", kestrel_names=True) as served, Client(served) as client:
        client.ask(b"set q 0 0 1\r\n1\r\n")
        assert client.ask(b"get q/open\r\n") == b"VALUE q 0 1\r\n1\r\nEND\r\n"


def test_flush_all_and_delete_respond_as_memcached_or_optionally_as_kestrel(tmp_path: Path) -> None:
    requests = b"flush_all\r\ndelete nowhere\r\nset q 0 0 1\r\n1\r\nflush_all\r\ndelete q\r\ndelete q\r\n"
    with serving(tmp_path / "plain") as served, Client(served) as client:
        assert client.ask(requests) == b"OK\r\nNOT_FOUND\r\nSTORED\r\nOK\r\nDELETED\r\nNOT_FOUND\r\n"
    with serving(tmp_path / "kestrel", kestrel_names=True) as served, Client(served) as client:
        flushed = b"Flushed all queues.\r\n"
        assert client.ask(requests) == flushed + b"END\r\nSTORED\r\n" + flushed + b"END\r\nEND\r\n"


def test_client_of_the_binary_protocol_is_refused_at_its_first_byte(tmp_path: Path) -> None:
    with serving(tmp_path / "queues") as served:
        with Client(served) as client:
            client.say(b"\x80")
            assert client.hear_all() == b"CLIENT_ERROR the binary protocol is not spoken here\r\n"
        with Client(served) as client:
            client.say(b"set q 0 0 1\r\n\x80\r\n\x80\x00")
            assert client.hear_all() == b"STORED\r\nCLIENT_ERROR the binary protocol is not spoken here\r\n"


def test_version_is_digits_and_stats_also_has_the_logwright_version(client: Client) -> None:
    assert client.ask(b"stats\r\n").decode().count(f"STAT logwright_version {__version__}\r\n") == 1
    assert VERSION == b"VERSION 2.4.1\r\n"


def test_flushed_items_are_not_counted_as_discarded(client: Client) -> None:
    client.ask(b"set q 0 0 1\r\n1\r\nset q 0 0 1\r\n2\r\nflush q\r\n")
    assert b"STAT queue_q_discarded 0\r\n" in client.ask(b"stats\r\n")
    assert b"STAT queue_q_total_flushes 1\r\n" in client.ask(b"stats\r\n")


def test_full_queue_stores_no_more_items(tmp_path: Path) -> None:
    with serving(tmp_path / "queues", queues=Limits(max_items=1)) as served, Client(served) as client:
        assert client.ask(b"set q 0 0 1\r\n1\r\nset q 0 0 1\r\n2\r\n") == b"STORED\r\nNOT_STORED\r\n"
        assert served.items("q") == [b"1"]
