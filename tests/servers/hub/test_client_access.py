"""A hub that cannot be reached: a permanent failure ends a copy at once, with a message that says what to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from logwright.servers.hub import Access, Barred, Protection, Unreachable, parse_address, restore_path, send_path
from logwright.servers.hub.client_access import why_unreachable
from logwright.servers.security import Address
from tests.servers.hub.support import in_loop, running, write_journal
from tests.support.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls")


def refused(access: Access, source: Path, follow: bool = False) -> Any:
    """The message with which a copy and a restore end, although both would wait for a transient failure."""

    async def talk() -> str:
        with pytest.raises(Barred) as restoring:
            await restore_path(access, source.with_name("new"), client="web", name="orders")
        with pytest.raises(Barred) as sending:
            await send_path(access, source, client="web", follow=follow)
        assert str(sending.value) == str(restoring.value)
        return str(sending.value)

    return talk()


CASES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "plain text to TLS": ({"tls": "hub"}, {}, "the hub uses TLS: give --tls-authority FILE, or --tls"),
    "plain text to TLS that asks for certificates": (
        {"tls": "hub", "clients": "authority"},
        {},
        "the hub uses TLS: give --tls-authority FILE, or --tls",
    ),
    "TLS to plain text": (
        {},
        {"authority": "authority"},
        "the hub does not use TLS: omit --tls and the other TLS options",
    ),
    "unknown authority": (
        {"tls": "hub"},
        {"authority": "other"},
        "not signed by the authority in --tls-authority (unable to get local issuer certificate)",
    ),
    "an authority that this machine does not trust": (
        {"tls": "hub"},
        {"tls": "yes"},
        "not signed by an authority that this machine trusts: give --tls-authority FILE",
    ),
    "another name": (
        {"tls": "hub", "address": "127.0.0.2"},
        {"authority": "authority"},
        "the hub's certificate is not for '127.0.0.1': use a name in the certificate, or change the certificate",
    ),
    "a certificate of yesterday": (
        {"tls": "hub", "days": "-1"},
        {"authority": "authority"},
        "the hub's certificate has expired: renew it, or correct this machine's clock",
    ),
    "no certificate": (
        {"tls": "hub", "clients": "authority"},
        {"authority": "authority"},
        "the hub asks for a certificate: give --tls-certificate and --tls-key",
    ),
    "another authority's certificate": (
        {"tls": "hub", "clients": "authority"},
        {"authority": "authority", "own": "other"},
        "the hub rejects this certificate: give one that its --client-authority has signed",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_incompatible_peer_ends_the_copy_at_once_with_advice(case: str, authority: Authority, tmp_path: Path) -> None:
    served, used, words = CASES[case]
    authorities = {"authority": authority, "other": Authority(tmp_path / "tls", "other")}
    source = tmp_path / "orders"
    write_journal(source, 1)
    issued = authority.issue("hub", served.get("address", "127.0.0.1"), int(served.get("days", "1")))
    hub_files: dict[str, Any] = asdict(issued) if "tls" in served else {}
    if "clients" in served:
        hub_files["client_authority"] = authorities[served["clients"]].path
    files: dict[str, Any] = {}
    if "authority" in used:
        files["authority"] = authorities[used["authority"]].path
    if "own" in used:
        files |= asdict(authorities[used["own"]].issue("web"))

    async def talk() -> None:
        async with running(tmp_path / "hub", protection=Protection.load(**hub_files)) as hub:
            access = Access.load(hub.address, tls="tls" in used, **files)
            for follow in (False, True):
                found = await refused(access, source, follow)
                assert found.startswith(f"{hub.address}: ")
                assert words in found

    in_loop(talk())
    assert not (tmp_path / "new").exists()


def test_system_certificates_are_trusted_without_an_authority(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    write_journal(tmp_path / "orders", 3)

    async def talk() -> None:
        protection = Protection.load(**asdict(authority.issue("hub")))
        async with running(tmp_path / "hub", protection=protection) as hub:
            (sent,) = await send_path(Access.load(hub.address, tls=True), tmp_path / "orders", client="web")
            assert sent.messages == 3

    in_loop(talk())


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[Address]:
    """A server that is not a hub, sends this to every client, and closes the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])


@pytest.mark.parametrize("tls", [False, True])
def test_server_that_is_not_a_hub_is_reported(tls: bool) -> None:
    async def talk() -> None:
        async with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
            error = await asyncio.to_thread(why_unreachable, Access.load(address, tls=tls))
            if tls:
                assert isinstance(error, Unreachable)
                assert "the TLS handshake failed (wrong version number)" in str(error)
            else:
                assert isinstance(error, Barred)
                assert "this is not a hub: it does not speak HTTP/2" in str(error)

    in_loop(talk())


def test_transient_failures_are_unreachable_and_a_running_hub_is_not(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path) as hub:
            assert await asyncio.to_thread(why_unreachable, Access.load(hub.address)) is None
        async with answering(b"") as address:
            closed = await asyncio.to_thread(why_unreachable, Access.load(address))
            assert isinstance(closed, Unreachable)
            assert str(closed) == f"{address}: the connection was closed at once"

    in_loop(talk())
    refused = why_unreachable(Access.load("127.0.0.1:1"))
    assert isinstance(refused, Unreachable)
    assert str(refused) == "127.0.0.1:1: no answer (Connection refused)"


@pytest.mark.parametrize(
    ("number", "kind"), [(socket.EAI_NONAME, Barred), (socket.EAI_AGAIN, Unreachable)], ids=["no name", "no answer"]
)
def test_unknown_host_is_permanent_and_a_resolver_failure_is_transient(
    number: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "in the system's words")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    error = why_unreachable(Access.load(parse_address("hub.exmaple:7878"), insecure=True))
    assert type(error) is kind
    assert "hub.exmaple:7878" in str(error)
