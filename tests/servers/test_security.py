"""Protection of servers: addresses, files with secrets, admission, and metrics."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from logwright.errors import NotFound, WrongUse
from logwright.servers.metrics import MOST_REQUEST_BYTES, Metrics, serve_metrics
from logwright.servers.security import Address, Protection, check_limits, limits_of, parse_address, read_tokens
from tests.servers.hub.support import write_secret
from tests.support.certificates import Authority

TOKEN = b"a token of enough characters"[:20].replace(b" ", b"_")


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("127.0.0.1:80", Address("127.0.0.1", 80), True),
        ("127.9.9.9:0", Address("127.9.9.9", 0), True),
        ("[::1]:65535", Address("::1", 65535), True),
        ("localhost:1", Address("127.0.0.1", 1), True),
        ("0.0.0.0:1", Address("0.0.0.0", 1), False),
        ("[::]:1", Address("::", 1), False),
        ("10.0.0.1:1", Address("10.0.0.1", 1), False),
        ("hub.example:7878", Address("hub.example", 7878), False),
    ],
)
def test_addresses_show_whether_they_are_loopback(text: str, address: Address, loopback: bool) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address
    assert address.is_loopback is loopback


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1", ":80", "a:b", "a:99999", "::1:80", "a b:1", "unix:/x:1", "[::1:80", "h:-1"]
)
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="is not an address"):
        parse_address(text)


def test_beyond_loopback_needs_tls_and_tokens_or_certificates_or_an_option(tmp_path: Path) -> None:
    own = Authority(tmp_path).issue("server")
    certificate, key = own.certificate, own.key
    tokens = write_secret(tmp_path / "tokens", TOKEN)
    elsewhere = parse_address("0.0.0.0:1")
    Protection().check(parse_address("127.0.0.1:1"))
    with pytest.raises(WrongUse, match="use TLS"):
        Protection().check(elsewhere)
    with pytest.raises(WrongUse, match="use TLS"):
        Protection.load(tokens=tokens).check(elsewhere)
    with pytest.raises(WrongUse, match="TLS alone admits every client"):
        Protection.load(certificate=certificate, key=key).check(elsewhere)
    Protection.load(certificate=certificate, key=key, tokens=tokens).check(elsewhere)
    authority = tmp_path / "authority.crt"
    both = Protection.load(certificate=certificate, key=key, client_authority=authority)
    both.check(elsewhere)
    assert both.describe() == "TLS, client certificates"
    assert both.context is not None
    Protection.load(insecure=True).check(elsewhere)


def test_wrong_files_are_reported_at_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, other = authority.issue("server"), authority.issue("other")
    certificate, key = own.certificate, own.key
    with pytest.raises(WrongUse, match="do not match"):
        Protection.load(certificate=certificate, key=other.key)
    with pytest.raises(WrongUse, match="needs both"):
        Protection.load(certificate=certificate)
    with pytest.raises(WrongUse, match="give the server's certificate and key"):
        Protection.load(client_authority=certificate)
    with pytest.raises(NotFound):
        Protection.load(tokens=tmp_path / "missing")
    with pytest.raises(WrongUse, match="is not a file"):
        Protection.load(tokens=tmp_path)
    key.chmod(0o640)
    with pytest.raises(WrongUse, match=r"is accessible to others \(mode 0640\): run chmod 600"):
        Protection.load(certificate=certificate, key=key)


def test_tokens_are_read_from_a_file_private_to_its_owner(tmp_path: Path) -> None:
    path = write_secret(tmp_path / "tokens", b"# for web\n\n" + TOKEN + b"\n  another-token-of-web2  \n")
    assert read_tokens(path) == (TOKEN, b"another-token-of-web2")
    for mode in (0o604, 0o640, 0o660, 0o602, 0o644):
        path.chmod(mode)
        with pytest.raises(WrongUse, match="is accessible to others"):
            read_tokens(path)
    if os.geteuid() == 0:
        path.chmod(0o600)
        os.chown(path, 12345, 0)
        with pytest.raises(WrongUse, match="belongs to another user"):
            read_tokens(path)
    for content in (
        b"",
        b"# none\n",
        b"short\n",
        b"with a space in it\n",
        "nön-ascii-characters\n".encode(),
        b"x" * 513,
    ):
        with pytest.raises(WrongUse, match=r"has no tokens|a token has 16 to 512"):
            read_tokens(write_secret(tmp_path / "bad", content))
    with pytest.raises(WrongUse, match="too large for a certificate, key or list"):
        read_tokens(write_secret(tmp_path / "large", bytes((1 << 20) + 1)))


def test_only_a_known_token_is_admitted(tmp_path: Path) -> None:
    protection = Protection.load(tokens=write_secret(tmp_path / "tokens", TOKEN + b"\nanother-token-of-web2"))
    assert protection.admits(TOKEN)
    assert protection.admits(b"another-token-of-web2")
    assert not any(map(protection.admits, (None, b"", TOKEN[:-1], TOKEN + b"x", b"Bearer " + TOKEN)))
    assert Protection().admits(None)
    assert TOKEN.decode() not in repr(protection) + protection.describe()


def test_limits_are_listed_by_name_and_must_be_positive() -> None:
    @dataclass
    class Limits:
        line_bytes: int = 10
        silence_seconds: float = 0.5

    check_limits(Limits())
    assert limits_of(Limits()) == {"line_bytes": 10, "silence_seconds": 0.5}
    for wrong in (0, -1, 2**62, True):
        with pytest.raises(WrongUse, match="line_bytes must be a positive number"):
            check_limits(Limits(line_bytes=wrong))


# --- metrics --------------------------------------------------------------------------------------------------------


async def ask(address: Address, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


def test_metrics_server_serves_only_metrics() -> None:
    metrics = Metrics("test")
    metrics.counter("plain_total", "Plain.").add(3)
    metrics.counter("labelled_total", "By name.", "name").add(1, 'a"b\n')
    metrics.gauge("large", "Exact.", lambda: 12345678901)

    async def work() -> list[bytes]:
        async with serve_metrics(metrics, parse_address("127.0.0.1:0")) as address:
            requests = (b"GET /metrics HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n")
            answers = [await ask(address, request) for request in requests]
            try:
                answers.append(await ask(address, b"GET /" + b"x" * (2 * MOST_REQUEST_BYTES)))
            except ConnectionError:
                answers.append(b"")
            return answers

    found, missing, wrong, large = asyncio.run(work())
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body.decode().splitlines() == [
        "# HELP test_plain_total Plain.",
        "# TYPE test_plain_total counter",
        "test_plain_total 3",
        "# HELP test_labelled_total By name.",
        "# TYPE test_labelled_total counter",
        'test_labelled_total{name="a\\"b\\n"} 1',
        "# HELP test_large Exact.",
        "# TYPE test_large gauge",
        "test_large 12345678901",
    ]
    assert missing.startswith(b"HTTP/1.1 404")
    assert wrong.startswith(b"HTTP/1.1 405")
    assert large == b""


def test_unfinished_request_for_metrics_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.servers.metrics.TIMEOUT_SECONDS", 0.01)

    async def work() -> bytes:
        async with serve_metrics(Metrics("test"), parse_address("127.0.0.1:0")) as address:
            try:
                return await ask(address, b"GET /metrics HTTP/1.1\r\n")
            except ConnectionError:
                return b""

    assert asyncio.run(work()) == b""


def test_used_address_is_reported() -> None:
    async def work() -> None:
        async with serve_metrics(Metrics("test"), parse_address("127.0.0.1:0")) as address:
            with pytest.raises(WrongUse, match="cannot listen at 127"):
                async with serve_metrics(Metrics("test"), address):
                    pass

    asyncio.run(work())
