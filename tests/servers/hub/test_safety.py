"""A hub and untrusted clients: TLS, tokens, certificates, slow and half-open clients, limits, a full disk, stopping."""

from __future__ import annotations

import asyncio
import errno
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import Locked, NotFound, StorageFailed, WrongUse
from logwright.sej import Reader
from logwright.sej.model.copying import Feed
from logwright.servers.hub import (
    Access,
    Hub,
    Limits,
    Protection,
    Refused,
    Unreachable,
    parse_address,
    restore_path,
    send_path,
)
from logwright.servers.hub.client import HubClient
from logwright.servers.hub.copies import Copies, Copy
from logwright.servers.hub.requests import Put
from tests.servers.hub.support import (
    Wire,
    access_to,
    copies_in,
    in_loop,
    message,
    running,
    unlike,
    write_journal,
    write_secret,
)
from tests.servers.hub.wire_messages import PutRequest
from tests.support.certificates import Authority
from tests.support.counts import COUNTS
from tests.support.faulty_disk import FaultyDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.small_disk import small_disk
from tests.support.trees import read_tree

TOKEN = b"a-token-of-twenty-chars"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls")


# --- admission ----------------------------------------------------------------------------------------------------


def test_call_without_a_valid_token_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    protection = Protection.load(tokens=write_secret(tmp_path / "tokens", TOKEN))
    root = tmp_path / "hub"

    async def talk() -> None:
        async with running(root, protection=protection) as hub:
            for value in (None, "Bearer", "Bearer wrong-token-of-twenty", f"Basic {TOKEN.decode()}", TOKEN.decode()):
                metadata = () if value is None else (("authorization", value),)
                async with Wire(hub, *metadata) as wire:
                    for call in (wire.put("web", "orders", message(0)), wire.get("web", "orders")):
                        assert (await wire.refused(call))[0] == "UNAUTHENTICATED"
            assert copies_in(root) == []
            async with Wire(hub, ("authorization", f"bearer {TOKEN.decode()}")) as wire:
                await wire.put("web", "orders", message(0))
            source = tmp_path / "other"
            write_journal(source, 10)
            with pytest.raises(Refused, match="requires a valid token"):
                await send_path(access_to(hub), source, client="web")
            await send_path(Access.load(hub.address, token=tmp_path / "tokens"), source, client="web")
            assert unlike(source, root / "web.other") == []

    in_loop(talk())


def test_tls_works_with_a_token_and_with_client_certificates(authority: Authority, tmp_path: Path) -> None:
    own_files = authority.issue("web")
    served = asdict(authority.issue("hub"))
    tokens = write_secret(tmp_path / "tokens", TOKEN)
    source = tmp_path / "orders"
    write_journal(source, 20)

    async def with_tokens() -> None:
        protection = Protection.load(**served, tokens=tokens)
        async with running(tmp_path / "one", protection=protection) as hub:
            access = Access.load(hub.address, authority=authority.path, token=tokens)
            await send_path(access, source, client="web")
            with pytest.raises(Refused, match="requires a valid token"):
                await send_path(Access.load(hub.address, authority=authority.path), source, client="web")

    async def with_certificates() -> None:
        protection = Protection.load(**served, client_authority=authority.path)
        async with running(tmp_path / "two", protection=protection) as hub:
            access = Access.load(hub.address, authority=authority.path, **asdict(own_files))
            await send_path(access, source, client="web")

    in_loop(with_tokens())
    in_loop(with_certificates())
    for copies in ("one", "two"):
        assert unlike(source, tmp_path / copies / "web.orders") == []


def test_unusable_tls_files_are_reported_at_start_by_client_and_hub(authority: Authority, tmp_path: Path) -> None:
    own, other = authority.issue("web"), authority.issue("other")
    with pytest.raises(WrongUse, match=r"web\.crt and .*other\.key do not match"):
        Access.load("127.0.0.1:1", authority=authority.path, certificate=own.certificate, key=other.key)
    with pytest.raises(NotFound, match=r"missing\.crt"):
        Access.load("127.0.0.1:1", certificate=tmp_path / "missing.crt", key=own.key)
    with pytest.raises(WrongUse, match=r"web\.key: not a certificate"):
        Access.load("127.0.0.1:1", authority=own.key)
    with pytest.raises(WrongUse, match="authority of client certificates: not a certificate"):
        Protection.load(**asdict(own), client_authority=own.key)
    assert Access.load("127.0.0.1:1", authority=authority.path, **asdict(own)).tls is True


