"""The program itself: its output, its clean end on SIGTERM and Ctrl-C, its metrics, and real clients."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymemcache import serde
from pymemcache.client.base import Client as Memcache
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError, MemcacheUnknownCommandError

from logwright.cli import every_verb
from logwright.kestrel.model.queue import Queue
from logwright.servers.security import Address, parse_address
from tests.cli.support import run as command_line
from tests.servers.queue.support import Client, serving
from tests.support.children import held_by
from tests.support.threads import DEADLINE_SECONDS

TOOLS = ("/usr/share/memcached/scripts/memcached-tool", "memcached-tool")


class Program:
    """`logwright serve kestrel` in a separate process."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "logwright", "serve", "kestrel", str(directory), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def first_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def announcement(self) -> dict[str, Any]:
        """The output of --json when it is ready."""
        found: dict[str, Any] = json.loads(self.first_line())
        return found

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send it a signal; its exit code, and its output since."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, out, err


@contextlib.contextmanager
def program(directory: Path, *options: str) -> Iterator[Program]:
    found = Program(directory, *options)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
        found.process.communicate(timeout=DEADLINE_SECONDS)


def test_server_prints_its_address_and_limits(tmp_path: Path) -> None:
    with program(tmp_path / "queues", "--sync", "always", "--max-item", "64k", "--max-connections", "7") as running:
        line = running.first_line()
        assert line.startswith(f"the queue server of {tmp_path / 'queues'} is ready at 127.0.0.1:")
        code, out, err = running.end(signal.SIGINT)
    assert (code, out) == (0, "")
    assert "sync: always\n" in err
    assert "clients: plain text, no tokens\n" in err
    assert "max connections 7, " in err
    assert "max item 64.0 KiB, " in err


def test_second_server_names_the_process_of_the_first(tmp_path: Path) -> None:
    with program(tmp_path / "queues") as running:
        running.first_line()
        second = command_line("serve", "kestrel", tmp_path / "queues", "--listen", "127.0.0.1:0")
        assert second.code == 2
        assert second.err.endswith(f"{held_by(running.process.pid)}\n")
        assert " is locked by another " in second.err


