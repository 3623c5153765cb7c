"""`logwright serve hub` and `logwright copy` as programs: their output, and how they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logwright.cli import every_verb
from logwright.sej import Scanner
from tests.cli.conftest import samples  # noqa: F401  # the sample journals
from tests.cli.support import environment, run
from tests.servers.hub.support import damage, unlike, write_journal, write_secret
from tests.support.certificates import Authority
from tests.support.children import held_by
from tests.support.threads import DEADLINE_SECONDS

EXAMPLES = {name: verb.examples for name, verb in every_verb()}


@contextmanager
def program(*arguments: object, code: int = 0) -> Iterator[tuple[Any, subprocess.Popen[str]]]:
    """A verb in a separate process, from its first line of JSON on; ended by SIGTERM, with this exit code."""
    command = [sys.executable, "-m", "logwright", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate(timeout=DEADLINE_SECONDS)[1]
        yield json.loads(line), process
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, out) == (code, ""), err
        assert all(line.startswith("logwright: ") for line in err.splitlines()), err
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_examples_of_copy_work_with_a_hub_that_ends_by_sigterm(samples: Path, tmp_path: Path) -> None:  # noqa: F811
    arguments = ("serve", "hub", tmp_path / "hub", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--json")
    with program(*arguments) as (ready, _):
        assert ready["serving"] == "hub"
        assert ready["protection"] == "plain text, no tokens"
        assert ready["sync"] == "always"
        assert ready["limits"]["request_bytes"] == 16 << 20
        for _, line in EXAMPLES["copy"]:
            if "--follow" in line:
                continue
            words = line.replace("127.0.0.1:7878", ready["address"]).split()[1:]
            words[1] = str(tmp_path / words[1] if "--restore" in words else samples / words[1])
            outcome = run(*words)
            assert (outcome.code, outcome.err) == (0, "")
            assert "messages" in outcome.out
        with urllib.request.urlopen(f"http://{ready['metrics']}/metrics", timeout=DEADLINE_SECONDS) as answer:
            text = answer.read().decode()
    orders = sum(1 for _ in (samples / "orders" / "jnl").glob("*.jnl"))
    assert orders > 0
    assert 'logwright_hub_requests_total{method="Put"}' in text
    assert unlike(samples / "orders", tmp_path / "hub" / "web1.orders") == []
    assert unlike(samples / "orders", tmp_path / "restored") == []
    assert sorted(path.name for path in (tmp_path / "hub").glob("web1.events.*"))


def test_examples_of_serve_hub_are_parsed() -> None:
    for _, line in EXAMPLES["serve hub"]:
        words = line.split()
        assert words[:3] == ["logwright", "serve", "hub"]
        outcome = run(*words[1:], "--listen", "nowhere")
        assert outcome.code == 2
        assert "is not an address" in outcome.err or "hub.crt" in outcome.err


def wait_for(copy: Path, count: int) -> None:
    """Wait until a copy has `count` messages."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (copy / "jnl").exists():
        assert time.monotonic() < deadline
    with Scanner(copy, 0, timeout=DEADLINE_SECONDS) as scanner:
        for number, _ in enumerate(scanner, start=1):
            if number == count:
                return
    pytest.fail(f"{count} messages did not arrive")


