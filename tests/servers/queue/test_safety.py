"""Unauthorized clients, slow clients and hostile names are refused or dropped, without affecting others."""

from __future__ import annotations

import contextlib
import itertools
import os
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logwright.errors import Locked, WrongUse
from logwright.kestrel.bytes.layout import MAX_NAME_BYTES
from logwright.servers.queue import server
from logwright.servers.queue.connection import Connection
from logwright.servers.queue.limits import ServerLimits
from logwright.servers.queue.server import QueueServer
from logwright.servers.queue.service import ServerSettings
from logwright.servers.security import Address, Protection
from tests.servers.queue.support import VERSION, Client, serving
from tests.support.certificates import Authority
from tests.support.counts import COUNTS

SECRET = b"a-token-of-some-length"


# --- admission --------------------------------------------------------------------------------------------------------


def protection(directory: Path, authority: Authority, *, tokens: bool = False, clients: bool = False) -> Protection:
    own = authority.issue("server")
    file = directory / "tokens"
    file.touch(0o600)
    file.write_bytes(b"# ours\n" + SECRET + b"\nanother-token-of-some-length\n")
    return Protection.load(
        certificate=own.certificate,
        key=own.key,
        tokens=file if tokens else None,
        client_authority=authority.path if clients else None,
    )


def test_address_beyond_loopback_needs_tls_and_tokens_or_an_option(tmp_path: Path) -> None:
    everywhere = Address("0.0.0.0", 0)
    with pytest.raises(WrongUse, match="use TLS"):
        QueueServer(ServerSettings(directory=tmp_path, address=everywhere))
    open_to_all = protection(tmp_path, Authority(tmp_path / "certificates"))
    with pytest.raises(WrongUse, match="TLS alone admits every client"):
        QueueServer(ServerSettings(directory=tmp_path, address=everywhere, protection=open_to_all))
    with pytest.raises(WrongUse, match="use TLS"):
        QueueServer(ServerSettings(directory=tmp_path, metrics=everywhere))
    with serving(tmp_path / "q", address=everywhere, protection=Protection(insecure=True)) as served:
        address = Address("127.0.0.1", served.address.port)
        with Client(address) as client:
            assert client.ask(b"") == b""


def test_client_sends_its_token_over_tls_before_anything_else(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    safe = protection(tmp_path, authority, tokens=True)
    with serving(tmp_path / "queues", protection=safe) as served:
        context = authority.trusting()
        with Client(served, context) as client:
            unknown = b"CLIENT_ERROR unauthenticated\r\n"
            client.say(b"get q\r\nversion\r\nflush_all\r\n\r\nset t 0 0 %d\r\n%b\r\n" % (len(SECRET), SECRET))
            assert client.hear(len(unknown) * 4 + 8) == unknown * 4 + b"STORED\r\n"
            assert client.ask(b"set q 0 0 1\r\n1\r\nget q\r\n") == b"STORED\r\nVALUE q 0 1\r\n1\r\nEND\r\n"
        with Client(served, context) as client:
            named = b"ada another-token-of-some-length"
            assert client.ask(b"set t 0 0 %d\r\n%b\r\n" % (len(named), named)) == b"STORED\r\n"
        for wrong in (b"", SECRET[:-1], SECRET + b"x", SECRET + b" "):
            with Client(served, context) as client:
                client.say(b"set t 0 0 %d\r\n%b\r\nversion\r\n" % (len(wrong), wrong))
                assert client.hear_all() == b"CLIENT_ERROR authentication failure\r\n"
        with Client(served, context) as client:
            client.say(b"set t 0 0 2000\r\n%b\r\n" % bytes(2000))
            assert client.line() == unknown
        assert served.state() == {"q": ([], 0)}


def test_tls_and_client_certificates_are_required(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "stranger")
    safe = protection(tmp_path, authority, clients=True)
    with serving(tmp_path / "queues", protection=safe) as served:
        with Client(served, authority.trusting(authority.issue("client"))) as client:
            assert client.ask(b"set q 0 0 1\r\n1\r\n") == b"STORED\r\n"
        with Client(served) as plain:
            plain.say(b"version\r\n")
            assert VERSION not in plain.hear_all()
        for own in (None, stranger.issue("client")):
            with pytest.raises((ssl.SSLError, ConnectionError)):  # noqa: PT012, SIM117  # raised at the first byte, or later
                with Client(served, authority.trusting(own)) as client:
                    client.say(b"version\r\n")
                    if client.hear_all() == b"":
                        raise ConnectionError("closed without a word")
        assert served.state() == {"q": ([b"1"], 0)}


def test_expired_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    with serving(tmp_path / "queues", protection=protection(tmp_path, authority, clients=True)) as served:
        with (
            contextlib.suppress(OSError),
            Client(served, authority.trusting(authority.issue("late", days=-1))) as client,
        ):
            client.say(b"set q 0 0 1\r\n1\r\n")
            assert client.hear_all() == b""
        assert served.state() == {}


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01", b"version\r\n"], ids=["nothing", "a hello", "plain text"])
def test_slow_tls_handshake_is_dropped(begun: bytes, tmp_path: Path) -> None:
    safe = protection(tmp_path, Authority(tmp_path / "ours"), tokens=True)
    limits = ServerLimits(handshake_seconds=0.05)
    with serving(tmp_path / "queues", protection=safe, limits=limits) as served, Client(served) as client:
        client.say(begun)
        assert VERSION not in client.hear_all()


def test_stalled_tls_handshakes_do_not_block_other_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_HANDSHAKES", 8)
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.0)
    authority = Authority(tmp_path / "ours")
    safe = protection(tmp_path, authority, clients=True)
    context = authority.trusting(authority.issue("client"))
    with serving(tmp_path / "queues", protection=safe) as served, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(Client(served)) for _ in range(40)]
        with Client(served, context) as client:
            assert client.ask(b"set q 0 0 1\r\n1\r\n") == b"STORED\r\n"
        assert all(one.hear_all() == b"" for one in silent[:32])
        assert served.call(lambda: len(served.service.connections)) <= 1