def test_example_of_the_help_runs(tmp_path: Path) -> None:
    line = dict(every_verb())["serve kestrel"].examples[1][1]
    command = [sys.executable, "-m", *line.split()]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        announced = json.loads(process.stdout.readline())
        with Client(parse_address(announced["address"])) as client:
            assert client.ask(b"set q 0 0 1\r\n1\r\n") == b"STORED\r\n"
        process.terminate()
    assert process.returncode == 0
    assert announced["serving"] == "the queue server of queues"
    assert (tmp_path / "queues" / "q").stat().st_size == 22


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--listen", "0.0.0.0:0"], "use TLS"),
        (["--max-item", "many"], "is not a size"),
        (["--sync", "sometimes"], "is none of"),
        (["--idle-seconds", "0"], "idle_seconds must be a positive number"),
        (["--tokens", "/etc/passwd"], "is accessible to others"),
        (["--queue-items", "0"], "max_items cannot be 0"),
    ],
)
def test_invalid_options_are_refused(options: list[str], reason: str, tmp_path: Path) -> None:
    outcome = command_line("serve", "kestrel", tmp_path / "queues", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert reason in outcome.err
    assert not (tmp_path / "queues").exists()


@pytest.mark.parametrize("sync", ["none", "always"])
def test_sigterm_answers_requests_returns_open_items_and_loses_nothing(sync: str, tmp_path: Path) -> None:
    with program(tmp_path, "--json", "--sync", sync) as running:
        announced = running.announcement()
        assert announced["sync"] == sync
        assert announced["limits"]["max_connections"] == 1024
        address = parse_address(announced["address"])
        clients = [Client(address) for _ in range(10)]
        assert clients[0].ask(b"set q 0 0 1\r\n1\r\nset q 0 0 1\r\n2\r\nget q/open\r\n").count(b"\r\n") == 5
        clients[1].say(b"get empty/t=600000\r\n")
        assert clients[3].ask(b"set empty+a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        for one in clients[2:]:
            one.say(b"set more 0 0 1\r\nx\r\n" * 50)
        code, out, err = running.end()
        heard = [one.hear_all() for one in clients]
        for one in clients:
            one.close()
    assert (code, out) == (0, "")
    assert "error" not in err
    assert heard[1] in (b"END\r\n", b"")  # or it had not been read yet
    stored = sum(answers.count(b"STORED\r\n") for answers in heard[2:])
    with Queue(tmp_path, "q") as queue:
        assert list(queue) == [b"1", b"2"]
    with Queue(tmp_path, "more") as queue:
        assert len(queue) >= stored


def test_metrics_are_valid_for_prometheus(tmp_path: Path) -> None:
    with serving(tmp_path, metrics=Address("127.0.0.1", 0)) as served, Client(served) as client:
        client.ask(b'set a"b 0 0 3\r\nabc\r\nset q 0 0 1\r\nx\r\nget q\r\nget q\r\nget a"b/open\r\nnonsense\r\n')
        url = f"http://{served.server.metrics_address}/metrics"
        with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            lines = answer.read().decode().splitlines()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url + "x", timeout=DEADLINE_SECONDS)
    expected = [
        "logwright_kestrel_up 1", "logwright_kestrel_connections 1", "logwright_kestrel_queues 2",
        "logwright_kestrel_cmd_set_total 2", "logwright_kestrel_cmd_get_total 3", "logwright_kestrel_get_hits_total 2",
        "logwright_kestrel_get_misses_total 1", "logwright_kestrel_items_total 2", "logwright_kestrel_refused_total 1",
        "logwright_kestrel_disk_is_low 0", 'logwright_kestrel_queue_items{queue="q"} 0',
        'logwright_kestrel_queue_open{queue="a\\"b"} 1', 'logwright_kestrel_queue_items_total{queue="q"} 1',
        "# TYPE logwright_kestrel_cmd_set_total counter", "# TYPE logwright_kestrel_queue_items gauge",
    ]  # fmt: skip
    assert [line for line in expected if line not in lines] == []
    names = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(names) == len(set(names))
    assert {line.split("{")[0].split()[0] for line in lines if not line.startswith("#")} <= set(names)


# --- real clients -----------------------------------------------------------------------------------------------------


@pytest.fixture
def address(tmp_path: Path) -> Iterator[Address]:
    with serving(tmp_path / "queues") as served:
        yield served.address


@pytest.fixture
def memcache(address: Address) -> Iterator[Memcache]:
    client = Memcache((address.host, address.port), default_noreply=False, timeout=DEADLINE_SECONDS)
    yield client
    client.close()


def test_pymemcache_puts_and_gets(memcache: Memcache) -> None:
    assert memcache.set("q", b"one")
    assert memcache.set("q", "two", expire=100)
    assert memcache.set("q", b"three", noreply=True)
    assert memcache.get("q") == b"one"
    value, number = memcache.gets("q")
    assert (value, number.isdigit()) == (b"two", True)
    assert memcache.get("q/t=1000") == b"three"
    assert memcache.get("q") is None
    assert memcache.set_many({"a": b"1", "b": b"2"}) == []
    assert memcache.get_many(["a", "b", "c"]) == {"a": b"1", "b": b"2"}
    assert memcache.delete("a") is True
    assert memcache.delete("a") is False
    assert memcache.set("b", b"x")
    assert memcache.flush_all() is True
    assert memcache.get("b") is None
    assert memcache.version() == b"2.4.1"
    assert memcache.stats()[b"curr_items"] == 0
    memcache.quit()


def test_pymemcache_reads_reliably(memcache: Memcache, address: Address) -> None:
    for item in (b"1", b"2"):
        memcache.set("q", item)
    assert memcache.get("q/open") == b"1"
    assert memcache.get("q/close/open") == b"2"
    memcache.close()  # the next call connects again
    with pytest.raises(MemcacheClientError):
        memcache.get("q/nonsense")
    assert memcache.get("q/open/t=5000") == b"2"
    assert memcache.get("q/close") is None
    assert memcache.get("q") is None
    assert memcache.raw_command("monitor q 0") == b"END"
    assert memcache.raw_command("status") == b"UP"


def test_pymemcache_gets_error_messages(memcache: Memcache) -> None:
    with pytest.raises(MemcacheServerError, match="object too large"):
        memcache.set("q", bytes(2 << 20))
    with pytest.raises(MemcacheClientError, match="invalid queue name"):
        memcache.set("../q", b"x")
    with pytest.raises(MemcacheUnknownCommandError):
        memcache.incr("q", 1)
    with pytest.raises(MemcacheUnknownCommandError):
        memcache.add("q", b"x")
    assert memcache.get("q") is None


def test_flags_of_pymemcache_are_not_returned(address: Address) -> None:
    client = Memcache((address.host, address.port), serde=serde.pickle_serde, default_noreply=False)
    client.set("q", 17)
    assert client.get("q") == b"17"  # a text: its type is in the flags, for which a journal has no field
    client.close()


def tool(*names: str) -> str:
    for name in names:
        if (found := shutil.which(name)) is not None:
            return found
    pytest.skip(f"{names[-1]} is not installed")


def output_of(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)
    return done.returncode, done.stdout + done.stderr


def test_tools_of_libmemcached_work(address: Address, tmp_path: Path) -> None:
    servers = f"--servers={address}"
    (tmp_path / "item").write_text("an item")
    assert output_of(tool("memccp"), servers, str(tmp_path / "item"))[0] == 0
    code, out = output_of(tool("memccat"), servers, "item")
    assert (code, out.strip()) == (0, "an item")
    assert output_of(tool("memcping"), servers)[0] == 0
    code, out = output_of(tool("memcstat"), servers)
    assert code == 0
    assert "curr_items: 0" in out
    output_of(tool("memccp"), servers, str(tmp_path / "item"))
    assert output_of(tool("memcflush"), servers)[0] == 0
    assert output_of(tool("memccat"), servers, "item")[1].strip() == ""
    assert output_of(tool("memcrm"), servers, "item")[0] == 0
    assert output_of(tool("memccat"), servers, "item")[1].strip() == ""


def test_memcached_tool_works(address: Address) -> None:
    script = tool(*TOOLS)
    code, out = output_of(script, str(address), "stats")
    assert code == 0
    assert "curr_connections" in out
    assert output_of(script, str(address), "settings")[0] == 0
    assert output_of(script, str(address), "display")[0] == 0