def test_following_ends_by_sigterm_and_reports_what_it_has_sent(tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_journal(source, 100)
    with program("serve", "hub", tmp_path / "hub", "--listen", "127.0.0.1:0", "--json") as (ready, _):
        command = [sys.executable, "-m", "logwright", "copy", str(source), ready["address"]]
        command += ["--client", "web", "--follow", "--json"]
        following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        copy = tmp_path / "hub" / "web.orders"
        wait_for(copy, 100)
        write_journal(source, 50)
        wait_for(copy, 150)
        os.kill(following.pid, signal.SIGTERM)
        out, err = following.communicate(timeout=DEADLINE_SECONDS)
        assert (following.returncode, err) == (0, "")
        assert json.loads(out)["next"] in (100, 150)  # acknowledged by then
    assert unlike(source, copy) == []


def test_hub_options_enable_tls_and_tokens(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("hub")
    tokens = write_secret(tmp_path / "tokens", b"a-token-of-twenty-chars")
    write_journal(tmp_path / "orders", 10)
    serving = ("serve", "hub", tmp_path / "hub", "--listen", "127.0.0.1:0", "--json")
    secured = ("--tls-certificate", own.certificate, "--tls-key", own.key, "--tokens", tokens)
    with program(*serving, *secured) as (ready, _):
        assert ready["protection"] == "TLS, tokens (1)"
        copying = ("copy", tmp_path / "orders", ready["address"], "--client", "web", "--json")
        refused = run(*copying, "--tls-authority", authority.path)
        assert refused.code == 2
        assert "requires a valid token" in refused.err
        plain = run(*copying, "--token", tokens, "--follow")
        words = f"{ready['address']}: the hub uses TLS: give --tls-authority FILE, or --tls"
        assert (plain.code, plain.out, plain.err) == (2, "", f"logwright: error: {words}\n")
        sent = run(*copying, "--tls-authority", authority.path, "--token", tokens)
        assert (sent.code, sent.object["messages"]) == (0, 10)
        host, _, port = ready["address"].rpartition(":")
        with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as stranger:
            stranger.sendall(b"this is no handshake of TLS")
            while stranger.recv(1000):  # the hub has closed it
                pass


def test_damage_in_a_copy_is_exit_code_1_and_names_the_relative_path(tmp_path: Path) -> None:
    write_journal(tmp_path / "orders", 50)
    serving = ("serve", "hub", tmp_path / "hub", "--listen", "127.0.0.1:0", "--json")
    with program(*serving) as (ready, _):
        copying = ("copy", tmp_path / "orders", ready["address"], "--client", "web")
        assert run(*copying).code == 0
        start = damage(tmp_path / "hub" / "web.orders", 20)
        restored = run("copy", tmp_path / "new", ready["address"], "--client", "web", "--name", "orders", "--restore")
        assert restored.code == 1
        place = f"{ready['address']}: web.orders/jnl/{0:016x}.jnl @ {start}: "
        assert restored.err.startswith(f"logwright: error: {place}")
        assert str(tmp_path) not in restored.err


def test_second_hub_of_a_directory_is_exit_code_2(tmp_path: Path) -> None:
    serving = ("serve", "hub", tmp_path / "hub", "--listen", "127.0.0.1:0", "--json")
    with program(*serving) as (_, hub):
        second = run(*serving)
        assert second.code == 2
        words = f"{tmp_path / 'hub'} is locked: another hub or another server uses this directory"
        assert second.err == f"logwright: error: {words}{held_by(hub.pid)}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "hub", "DIR", "--listen", "0.0.0.0:0"), "is reachable from other machines: use TLS"),
        (
            ("serve", "hub", "DIR", "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"),
            "is reachable from other machines",
        ),
        (("serve", "hub", "DIR", "--listen", "127.0.0.1"), "is not an address"),
        (("serve", "hub", "DIR", "--max-request", "0"), "request_bytes must be a positive number"),
        (("serve", "hub", "DIR", "--max-request", "1"), "requests of 1 bytes are too small"),
        (("serve", "hub", "DIR", "--segment-size", "0"), "a segment size of 0 bytes is not possible"),
        (("copy", "DIR", "127.0.0.1:1", "--client", "web"), "no sej journal is here|no format|no such"),
        (("copy", "DIR", "far.example:1", "--client", "web", "--restore"), "is on another machine"),
        (
            ("copy", "DIR", "127.0.0.1:1", "--client", "web", "--restore", "--follow"),
            "--follow does not work with --restore",
        ),
        (("copy", "DIR", "127.0.0.1:1", "--client", "web", "--shards"), "--shards needs --restore"),
        (("copy", "DIR", "127.0.0.1:1", "--client", "w" * 101, "--restore"), "101 characters is too long: the limit"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    outcome = run(*(str(tmp_path / "new") if argument == "DIR" else argument for argument in arguments))
    assert outcome.code == 2
    assert any(word in outcome.err for word in words.split("|")), outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("serve", "hub", "x"), ("copy", "x", "127.0.0.1:1", "--client", "web")])
def test_missing_grpcio_is_reported_with_the_package_to_install(arguments: tuple[str, ...], tmp_path: Path) -> None:
    code = "import sys; sys.modules['grpc'] = None; from logwright.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr == "logwright: error: this needs grpcio, which is not installed: pip install 'logwright[hub]'\n"


def test_missing_hub_is_reported_until_the_copy_is_stopped(tmp_path: Path) -> None:
    write_journal(tmp_path / "orders", 1)
    command = [sys.executable, "-m", "logwright", "copy", str(tmp_path / "orders"), "127.0.0.1:1", "--client", "web"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    first = process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=DEADLINE_SECONDS)
    words = "127.0.0.1:1: no answer (Connection refused); retrying for up to 30 seconds"
    assert first == f"logwright: warning: {words}\n"
    assert (process.returncode, out) == (130, "")


def test_hub_accepts_only_sej_journals(samples: Path) -> None:  # noqa: F811
    outcome = run("copy", samples / "queues" / "jobs", "127.0.0.1:1", "--client", "web")
    assert outcome.code == 2
    assert "a hub stores sej journals only" in outcome.err