def test_many_concurrent_tls_handshakes_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = 60
    monkeypatch.setattr(server, "MOST_HANDSHAKES", 8)
    authority = Authority(tmp_path / "ours")
    context = authority.trusting(authority.issue("client"))
    safe = protection(tmp_path, authority, clients=True)
    with serving(tmp_path / "queues", protection=safe) as served, ThreadPoolExecutor(clients) as threads:

        def put(number: int) -> bytes:
            with Client(served, context) as client:
                return client.ask(b"set q 0 0 2\r\n%02d\r\n" % number)

        assert list(threads.map(put, range(clients))) == [b"STORED\r\n"] * clients
        assert sorted(served.items("q")) == [b"%02d" % number for number in range(clients)]


def test_directory_has_only_one_server(tmp_path: Path) -> None:
    with serving(tmp_path / "queues"), pytest.raises(Locked), serving(tmp_path / "queues"):
        pass


# --- slow clients, and too many ---------------------------------------------------------------------------------------


def test_client_beyond_the_limit_gets_an_error(tmp_path: Path) -> None:
    with serving(tmp_path, limits=ServerLimits(max_connections=2)) as served:
        with Client(served) as first, Client(served) as second:
            first.ask(b""), second.ask(b"")
            with Client(served) as third:
                assert third.hear_all() == b"SERVER_ERROR too many connections\r\n"
            assert first.ask(b"") == second.ask(b"") == b""
        served.until(lambda: not served.service.connections)
        with Client(served) as client:
            assert client.ask(b"") == b""


@pytest.mark.parametrize("begun", [b"ge", b"set q 0 0 10\r\n12345", b"set q 0 0 3\r\nabc", b"set q 0 0 3\r\nabcd"])
def test_unfinished_request_ends_the_connection(begun: bytes, tmp_path: Path) -> None:
    limits = ServerLimits(command_seconds=0.005)
    with serving(tmp_path, limits=limits) as served, Client(served) as client, Client(served) as other:
        assert client.ask(b"set q 0 0 1\r\n1\r\nget q/open\r\n").startswith(b"STORED")
        client.say(begun)
        assert client.hear_all() == b""
        served.until(lambda: len(served.service.connections) == 1)
        assert other.ask(b"get q\r\n") == b"VALUE q 0 1\r\n1\r\nEND\r\n"
        assert served.call(lambda: served.service.arriving.bytes) == 0
        assert served.call(lambda: served.service.counters.dropped_connections) == 1


