"""Copies of journals to a hub, and back: the same bytes in the same files, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from logwright.errors import DamagedJournal, Gap, Locked, NotFound, WrongUse
from logwright.sej import Reader, ShardedWriter, Writer, clean
from logwright.sej.files import repair
from logwright.servers.hub import Access, Conflict, HubClient, Limits, OutOfStep, Refused, restore_path, send_path
from logwright.servers.hub.requests import Put
from tests.servers.hub.support import access_to, damage, in_loop, running, unlike, write_journal
from tests.servers.hub.wire_messages import PutRequest, PutResponse


def size_of(journal: Path) -> int:
    return sum(path.stat().st_size for path in (journal / "jnl").glob("*.jnl"))


@pytest.mark.parametrize(("segment_size", "request_bytes"), [(20_000, 1 << 20), (30_000, 3_000), (1 << 30, 500)])
def test_copy_and_restore_are_byte_identical_file_by_file(
    segment_size: int, request_bytes: int, tmp_path: Path
) -> None:
    source = tmp_path / "orders"
    write_journal(source, 600, segment_size=segment_size)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            access = access_to(hub)
            (sent,) = await send_path(access, source, client="web", request_bytes=request_bytes)
            assert (sent.messages, sent.next_offset, sent.failures) == (600, 600, 0)
            assert unlike(source, tmp_path / "hub" / "web.orders") == []
            (again,) = await send_path(access, source, client="web")
            assert (again.messages, again.bytes, again.next_offset) == (0, 0, 600)
            before = size_of(source)
            assert sent.bytes == before
            write_journal(source, 50, segment_size=segment_size)
            (more,) = await send_path(access, source, client="web")
            assert (more.messages, more.bytes, more.next_offset) == (50, size_of(source) - before, 650)
            assert unlike(source, tmp_path / "hub" / "web.orders") == []
            (back,) = await restore_path(access, tmp_path / "new" / "orders", client="web")
            assert (back.messages, back.next_offset) == (650, 650)
            assert unlike(source, tmp_path / "new" / "orders") == []

    in_loop(work())


def test_empty_journal_and_empty_last_segment_are_copied_unchanged(tmp_path: Path) -> None:
    with Writer(tmp_path / "empty"):
        pass
    with Writer(tmp_path / "full", segment_size=30) as writer:
        for _ in range(3):
            writer.append(b"fills a segment")
    assert len(list((tmp_path / "full" / "jnl").glob("*.jnl"))) == 4

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            for name in ("empty", "full"):
                await send_path(access_to(hub), tmp_path / name, client="web")
                await restore_path(access_to(hub), tmp_path / "new" / name, client="web")
                assert unlike(tmp_path / name, tmp_path / "hub" / f"web.{name}") == []
                assert unlike(tmp_path / name, tmp_path / "new" / name) == []

    in_loop(work())


def test_copy_of_a_cleaned_journal_starts_at_its_first_offset(tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_journal(source, 100, segment_size=6000)
    clean(source, max_bytes=9000)
    assert Reader(source).first > 0

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            (sent,) = await send_path(access_to(hub), source, client="web")
            assert (sent.messages, sent.next_offset) == (100 - Reader(source).first, 100)
            (back,) = await restore_path(access_to(hub), tmp_path / "new", client="web", name="orders")
            assert back.messages == 100 - Reader(source).first

    in_loop(work())
    assert unlike(source, tmp_path / "hub" / "web.orders") == []
    assert unlike(source, tmp_path / "new") == []


def test_messages_cleaned_before_copying_are_missing_and_reported(tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_journal(source, 20)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            await send_path(access_to(hub), source, client="web")
            write_journal(source, 100, segment_size=6000)
            clean(source, max_bytes=2000)
            with pytest.raises(OutOfStep, match=r"continues with offset 20, but .* begins with") as raised:
                await send_path(access_to(hub), source, client="web")
            assert raised.value.expected == 20

    in_loop(work())


def test_different_or_truncated_journal_of_the_same_name_is_a_conflict(tmp_path: Path) -> None:
    write_journal(tmp_path / "a" / "orders", 50)
    write_journal(tmp_path / "b" / "orders", 60, seed=2)
    write_journal(tmp_path / "c" / "orders", 40)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            await send_path(access_to(hub), tmp_path / "a" / "orders", client="web")
            with pytest.raises(Conflict, match="another message at offset 49; it continues with 50") as raised:
                await send_path(access_to(hub), tmp_path / "b" / "orders", client="web")
            assert raised.value.expected == 50
            with pytest.raises(Conflict, match=r"continues with offset 50, but .* ends before 40"):
                await send_path(access_to(hub), tmp_path / "c" / "orders", client="web")
            await send_path(access_to(hub), tmp_path / "b" / "orders", client="web", name="other")
            with pytest.raises(Conflict, match="and the copy have different messages at offset 49"):
                await restore_path(access_to(hub), tmp_path / "a" / "orders", client="web", name="other")
            (back,) = await restore_path(access_to(hub), tmp_path / "c" / "orders", client="web")
            assert (back.messages, back.next_offset) == (10, 50)

    in_loop(work())
    assert unlike(tmp_path / "a" / "orders", tmp_path / "hub" / "web.orders") == []
    assert unlike(tmp_path / "a" / "orders", tmp_path / "c" / "orders") == []


def test_shards_are_copied_one_by_one_and_restored(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "events", "blue", 2) as writer:
        for number in range(200):
            writer.append(b"%d" % number, b"key %d" % number)
    shards = [path.name for path in sorted((tmp_path / "events").iterdir())]

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            sent = await send_path(access_to(hub), tmp_path / "events", client="web")
            assert sum(one.messages for one in sent) == 200
            assert sorted(one.journal for one in sent) == shards
            await send_path(access_to(hub), tmp_path / "events", client="web", name="ev")
            await restore_path(access_to(hub), tmp_path / "by-name", client="web", name="ev")
            await restore_path(access_to(hub), tmp_path / "ev", client="web")
            await restore_path(access_to(hub), tmp_path / "new", client="web", all_shards=True)

    in_loop(work())
    for shard in shards:
        for copy in (f"hub/web.{shard}", f"hub/web.ev.{shard}", f"by-name/{shard}", f"ev/{shard}", f"new/{shard}"):
            assert unlike(tmp_path / "events" / shard, tmp_path / copy) == []


def test_unknown_name_is_an_error_that_lists_existing_names(tmp_path: Path) -> None:
    write_journal(tmp_path / "orders", 3)
    with ShardedWriter(tmp_path / "events", "blue", 4) as writer:
        for number in range(200):
            writer.append(b"%d" % number, b"key %d" % number)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            access = access_to(hub)
            with pytest.raises(NotFound, match="the hub has no journals of the client web"):
                await restore_path(access, tmp_path / "new" / "orders", client="web")
            await send_path(access, tmp_path / "orders", client="web")
            with pytest.raises(
                NotFound, match="no shards without a name of the client web; it has orders: choose with"
            ):
                await restore_path(access, tmp_path / "new" / "orders", client="web", all_shards=True)
            await send_path(access, tmp_path / "events", client="web")
            for name in (None, "typo"):
                with pytest.raises(NotFound) as raised:
                    await restore_path(access, tmp_path / "new" / "typo", client="web", name=name)
                assert str(raised.value) == (
                    f"{hub.address}: the hub has no journal typo of the client web; it has "
                    + ", ".join(f"blue.4.{number:03x}" for number in range(10))
                    + " and 7 more: choose with --name, or all shards with --shards"
                )

    in_loop(work())
    assert not (tmp_path / "new").exists()


def test_following_sends_appended_messages_across_segments_and_new_shards(tmp_path: Path) -> None:
    root = tmp_path / "events"

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            with ShardedWriter(root, "", 1, segment_size=2000) as writer:
                writer.append(b"first", b"a")
                writer.flush()
                following = asyncio.ensure_future(send_path(access_to(hub), root, client="web", follow=True))
                for number in range(100):
                    writer.append(b"%d" % number, b"key %d" % number)
                    writer.flush()
                    await asyncio.sleep(0)
                while hub.copies.written_messages < 101:
                    assert not following.done()
                    await asyncio.sleep(0.001)
                following.cancel()
                await asyncio.wait([following])

    in_loop(work())
    for shard in ("1.000", "1.001"):
        assert unlike(root / shard, tmp_path / "hub" / f"web.{shard}") == []


def test_concurrent_clients_get_their_own_messages(tmp_path: Path) -> None:
    for number in range(6):
        write_journal(tmp_path / str(number), 300, seed=number, segment_size=40_000)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            await asyncio.gather(
                *(
                    send_path(access_to(hub), tmp_path / str(number), client=f"client{number}", request_bytes=3000)
                    for number in range(6)
                )
            )

    in_loop(work())
    for number in range(6):
        assert unlike(tmp_path / str(number), tmp_path / "hub" / f"client{number}.{number}") == []


def test_two_concurrent_senders_of_a_journal_leave_one_copy(tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_journal(source, 500, segment_size=40_000)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            sending = (send_path(access_to(hub), source, client="web", request_bytes=2000) for _ in range(3))
            await asyncio.gather(*sending)

    in_loop(work())
    assert unlike(source, tmp_path / "hub" / "web.orders") == []


def test_requests_respect_the_size_limit_of_the_hub(
    tmp_path: Path,
) -> None:
    source = tmp_path / "orders"
    write_journal(source, 4000, segment_size=300_000)
    with Writer(source) as writer:
        writer.append(bytes(45_000))
        writer.append(b"a small one")

    async def work() -> None:
        async with running(tmp_path / "hub", limits=Limits(request_bytes=50_000)) as hub:
            (sent,) = await send_path(access_to(hub), source, client="web")
            assert (sent.next_offset, sent.failures) == (4002, 0)
            assert unlike(source, tmp_path / "hub" / "web.orders") == []
            with Writer(source) as writer:
                writer.append(b"another small one")
                writer.append(bytes(100_000))
            with pytest.raises(
                Refused, match=r"the request has 1000\d\d bytes, and the hub accepts 50000 at most: restart"
            ):
                await send_path(access_to(hub), source, client="web")
            async with HubClient(access_to(hub), "web") as client:
                assert await client.next_offset("orders") == 4003

    in_loop(work())


def test_messages_written_before_a_request_failed_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "orders"
    write_journal(source, 600, segment_size=20_000)
    cut_short: list[int] = []

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            put = hub.copies.put

            def put_a_part(given: Put) -> asyncio.Future[int]:
                batch, copy = given.batch, tmp_path / "hub" / "web.orders"
                written = sum(1 for _ in Reader(copy).scan()) if copy.exists() else 0
                stop = written + 3
                if len(cut_short) == 6 or not batch.first_offset <= written < stop < batch.next_offset:
                    return put(given)
                frames = batch.frames[: len(batch.frames) - len(batch.from_offset(stop).frames)]
                part = replace(given, batch=replace(batch, frames=frames, count=stop - batch.first_offset))
                cut_short.append(stop)

                async def fail() -> int:
                    assert await put(part) == stop
                    raise Locked("the disk is full from here on")

                return asyncio.ensure_future(fail())

            monkeypatch.setattr(hub.copies, "put", put_a_part)
            (sent,) = await send_path(access_to(hub), source, client="web", request_bytes=3000)
            assert (sent.messages, sent.bytes, sent.next_offset) == (600, size_of(source), 600)

    in_loop(work())
    assert cut_short == sorted(set(cut_short))
    assert len(cut_short) == 6
    assert unlike(source, tmp_path / "hub" / "web.orders") == []


def test_damage_in_the_source_ends_the_copy_before_it(tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_journal(source, 100)
    start = damage(source, 50)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            with pytest.raises(DamagedJournal):
                await send_path(access_to(hub), source, client="web")

    in_loop(work())
    name = f"{0:016x}.jnl"
    copied = (tmp_path / "hub" / "web.orders" / "jnl" / name).read_bytes()
    assert copied == (source / "jnl" / name).read_bytes()[:start]


def test_uncopyable_journal_is_reported_before_sending(tmp_path: Path) -> None:
    access = Access.load("127.0.0.1:1")
    with pytest.raises(NotFound, match="no sej journal"):
        in_loop(send_path(access, tmp_path, client="web"))
    write_journal(tmp_path / "odd name", 1)
    with pytest.raises(WrongUse, match="needs another name on the hub"):
        in_loop(send_path(access, tmp_path / "odd name", client="web"))
    for name in ("x" * 101, f"{'x' * 95}.1.000"):
        with pytest.raises(WrongUse, match=r"needs another name .* 101 characters is too long: the limit is 100"):
            in_loop(send_path(access, tmp_path / "odd name", client="web", name=name))
    with pytest.raises(WrongUse, match="is not a valid name of a client"):
        in_loop(send_path(access, tmp_path / "odd name", client="a.b", name="orders"))


# --- losses ---------------------------------------------------------------------------------------------------------


def lose(source: Path, *offsets: int) -> None:
    """Damage messages of a journal of one segment, and repair it: the losses are in its account."""
    for offset in offsets:
        damage(source, offset)
    repair.apply(source, repair.plan(source))


def known_losses(directory: Path) -> list[tuple[int, int]]:
    return [(loss.fields["first"], loss.fields["next"]) for loss in Reader(directory).losses()]


def test_known_losses_of_the_source_are_in_the_accounts_of_copy_and_restore(
    tmp_path: Path,
) -> None:
    source, back = tmp_path / "orders", tmp_path / "back"
    write_journal(source, 100)
    lose(source, 41, 40, 0)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            (sent,) = await send_path(access_to(hub), source, client="web", request_bytes=500)
            assert (sent.messages, sent.next_offset) == (97, 100)
            (sent,) = await send_path(access_to(hub), source, client="web")
            assert (sent.messages, sent.next_offset) == (0, 100)
            (restored,) = await restore_path(access_to(hub), back, client="web", name="orders")
            assert (restored.messages, restored.next_offset) == (97, 100)

    in_loop(work())
    for copy in (tmp_path / "hub" / "web.orders", back):
        assert files_of(copy) == files_of(source)
        assert known_losses(copy) == [(0, 1), (40, 42)]
        assert Reader(copy).verify().sound
        assert [message.offset for message in Reader(copy)] == [n for n in range(100) if n not in (0, 40, 41)]


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / "jnl").glob("*.jnl"))}


def test_hub_keeps_messages_that_the_source_has_lost_since(tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_journal(source, 50)

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            await send_path(access_to(hub), source, client="web")
            lose(source, 49, 48, 20)
            write_journal(source, 5)
            with pytest.raises(Conflict):
                await send_path(access_to(hub), source, client="web")

    before = files_of(source)
    in_loop(work())
    assert files_of(tmp_path / "hub" / "web.orders") == before
    assert known_losses(tmp_path / "hub" / "web.orders") == []


def test_unaccounted_gap_ends_a_copy(tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_journal(source, 60, segment_size=2000)
    segments = sorted((source / "jnl").glob("*.jnl"))
    segments[2].unlink()

    async def work() -> None:
        async with running(tmp_path / "hub") as hub:
            with pytest.raises(Gap):
                await send_path(access_to(hub), source, client="web")

    in_loop(work())
    assert known_losses(tmp_path / "hub" / "web.orders") == []


@asynccontextmanager
async def another_hub(got: list[Any], first: int = 0) -> AsyncIterator[Access]:
    """A hub like the original's: empty answers, and an error without a code for a gap. It begins with `first`."""

    async def put(request: Any, context: Any) -> Any:
        for one in request.Messages:
            if one.Offset > first + len(got):
                await context.abort(grpc.StatusCode.UNKNOWN, "offset out of order")
            if one.Offset == first + len(got):
                got.append(one)
        return PutResponse()

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(put, PutRequest.FromString, PutResponse.SerializeToString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("hub.Hub", {"Put": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield Access.load(f"127.0.0.1:{port}")
    await server.stop(None)


@pytest.mark.parametrize("follow", [False, True])
def test_copy_with_a_gap_ends_at_a_hub_that_accepts_none(tmp_path: Path, follow: bool) -> None:
    source = tmp_path / "orders"
    write_journal(source, 100)
    lose(source, 40)
    got: list[Any] = []

    async def work() -> None:
        async with another_hub(got) as access:
            with pytest.raises(OutOfStep, match=r"has lost 1 messages before offset .*, and this hub accepts no gap"):
                await send_path(access, source, client="web", follow=follow, patience_seconds=1000)

    in_loop(work())
    assert [one.Offset for one in got] == list(range(40))


@pytest.mark.parametrize("follow", [False, True])
def test_copy_of_a_cleaned_journal_ends_at_a_hub_that_accepts_no_gap(tmp_path: Path, follow: bool) -> None:
    source = tmp_path / "orders"
    write_journal(source, 60, segment_size=2000)
    first, second = sorted((source / "jnl").glob("*.jnl"))[:2]
    first.unlink()
    begins = int(second.stem, 16)
    got: list[Any] = []

    async def work() -> None:
        async with another_hub(got) as access:
            words = f"offset out of order: .*orders begins with offset {begins}, and this hub accepts no gap"
            with pytest.raises(OutOfStep, match=words):
                await send_path(access, source, client="web", follow=follow, patience_seconds=1000)
        async with another_hub(got, begins) as access:
            (sent,) = await send_path(access, source, client="web")
            assert sent.next_offset == 60

    in_loop(work())
    assert len(got) == 60 - begins


def test_hub_that_reports_no_offset_gets_one_request_at_a_time(tmp_path: Path) -> None:
    """Like the original's: its answers are empty, and it assumes that a request follows the preceding one."""
    source = tmp_path / "orders"
    write_journal(source, 200)
    got: list[Any] = []
    busy = False

    async def put(request: Any, context: Any) -> Any:
        nonlocal busy
        assert not busy
        busy = True
        await asyncio.sleep(0)
        got.extend(one for one in request.Messages if one.Offset >= len(got))
        busy = False
        return PutResponse()

    async def work() -> None:
        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(put, PutRequest.FromString, PutResponse.SerializeToString)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("hub.Hub", {"Put": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        (sent,) = await send_path(Access.load(f"127.0.0.1:{port}"), source, client="web", request_bytes=1000)
        assert sent.messages == 200
        await server.stop(None)

    in_loop(work())
    assert [one.Offset for one in got] == list(range(200))
    assert [one.Value for one in got] == [message.value for message in Reader(source)]