def test_neither_side_uses_other_addresses_without_protection(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="is reachable from other machines"):
        Hub(tmp_path, parse_address("0.0.0.0:0"))
    with pytest.raises(WrongUse, match="is on another machine"):
        Access.load("hub.example:7878")
    assert Access.load("hub.example:7878", insecure=True).tls is False
    assert Access.load("hub.example:7878", tls=True).tls is True
    assert list(tmp_path.iterdir()) == []


def test_address_in_use_is_reported(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path / "one") as hub:
            with pytest.raises(WrongUse, match="cannot listen at 127"):
                async with Hub(tmp_path / "two", hub.address):
                    pass

    in_loop(talk())


def test_second_hub_of_a_directory_is_refused_until_the_first_one_has_stopped(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path):
            with pytest.raises(Locked, match=f"{tmp_path} is locked: another hub"):
                async with running(tmp_path):
                    pass
        async with running(tmp_path):
            pass

    in_loop(talk())


def test_link_in_place_of_a_private_file_of_the_hub_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / ".logwright").symlink_to(tmp_path / "outside")

    async def talk() -> None:
        with pytest.raises(StorageFailed, match="link"):
            async with running(tmp_path / "hub"):
                pass

    in_loop(talk())
    assert list((tmp_path / "outside").iterdir()) == []


# --- slow, half-open, and too many ----------------------------------------------------------------------------------


def test_silent_client_is_dropped_without_affecting_others(tmp_path: Path) -> None:
    async def talk() -> None:
        limits = Limits(silence_seconds=0.05)
        async with running(tmp_path, limits=limits) as hub, grpc.aio.insecure_channel(str(hub.address)) as channel:
            silent = channel.stream_stream("/hub.Hub/Put")()
            request = PutRequest(ClientID="slow", JournalDir="orders", Messages=[message(0)])
            await silent.write(request.SerializeToString())
            assert await silent.read() is not grpc.aio.EOF
            async with Wire(hub) as wire:
                await wire.put("web", "orders", message(0))
            assert await silent.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert hub.dropped.total() == 1

    in_loop(talk())


def test_client_that_does_not_read_its_responses_is_dropped(tmp_path: Path) -> None:
    async def talk() -> None:
        limits = Limits(answer_seconds=0.05, requests_in_flight=4)
        async with running(tmp_path, limits=limits) as hub, Wire(hub) as wire:
            for number in range(4):
                await wire.put("web", "orders", message(number, bytes(900_000)))
            async with grpc.aio.insecure_channel(str(hub.address), options=[("grpc.http2.bdp_probe", 0)]) as channel:
                deaf = channel.stream_stream("/hub.Hub/Get")()
                request = b"\x0a\x03web\x12\x06orders"
                while not deaf.done() and not hub.dropped.total():
                    try:
                        async with asyncio.timeout(0.05):
                            await deaf.write(request)
                    except (TimeoutError, asyncio.InvalidStateError, grpc.aio.AioRpcError):
                        await asyncio.sleep(0.001)
                await wire.put("web", "orders", message(4))
            assert hub.dropped.total() == 1

    in_loop(talk())