def test_time_limit_of_a_request_begins_with_its_first_byte(tmp_path: Path) -> None:
    with serving(tmp_path) as served, Client(served) as client:
        client.ask(b"")
        (connection,) = served.service.connections
        assert isinstance(connection, Connection)
        before = time.monotonic()
        client.say(b"ge")
        served.until(lambda: connection._parser.is_within)
        assert served.call(lambda: connection.why_overdue(before + served.service.limits.command_seconds)) is None
        late = time.monotonic() + 1 + served.service.limits.command_seconds
        assert served.call(lambda: connection.why_overdue(late)) == "does not finish its request"


def test_idle_client_is_dropped_but_not_a_waiting_one(tmp_path: Path) -> None:
    with serving(tmp_path, limits=ServerLimits(idle_seconds=0.2)) as served, Client(served) as waiting:
        waiting.say(b"get q/t=60000\r\n")
        queues = served.service.queues.by_key
        served.until(lambda: b"q" in queues and queues[b"q"].waiters)
        with Client(served) as silent:
            assert silent.hear_all() == b""
        served.call(lambda: served.service.put(queues[b"q"], b"1", 0))
        assert waiting.line() == b"VALUE q/t=60000 0 1\r\n"


def test_client_without_a_token_is_dropped(tmp_path: Path) -> None:
    limits = ServerLimits(handshake_seconds=0.01)
    with serving(tmp_path, limits=limits, protection=Protection(tokens=(SECRET,))) as served, Client(served) as client:
        client.say(b"ver")
        assert client.hear_all() == b""


def test_client_that_reads_no_responses_is_paused_then_dropped_without_affecting_others(tmp_path: Path) -> None:
    limits = ServerLimits(answer_seconds=0.05, output_buffer_bytes=10_000)
    item = bytes(1000)
    with serving(tmp_path, limits=limits) as served, Client(served) as slow, Client(served) as other:
        other.ask(b"set q 0 0 1000\r\n%b\r\n" % item)
        slow.socket.settimeout(0.2)
        peeks = b"get q/peek\r\n" * 5000
        with contextlib.suppress(OSError):  # a timeout, or the end of the connection
            while True:
                slow.say(peeks)
        served.until(lambda: len(served.service.connections) == 1)
        assert other.ask(b"get q\r\n") == b"VALUE q 0 1000\r\n%b\r\nEND\r\n" % item
        assert served.call(lambda: served.service.counters.dropped_connections) == 1


def test_requests_after_a_waiting_one_are_buffered_up_to_a_limit(tmp_path: Path) -> None:
    limits = ServerLimits(input_buffer_bytes=1000)
    with serving(tmp_path, limits=limits) as served, Client(served) as client, Client(served) as other:
        client.say(b"get q/t=60000\r\n" + b"version\r\n" * 10_000)
        served.until(lambda: b"q" in served.service.queues.by_key and served.service.queues.by_key[b"q"].waiters)
        other.ask(b"set q 0 0 1\r\n1\r\n")
        expected = b"VALUE q/t=60000 0 1\r\n1\r\nEND\r\n" + VERSION * 10_000
        assert client.hear(len(expected)) == expected


def test_number_of_queues_is_limited(tmp_path: Path) -> None:
    with serving(tmp_path, limits=ServerLimits(max_queues=2)) as served, Client(served) as client:
        for name in (b"a", b"b"):
            assert client.ask(b"set %b 0 0 1\r\n1\r\n" % name) == b"STORED\r\n"
        many = b"SERVER_ERROR too many queues\r\n"
        assert client.ask(b"set c 0 0 1\r\n1\r\nget c/t=5\r\nmonitor c 1\r\nget a+c\r\n") == many * 4
        assert client.ask(b"get c\r\nset a 0 0 1\r\n2\r\ndelete a\r\n") == b"END\r\nSTORED\r\nDELETED\r\n"
        assert client.ask(b"set c 0 0 1\r\n1\r\n") == b"STORED\r\n"
        assert sorted(served.state()) == ["b", "c"]


# --- names ------------------------------------------------------------------------------------------------------------

