"""The hub's wire protocol: what any client may send, and the answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.sej import Reader
from logwright.sej.bytes.wire import number_field
from logwright.servers.hub import HubClient, Limits, Refused, requests
from tests.servers.hub.support import Wire, access_to, copies_in, in_loop, message, running
from tests.servers.hub.wire_messages import PutRequest
from tests.support.counts import COUNTS
from tests.support.trees import read_tree


def offsets(journal: Path) -> list[tuple[int, bytes]]:
    return [(found.offset, found.value) for found in Reader(journal)]


def test_repeats_are_ignored_and_gaps_and_conflicts_name_the_expected_offset(
    tmp_path: Path,
) -> None:
    async def talk() -> None:
        async with running(tmp_path) as hub, Wire(hub) as wire:
            await wire.put("web", "orders", message(0), message(1))
            await wire.put("web", "orders", message(2), message(3))
            await wire.put("web", "orders", message(1), message(2))  # all of it repeated
            await wire.put("web", "orders", message(3), message(4), message(5))  # one of three is new
            assert hub.copies.repeated_messages == 3
            gap = await wire.refused(wire.put("web", "orders", message(7)))
            assert gap[0] == "OUT_OF_RANGE"
            assert "expects offset 6, and the messages begin with 7" in gap[1]
            assert gap[2]["logwright-expected"] == "6"
            conflict = await wire.refused(wire.put("web", "orders", message(4), message(5, b"other"), message(6)))
            assert conflict[0] == "ALREADY_EXISTS"
            assert "another message at offset 5; it continues with 6" in conflict[1]
            assert conflict[2]["logwright-expected"] == "6"
            within = await wire.refused(wire.put("web", "orders", message(6), message(8)))
            assert within[0] == "INVALID_ARGUMENT"
            assert "the offset is 8 where 7 was expected" in within[1]
            await wire.put("web", "orders", message(6))

    in_loop(talk())
    assert offsets(tmp_path / "web.orders") == [(number, b"value") for number in range(7)]


def test_first_message_must_be_number_0_and_a_query_creates_nothing(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path) as hub, Wire(hub) as wire:
            await wire.put("web", "orders")
            gap = await wire.refused(wire.put("web", "orders", message(3)))
            assert (gap[0], gap[2]["logwright-expected"]) == ("OUT_OF_RANGE", "0")
            assert (await wire.refused(wire.get("web", "orders")))[0] == "NOT_FOUND"

    in_loop(talk())
    assert copies_in(tmp_path) == []


def test_message_beyond_the_largest_offset_creates_no_copy(tmp_path: Path) -> None:
    last = PutRequest(ClientID="web", JournalDir="orders", Messages=[message(2**64 - 1)]).SerializeToString()
    begins = number_field(requests.BEGINS, 1)

    async def talk() -> None:
        async with running(tmp_path) as hub, HubClient(access_to(hub), "web") as client:
            with pytest.raises(Refused, match="1 messages from offset 18446744073709551615 on are more than"):
                await client.put(last + begins)

    in_loop(talk())
    assert copies_in(tmp_path) == []


def test_get_returns_a_bounded_number_of_messages_from_an_offset(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path, limits=Limits(answer_bytes=300_000)) as hub, Wire(hub) as wire:
            sent = [message(number, bytes(4000)) for number in range(250)]
            await wire.put("web", "orders", *sent)
            found: list[object] = []
            while answer := await wire.get("web", "orders", len(found)):
                assert sum(len(one.Value) for one in answer) <= 300_000
                found += answer
            assert found == sent
            assert await wire.get("web", "orders", 247) == sent[247:]
            assert await wire.get("web", "orders", 2**63) == []

    in_loop(talk())


def test_segments_roll_by_size_unless_the_client_names_them(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path, segment_size=100) as hub, Wire(hub) as wire:
            await wire.put("web", "orders", *(message(number, bytes(20)) for number in range(7)))  # 49 bytes each
            await wire.put("web", "orders", message(7, bytes(500)), message(8))

    in_loop(talk())
    names = sorted(path.name for path in (tmp_path / "web.orders" / "jnl").glob("*.jnl"))
    assert names == [f"{first:016x}.jnl" for first in (0, 3, 6, 8)]
    assert [offset for offset, _ in offsets(tmp_path / "web.orders")] == list(range(9))


def test_each_client_and_journal_name_has_its_own_directory(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path) as hub, Wire(hub) as wire:
            await wire.put("web", "a.b", message(0, b"1"))
            await wire.put("web", "a", message(0, b"2"))
            await wire.put("web2", "a", message(0, b"3"))
            assert (await wire.refused(wire.put("web.a", "b", message(0))))[0] == "INVALID_ARGUMENT"

    in_loop(talk())
    assert {path.name: offsets(path)[0][1] for path in copies_in(tmp_path)} == {
        "web.a.b": b"1",
        "web.a": b"2",
        "web2.a": b"3",
    }


HOSTILE = [
    *(
        "",
        ".",
        "..",
        "../up",
        "/etc",
        "a/b",
        "a\\b",
        "a\0b",
        "a\nb",
        "x" * 101,
        " a",
        "a ",
        ".a",
        "a.",
        "a..b",
        "é",
        "~",
        "a\ufeff",
        "\uff41",
        "a\u0301",
        "\u0661",
        "a\x7f",
    ),
    *("%2e%2e", "..%2fup", "con:", "-\r", "\u202e", "a\u2028b", "$HOME", "jnl/../../up", "*", "a.b/../../c"),
]


def test_hostile_names_are_refused_and_nothing_outside_is_changed(tmp_path: Path) -> None:
    root = tmp_path / "in" / "copies"
    canary = tmp_path / "up"
    (canary / "jnl").mkdir(parents=True)
    (canary / "jnl" / f"{0:016x}.jnl").write_bytes(b"")
    before = read_tree(REAL_DISK, tmp_path)

    async def talk() -> None:
        async with running(root) as hub, Wire(hub) as wire:
            for name in HOSTILE:
                for client, journal in ((name, "orders"), ("web", name)):
                    for call in (wire.put(client, journal, message(0)), wire.get(client, journal)):
                        assert (await wire.refused(call))[0] == "INVALID_ARGUMENT", ascii((client, journal))
                        COUNTS.add("hostile inputs", 1, "hub")

    in_loop(talk())
    own = {"in/copies/.logwright": None, "in/copies/.logwright/.server.lck": b""}
    assert read_tree(REAL_DISK, tmp_path) == {**before, "in": None, "in/copies": None, **own}


@pytest.mark.parametrize("place", ["web.orders", "web.orders/jnl"])
def test_link_out_of_the_directory_is_not_followed(place: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (outside / "jnl").mkdir(parents=True)
    (outside / "jnl" / f"{0:016x}.jnl").write_bytes(b"")
    (root / place).parent.mkdir(parents=True)
    (root / place).symlink_to(outside / "jnl" if place.endswith("jnl") else outside)
    before = read_tree(REAL_DISK, outside)

    async def talk() -> None:
        async with running(root) as hub, Wire(hub) as wire:
            code, words, _ = await wire.refused(wire.put("web", "orders", message(0)))
            assert (code, place in words) == ("ABORTED", True)
            assert (await wire.refused(wire.get("web", "orders")))[0] == "NOT_FOUND"

    in_loop(talk())
    assert read_tree(REAL_DISK, outside) == before
    COUNTS.add("hostile inputs", 2, "hub")


def test_copy_locked_by_another_program_is_not_changed(tmp_path: Path) -> None:
    from logwright.sej import Writer

    async def talk() -> None:
        async with running(tmp_path) as hub, Wire(hub) as wire:
            with Writer(tmp_path / "web.orders") as writer:
                writer.append(b"value")
                refused = await wire.refused(wire.put("web", "orders", message(1)))
                assert refused[0] == "UNAVAILABLE"
                assert refused[1] == "web.orders/jnl.lck is locked by another open journal"
            await wire.put("web", "orders", message(1))

    in_loop(talk())
    assert len(offsets(tmp_path / "web.orders")) == 2


@pytest.mark.parametrize("is_removed", [False, True], ids=["moved", "removed"])
def test_put_to_a_moved_or_removed_copy_is_refused_and_a_new_copy_begins(is_removed: bool, tmp_path: Path) -> None:
    copy, aside = tmp_path / "web.orders", tmp_path / "aside"

    async def talk() -> None:
        async with running(tmp_path) as hub, Wire(hub) as wire:
            await wire.put("web", "orders", message(0), message(1))
            if is_removed:
                shutil.rmtree(copy)
            else:
                copy.rename(aside)
            code, words, _ = await wire.refused(wire.put("web", "orders", message(2)))
            assert code == "UNAVAILABLE"
            assert words == "web.orders was moved or removed while it was written"
            assert (await wire.refused(wire.put("web", "orders", message(2))))[0] == "OUT_OF_RANGE"
            await wire.put("web", "orders", message(0, b"new"))

    in_loop(talk())
    assert offsets(copy) == [(0, b"new")]
    assert is_removed or offsets(aside)[:2] == [(0, b"value"), (1, b"value")]


def test_journals_beyond_the_open_limit_take_turns_and_beyond_the_total_are_refused(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path, limits=Limits(open_journals=2, journals=5)) as hub, Wire(hub) as wire:
            for offset in range(3):
                for number in range(5):
                    await wire.put("web", f"j{number}", message(offset))
            assert hub.copies.open_count <= 3
            refused = await wire.refused(wire.put("web", "j5", message(0)))
            assert refused[:2] == ("FAILED_PRECONDITION", "this hub has 5 journals and accepts no more")

    in_loop(talk())
    assert [len(offsets(path)) for path in copies_in(tmp_path)] == [3] * 5