async def _until_closed(hub: Hub, greeting: bytes) -> bytes:
    """The bytes that a hub sends to a connection that sends only this greeting, until it closes."""
    reader, writer = await asyncio.open_connection(hub.address.host, hub.address.port)
    writer.write(greeting)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The beginning of HTTP/2; the rest may be incomplete."""
HALF_A_HEADER = bytes((0, 0, 200, 1, 4, 0, 0, 0, 1)) + b"\x83\x86"
ENDLESS_HEADERS = bytes((0, 0, 0, 1, 0, 0, 0, 0, 1)) + 1000 * bytes((0, 0, 0, 9, 0, 0, 0, 0, 1))


@pytest.mark.parametrize(
    "greeting",
    [
        b"",
        b"PRI * HTTP/2.0\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01" + bytes(50),
        GREETING,
        GREETING + HALF_A_HEADER,
        GREETING + ENDLESS_HEADERS,
        GREETING + b"\xff" * 5000,
    ],
    ids=["nothing", "half", "HTTP/1", "TLS", "greeting", "half a header", "endless headers", "noise"],
)
def test_connection_that_sends_garbage_is_closed(greeting: bytes, tmp_path: Path) -> None:
    async def talk() -> None:
        limits = Limits(handshake_seconds=0.2, unused_seconds=0.2, keepalive_seconds=0.2)
        async with running(tmp_path, limits=limits) as hub:
            await _until_closed(hub, greeting)
            async with Wire(hub) as wire:
                await wire.put("web", "orders", message(0))

    in_loop(talk())


async def held_calls(channel: Any, name: str, count: int) -> list[Any]:
    """Calls of one connection, each answered once and idle since."""
    held = [channel.stream_stream("/hub.Hub/Put")() for _ in range(count)]
    for number, call in enumerate(held):
        request = PutRequest(ClientID=name, JournalDir=f"held{number}", Messages=[message(0)])
        await call.write(request.SerializeToString())
        await call.read()
    return held


def test_calls_beyond_the_limit_are_refused_and_accepted_later(tmp_path: Path) -> None:
    async def talk() -> None:
        limits = Limits(calls=2, idle_seconds=60)
        async with running(tmp_path, limits=limits) as hub, Wire(hub) as wire:
            channels = [grpc.aio.insecure_channel(str(hub.address), options=[("number", n)]) for n in range(2)]
            held = [(await held_calls(channel, f"c{n}", 1))[0] for n, channel in enumerate(channels)]
            code, words, _ = await wire.refused(wire.put("web", "orders", message(0)))
            assert code == "RESOURCE_EXHAUSTED"
            assert words == "this hub has 2 running calls and accepts no more at the moment"
            for call in held:
                await call.done_writing()
                assert await call.code() == grpc.StatusCode.OK
            await wire.put("web", "orders", message(0))
            for channel in channels:
                await channel.close()

    in_loop(talk())


@pytest.mark.parametrize("idle_seconds", [60, 0.01], ids=["busy", "idle"])
def test_client_using_all_calls_does_not_block_another(idle_seconds: float, tmp_path: Path) -> None:
    """A busy client gives up the calls that it has more than the other; all calls of an idle client can be replaced."""
    calls = 6
    connections = 3 if idle_seconds > 1 else calls
    source = tmp_path / "orders"
    write_journal(source, 200)

    async def talk() -> None:
        limits = Limits(calls=calls, idle_seconds=idle_seconds)
        async with running(tmp_path / "hub", limits=limits) as hub:
            channels = [
                grpc.aio.insecure_channel(str(hub.address), options=[("number", n)]) for n in range(connections)
            ]
            held = [
                call
                for number, channel in enumerate(channels)
                for call in await held_calls(channel, f"c{number}", calls // connections)
            ]
            assert len(hub.calls) == calls
            await asyncio.sleep(0.02 if idle_seconds < 1 else 0)  # idle for longer than allowed
            (sent,) = await send_path(access_to(hub), source, client="web", request_bytes=2000)
            assert (sent.next_offset, sent.failures) == (200, 0)
            ended = [call for call in held if call.done()]
            assert ended
            for call in ended:
                assert await call.code() == grpc.StatusCode.UNAVAILABLE
                assert await call.details() == "another client needs the place of this call"
            for channel in channels:
                await channel.close()

    in_loop(talk())
    assert unlike(source, tmp_path / "hub" / "web.orders") == []


def test_connections_beyond_the_limit_are_closed_at_once(tmp_path: Path) -> None:
    async def talk() -> None:
        limits = Limits(connections=3, handshake_seconds=60)
        async with running(tmp_path, limits=limits) as hub, Wire(hub) as wire:
            await wire.put("web", "orders", message(0))
            held = [await asyncio.open_connection(hub.address.host, hub.address.port) for _ in range(2)]
            assert await _until_closed(hub, b"") == b""
            await wire.put("web", "orders", message(1))
            for _, writer in held:
                writer.close()

    in_loop(talk())


def test_requests_wait_for_each_other_beyond_the_total_size(tmp_path: Path) -> None:
    for number in range(3):
        write_journal(tmp_path / f"j{number}", 200, seed=number)

    async def talk() -> None:
        async with running(tmp_path / "hub", limits=Limits(buffer_bytes=4000)) as hub:
            sending = (
                send_path(access_to(hub), tmp_path / f"j{number}", client="web", request_bytes=3000)
                for number in range(3)
            )
            await asyncio.gather(*sending)
            assert hub._buffered_bytes == 0

    in_loop(talk())
    for number in range(3):
        assert unlike(tmp_path / f"j{number}", tmp_path / "hub" / f"web.j{number}") == []


def test_limit_that_allows_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="calls must be a positive number"):
        Hub(tmp_path, parse_address("127.0.0.1:0"), limits=Limits(calls=0))
    with pytest.raises(WrongUse, match="are too large"):
        Hub(tmp_path, parse_address("127.0.0.1:0"), limits=Limits(request_bytes=2**31))
    with pytest.raises(WrongUse, match="requests of 1023 bytes are too small: the minimum is 1024"):
        Hub(tmp_path, parse_address("127.0.0.1:0"), limits=Limits(request_bytes=1023))
    for size in (0, -5, 2**62):
        with pytest.raises(WrongUse, match=f"a segment size of {size} bytes is not possible"):
            Hub(tmp_path, parse_address("127.0.0.1:0"), segment_size=size)
    assert list(tmp_path.iterdir()) == []


# --- a disk that fails ----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="logwright")


def test_full_disk_is_logged_once_and_reads_continue_and_the_copy_resumes_with_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="logwright")
    source = tmp_path / "orders"
    write_journal(source, 3000)

    async def talk(root: Path) -> None:
        ballast = root / "ballast"
        ballast.write_bytes(bytes(700_000))
        async with running(root) as hub, Wire(hub) as wire:
            with pytest.raises(Unreachable, match="No space left on device"):
                await send_path(access_to(hub), source, client="web", request_bytes=5000, patience_seconds=0)
            async with HubClient(access_to(hub), "web") as client:
                place = await client.next_offset("orders") or 0
            assert 0 < place < 3000
            found = await wire.get("web", "orders", place - 1)
            assert [one.Offset for one in found] == [place - 1]
            with pytest.raises(Unreachable, match="No space left on device"):
                await send_path(access_to(hub), source, client="web", patience_seconds=0)
            logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
            assert len(logged) == 1
            assert logged[0].endswith("No space left on device: clients will retry")
            ballast.unlink()
            (sent,) = await send_path(access_to(hub), source, client="web")
            assert sent.next_offset == 3000
        assert unlike(source, root / "web.orders") == []

    with small_disk(tmp_path / "small", 1 << 20) as root:
        in_loop(talk(root))


def test_restore_resumes_after_a_full_disk_has_space(tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_journal(source, 4000, segment_size=200_000)

    async def talk(root: Path) -> None:
        ballast = root / "ballast"
        ballast.write_bytes(bytes(700_000))
        async with running(tmp_path / "hub", limits=Limits(answer_bytes=50_000)) as hub:
            access = access_to(hub)
            await send_path(access, source, client="web")
            with pytest.raises(StorageFailed, match="No space left on device"):
                await restore_path(access, root / "orders", client="web")
            there = Reader(root / "orders").next
            assert 0 < there < 4000
            ballast.unlink()
            (back,) = await restore_path(access, root / "orders", client="web")
            assert (back.messages, back.next_offset) == (4000 - there, 4000)
        assert unlike(source, root / "orders") == []

    with small_disk(tmp_path / "small", 1 << 20) as root:
        in_loop(talk(root))


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_failure_of_any_call_keeps_acknowledged_messages_and_resending_completes(error: int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_journal(source, 30, segment_size=1500)
    puts = puts_of(source)
    failed_at, failures = 0, 1
    while failures:
        failed_at += 1
        disk = FaultyDisk(REAL_DISK, failed_at, error, partial=True, only=("write", "sync", "sync directory", "open"))
        root = tmp_path / f"{error}-{failed_at}"
        copies = Copies(root, Limits())
        copies.disk = disk
        copy = Copy(copies, root / "web.source")
        answers = copy.take(puts[:3]) + copy.take(puts[3:])
        answered = [answer for answer in answers if isinstance(answer, int)]
        there = Reader(copy.directory).next if copy.directory.exists() and answered else 0
        assert all(answer <= there for answer in answered)
        copy.close()
        failures = disk.failures
        copies.disk = REAL_DISK
        assert copy.take(puts)[-1] == 30
        copy.close()
        assert unlike(source, copy.directory) == []
        copies.shut()
        COUNTS.add("k-th call fails", 1, "hub")
    assert failed_at > 20


def test_power_cut_keeps_acknowledged_messages_and_the_copy_can_be_completed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_journal(source, 12, segment_size=900)
    puts = puts_of(source)
    root = Path("/hub")
    disk = SimulatedDisk()
    copies = Copies(root, Limits(), disk=disk)
    copy = Copy(copies, root / "web.source")
    for first in range(0, len(puts), 2):
        (*_, answer) = copy.take(puts[first : first + 2])
        assert isinstance(answer, int)
        disk.mark(answer)
    copy.close()
    copies.shut()
    states = 0
    for after in disk.crash_states(most=12, format="hub"):
        answered = max(after.marks, default=0)
        again = Copies(root, Limits(), disk=after)
        copy = Copy(again, root / "web.source")
        question = Put("web", "source", replace(puts[0].batch, frames=b"", count=0, segment=None), False)
        (place,) = copy.take([question])
        assert isinstance(place, int), after.story
        assert place >= answered, after.story
        assert copy.take(puts)[-1] == 12, after.story
        copy.close()
        again.shut()
        found = {name: data for name, data in read_tree(after, copy.directory).items() if name.endswith(".jnl")}
        assert found == {name: data for name, data in read_tree(REAL_DISK, source).items() if name.endswith(".jnl")}
        states += 1
    assert states > 100
    COUNTS.add("crash states", states, "hub")


def puts_of(source: Path) -> list[Put]:
    """A journal as a client sends it, in small requests."""
    found = []
    with Feed(source, batch_bytes=700) as feed:
        while (batch := feed.read()) is not None:
            found.append(Put("web", "source", replace(batch, frames=bytes(batch.frames)), False))
    return found


@pytest.mark.parametrize("where", ["logwright.servers.hub.copies.Copies.put", "logwright.servers.hub.copies.Copy._put"])
def test_bug_in_the_hub_is_logged_and_it_keeps_running(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, logger="logwright")

    async def talk() -> None:
        async with running(tmp_path) as hub, Wire(hub) as wire:
            with monkeypatch.context() as wrong:
                wrong.setattr(where, lambda copies, put: 1 // 0)
                assert (await wire.refused(wire.put("web", "orders", message(0))))[0] == "UNKNOWN"
            await wire.put("web", "orders", message(0))
            assert (len(hub.calls), hub._buffered_bytes) == (0, 0)

    in_loop(talk())
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("logwright")]
    assert logged == ["a bug in the hub: ZeroDivisionError('integer division or modulo by zero')"]


# --- the end --------------------------------------------------------------------------------------------------------


def test_stopping_hub_answers_pending_requests_and_the_client_resumes_at_the_next(tmp_path: Path) -> None:
    source, root = tmp_path / "orders", tmp_path / "hub"
    write_journal(source, 2000)

    async def work() -> None:
        async with running(root) as hub:
            address = hub.address
            sending = asyncio.ensure_future(send_path(access_to(hub), source, client="web", request_bytes=1000))
            while hub.copies.written_messages < 100:
                await asyncio.sleep(0.001)
        written = hub.copies.written_messages
        assert written >= 100
        async with Hub(root, address) as hub:
            (sent,) = await sending
            assert sent.next_offset == 2000
            assert hub.copies.written_messages + written == 2000

    in_loop(work())
    assert unlike(source, root / "web.orders") == []


def test_unreachable_hub_is_reported_after_the_retry_time(tmp_path: Path) -> None:
    write_journal(tmp_path / "orders", 1)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            access = access_to(hub)
        with pytest.raises(Unreachable, match=str(access.address)):
            await send_path(access, tmp_path / "orders", client="web", patience_seconds=0)

    in_loop(work())