HOSTILE = [
    b"..", b"../canary", b"../canary/file", b"/etc/passwd", b"canary/../../canary", b"link", b"link+a", b"a+link",
    b".logwright", b"..\\canary", b"%2e%2e", b"a\x00b", b"\x00", b"~", b"q~~1", b"q.1", b"q.1.pack", b"\xff\xfe",
    b"\xc0\xae", b"C:", b"con", b"-rf", b"$(id)", b"`id`", b";id", b"|id", b"*", b"?", b"'", b'"', b"a+../b", b"..+a",
    b"+..",
]  # fmt: skip
COMMANDS = [
    b"set %b 0 0 5\r\nowned\r\n", b"get %b\r\n", b"get %b/open\r\n", b"get %b/t=1\r\n", b"get %b/peek\r\n",
    b"get x/t=1 %b\r\n", b"delete %b\r\n", b"flush %b\r\n", b"monitor %b 0\r\n", b"confirm %b 1\r\n",
    b"dump_stats %b\r\n", b"stats %b\r\n", b"status %b\r\n", b"%b\r\n",
]  # fmt: skip


def tree(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """Everything below a directory: its mode, and its contents or the target of a link."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(root.rglob("*")):
        content: bytes | str = (
            str(path.readlink()) if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
        )
        found[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return found


@pytest.mark.parametrize("kind", ["directory", "link", "dangling link", "link to a directory", "pipe"])
def test_entry_that_is_not_a_file_in_place_of_a_queue_is_reported(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with serving(tmp_path / "queues") as served, Client(served) as client:
        place = tmp_path / "queues" / "q"
        if kind == "directory":
            place.mkdir()
        elif kind == "pipe":
            os.mkfifo(place)
        else:
            targets = {"link": "file", "dangling link": "nothing", "link to a directory": "queues"}
            place.symlink_to(tmp_path / targets[kind])
        answer = b"SERVER_ERROR a directory or a link has the name of the queue\r\n"
        for request in (b"set q 0 0 1\r\n1\r\n", b"get q/t=1\r\n", b"monitor q 1\r\n"):
            assert client.ask(request) == answer
        assert client.ask(b"set r 0 0 1\r\n1\r\n") == b"STORED\r\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "queues"]
    assert (tmp_path / "file").read_bytes() == b""


def test_longest_queue_name_is_that_of_the_page(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "queue-server.md").read_text("utf-8")
    assert f"The name alone has at most {MAX_NAME_BYTES} bytes" in page
    with serving(tmp_path) as served, Client(served) as client:
        assert client.ask(b"set %b 0 0 1\r\n1\r\n" % (b"q" * MAX_NAME_BYTES)) == b"STORED\r\n"
        for size in (MAX_NAME_BYTES + 1, 250):
            refused = b"CLIENT_ERROR invalid queue name\r\n"
            assert client.ask(b"set %b 0 0 1\r\n1\r\n" % (b"q" * size)) == refused
        assert client.ask(b"get %b/peek\r\n" % (b"q" * MAX_NAME_BYTES)).endswith(b"\r\n1\r\nEND\r\n")


def test_hostile_names_change_nothing_outside(tmp_path: Path) -> None:
    canary, home = tmp_path / "canary", tmp_path / "home" / "queues"
    (canary / "inside").mkdir(parents=True)
    for name in ("file", "inside/file", "q", "owned"):
        (canary / name).write_bytes(b"alive")
    home.mkdir(parents=True)
    (tmp_path / "home" / "file").write_bytes(b"alive")
    with serving(home) as served, Client(served) as client:
        (home / "link").symlink_to(canary / "file")
        (home / "a+link").symlink_to(canary / "inside" / "file")
        (home / "link+a").symlink_to(canary)
        before = tree(canary)
        count = 0
        for queue, command in itertools.product(HOSTILE, COMMANDS):
            answer = client.ask(command % queue)
            assert answer.endswith(b"\r\n") or b"noreply" in command, command % queue
            if b"link" in queue and command.startswith((b"set", b"monitor")):
                assert answer.startswith((b"SERVER_ERROR", b"CLIENT_ERROR")), command % queue
            count += 1
        assert tree(canary) == before
        assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["file", "queues"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["canary", "home"]
    assert tree(canary) == before
    COUNTS.add("hostile inputs", count, "kestrel")
