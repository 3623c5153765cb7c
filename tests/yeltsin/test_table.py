"""Tables: the original's files byte for byte, lists that stay correct, and files with wrong links."""

from __future__ import annotations

import contextlib
import random
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from logwright.core.io.lock import Lock
from logwright.errors import Closed, DamagedJournal, Locked, LogwrightError, NotFound, Poisoned, WrongUse
from logwright.yeltsin.bytes.layout import lock_name
from logwright.yeltsin.bytes.table_layout import DELETED, PAGE_BYTES, PAGE_DATA_BYTES, TABLE_HEAD_BYTES, new_table
from logwright.yeltsin.model.table import Table
from tests.support.counts import COUNTS
from tests.support.faulty_disk import every_fault
from tests.support.replay import each
from tests.support.simulated_disk import SimulatedDisk
from tests.yeltsin.tables import CASES, golden, page_at, patched

HOME = Path("/tables")
DEFECTS = {"reuse_free", "same_session_two_deletes"}
"""The mistakes of the original: it does not link a page that it takes from the free list, and forgets one."""


def obey(path: Path, commands: list[str]) -> None:
    """Run the commands of the original's driver: each on a table that was just opened, until it says `same`."""
    with Table(path) as table:
        assert list(table.pages()) == [TABLE_HEAD_BYTES]
    same = commands[commands.index("same") + 1 :] if "same" in commands else []
    for command in commands[1 : len(commands) - len(same)]:
        with Table(path) as table:
            act(table, command)
    with Table(path) as table:
        for command in same:
            act(table, command)


def act(table: Table, command: str) -> None:
    verb, *words = command.split()
    if verb == "append":
        table.replace(table.allocate(), *content(int(words[0]), words[1]))
    elif verb == "replace":
        table.replace(list(table.pages())[int(words[0])], *content(int(words[1]), words[2]))
    elif verb == "delete":
        table.remove(list(table.pages())[int(words[0])])


def content(rows: int, word: str) -> tuple[int, bytes]:
    return rows, b"".join(b"\0" + word.encode() + b"%d" % number for number in range(rows))


@pytest.mark.parametrize("name", sorted(CASES))
def test_tables_of_the_original_are_read(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    (tmp_path / "t.ydb").write_bytes(golden(name))
    with Table(tmp_path / "t.ydb", read_only=True) as table:
        assert list(table.pages()) == case["forward_chain"]
        assert list(table.free_pages()) == case["free_chain"]
        assert (table.first, table.last, table.last_free) == (case["first"], case["last"], case["last_free"])
        for page in case["pages"]:
            if page["offset"] in case["forward_chain"]:
                assert table.rows(page["offset"]) == page["rows"]
                assert table.read(page["offset"]).rstrip(b"\0").hex().startswith(page["data_head_hex"].rstrip("0"))
        report = table.verify()
    assert report.sound
    assert [anomaly.position for anomaly in report.anomalies] == case["orphan_pages"]
    assert report.records == len(case["forward_chain"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.ydb"]


@pytest.mark.parametrize("name", sorted(CASES.keys() - DEFECTS))
def test_same_changes_give_the_bytes_of_the_original(name: str, tmp_path: Path) -> None:
    obey(tmp_path / "t.ydb", CASES[name]["commands"])
    assert (tmp_path / "t.ydb").read_bytes() == golden(name)


def test_page_from_the_free_list_is_linked_and_cleared(tmp_path: Path) -> None:
    obey(tmp_path / "t.ydb", CASES["reuse_free"]["commands"])
    original = golden("reuse_free")
    expected = patched(patched(original, page_at(3) + 1, page_at(1)), 14, page_at(1))  # forgotten by the original
    assert (tmp_path / "t.ydb").read_bytes() == expected
    with Table(tmp_path / "t.ydb") as table:
        assert list(table.pages()) == [page_at(number) for number in (0, 2, 3, 1)]
        table.remove(page_at(2))
        assert table.allocate() == page_at(2)
        assert table.read(page_at(2)) == bytes(PAGE_DATA_BYTES)
        assert table.rows(page_at(2)) == 0


def test_free_list_survives_several_removals_in_one_session(tmp_path: Path) -> None:
    obey(tmp_path / "t.ydb", CASES["same_session_two_deletes"]["commands"])
    with Table(tmp_path / "t.ydb") as table:
        assert list(table.free_pages()) == [page_at(1), page_at(0)]
        assert list(table.pages()) == [page_at(2), page_at(3)]
        assert [table.allocate() for _ in range(3)] == [page_at(1), page_at(0), page_at(4)]
        assert table.verify().anomalies == []


def test_only_page_cannot_be_removed(tmp_path: Path) -> None:
    with Table(tmp_path / "t.ydb") as table:
        table.replace(table.first, 4, b"rows")
        table.remove(table.first)
        assert list(table.pages()) == [page_at(0)]
        assert (table.rows(page_at(0)), table.last_free) == (0, 0)


def test_new_table_is_one_empty_page_and_is_locked(tmp_path: Path) -> None:
    with Table(tmp_path / "deep" / "t.ydb") as table:
        assert (tmp_path / "deep" / "t.ydb").read_bytes() == golden("new") == new_table()
        with pytest.raises(Locked):
            Table(tmp_path / "deep" / "t.ydb")
        with Table(tmp_path / "deep" / "t.ydb", read_only=True) as other:
            table.modify(table.first, 0, b"seen")
            assert other.read(page_at(0), 0, 4) == b"seen"
            table.allocate()
            assert list(other.pages()) == [page_at(0), page_at(1)]
            with pytest.raises(WrongUse, match="reading only"):
                other.allocate()


def test_table_is_not_opened_while_another_process_has_its_lock() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    Table(HOME / "t.ydb", disk=disk).close()
    with Lock.acquire(disk, HOME / lock_name("t.ydb")), pytest.raises(Locked):
        Table(HOME / "t.ydb", disk=disk)
    Table(HOME / "t.ydb", disk=disk).close()


def test_changes_are_durable_after_a_sync_and_after_closing() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    table = Table(HOME / "t.ydb", disk=disk)
    for end in (table.sync, table.close):
        table.modify(table.first, 0, b"changed")
        assert f"contents of {HOME / 't.ydb'}" in disk.unsynced()
        end()
        assert f"contents of {HOME / 't.ydb'}" not in disk.unsynced()


def test_invalid_requests_are_wrong_use_and_change_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Table(tmp_path / "t.ydb", create=False)
    assert list(tmp_path.iterdir()) == []
    with Table(tmp_path / "t.ydb") as table:
        removed = table.allocate()
        table.remove(removed)
        before = (tmp_path / "t.ydb").read_bytes()
        wrong: list[Callable[[], object]] = [
            lambda: table.read(0),
            lambda: table.read(31),
            lambda: table.read(page_at(2)),
            lambda: table.read(removed),
            lambda: table.remove(removed),
            lambda: table.modify(removed, 0, b"x"),
            lambda: table.modify(page_at(0), PAGE_DATA_BYTES, b"x"),
            lambda: table.modify(page_at(0), -1, b"x"),
            lambda: table.replace(page_at(0), 65536, b""),
        ]
        for call in wrong:
            with pytest.raises(WrongUse):
                call()
        assert (tmp_path / "t.ydb").read_bytes() == before
    with pytest.raises(Closed):
        table.read(page_at(0))


def test_pages_may_be_removed_during_iteration_and_views_have_bytes(tmp_path: Path) -> None:
    with Table(tmp_path / "t.ydb") as table:
        pages = [table.first, *(table.allocate() for _ in range(3))]
        for page in table.pages():
            table.remove(page)
        assert (table.pages(), table.free_pages()) == (pages[3:], pages[2::-1])
        for page in table.free_pages():
            assert table.allocate() == page
        wide = memoryview(array("I", range(1, 9)))  # 8 items, 32 bytes
        with pytest.raises(WrongUse, match="32 from"):
            table.modify(pages[0], PAGE_DATA_BYTES - 8, wide)
        table.modify(pages[0], PAGE_DATA_BYTES - 32, wide)
        table.replace(pages[1], 7, wide)
        assert table.read(pages[0], PAGE_DATA_BYTES - 32) == table.read(pages[1], 0, 32) == bytes(wide)
        assert table.verify().sound


# --- files that lie ---------------------------------------------------------------------------------------------------

NEXT, PREVIOUS = 1, 9
FIRST, LAST, FREE = 6, 14, 22
WRONG_FIELDS = {
    "not a table": (patched(golden("append3"), 0, 0x20212121), 0),
    "another version": (patched(golden("append3"), 4, 2, "B"), 4),
    "shorter than a page": (golden("append3")[:5000], 30),
    "unfinished": (patched(golden("append3"), 3, ord("?"), "B"), 0),
    "first page in the head": (patched(golden("append3"), FIRST, 10), FIRST),
    "first page past the end": (patched(golden("append3"), FIRST, page_at(4)), FIRST),
    "first page far past the end": (patched(golden("append3"), FIRST, 2**64 - PAGE_BYTES + 30), FIRST),
    "next page between two": (patched(golden("append3"), page_at(1) + NEXT, 131000), page_at(1)),
    "a circle": (patched(golden("append3"), page_at(3) + NEXT, page_at(1)), page_at(1)),
    "a circle of one": (patched(golden("append3"), page_at(0) + NEXT, page_at(0)), page_at(0)),
    "a removed page in the list": (patched(golden("append3"), page_at(2), DELETED, "B"), page_at(2)),
    "previous of another": (patched(golden("append3"), page_at(2) + PREVIOUS, page_at(3)), page_at(2)),
    "last is not the last": (patched(golden("append3"), LAST, page_at(2)), page_at(3)),
    "the free list in a page in use": (patched(golden("append3"), FREE, page_at(1)), page_at(1)),
    "the free list past the end": (patched(golden("delete_two"), page_at(1) + NEXT, page_at(9)), page_at(1)),
    "the free list in a circle": (patched(golden("delete_two"), page_at(1) + NEXT, page_at(2)), page_at(1)),
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_wrong_table_field_is_reported_with_its_position(name: str, tmp_path: Path) -> None:
    data, position = WRONG_FIELDS[name]
    path = tmp_path / "t.ydb"
    path.write_bytes(data)
    with pytest.raises(DamagedJournal) as caught, Table(path) as table:  # noqa: PT012
        assert not table.verify().sound
        assert len(list(table.pages())) <= 4
        assert len(list(table.free_pages())) <= 4
    assert caught.value.position == position
    assert path.read_bytes() == data
    COUNTS.add("hostile inputs", 1, "yeltsin")


def test_changing_a_table_with_broken_lists_fails_or_leaves_it_equally_broken(tmp_path: Path) -> None:
    path = tmp_path / "t.ydb"
    chance = random.Random(7)
    offsets = [0, 10, page_at(0), page_at(1), page_at(2), page_at(3), page_at(4), 2**63, 2**64 - 1]
    fields = [FIRST, LAST, FREE, *(page_at(number) + field for number in range(4) for field in (NEXT, PREVIOUS))]
    for _ in each((str(number), number) for number in range(150)):
        data = golden(chance.choice(("delete_two", "append3", "delete_first")))
        for _ in range(chance.choice((1, 1, 2, 4))):
            data = patched(data, chance.choice(fields), chance.choice(offsets))
        path.write_bytes(data)
        with Table(path) as table:
            for _ in range(6):
                with contextlib.suppress(DamagedJournal, WrongUse):
                    act_anyhow(table, chance)
            assert table.verify().bytes <= len(data) + 6 * PAGE_BYTES
        assert path.read_bytes()[:4] == b"TBL!"
        COUNTS.add("hostile inputs", 1, "yeltsin")


def act_anyhow(table: Table, chance: random.Random) -> None:
    if chance.random() < 0.5:
        table.allocate()
    else:
        table.remove(page_at(chance.randrange(5)))


# --- whatever is done to it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_table_behaves_like_a_dictionary_of_pages(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    table = Table(tmp_path / "t.ydb")
    pages = {page_at(0): bytearray(PAGE_DATA_BYTES)}
    free: list[int] = []
    for step in range(200):
        page = chance.choice(list(pages))
        match chance.choices(("allocate", "modify", "remove", "reopen"), (4, 8, 4, 1))[0]:
            case "allocate":
                expected = free.pop() if free else page_at(len(pages))
                assert table.allocate() == expected
                pages[expected] = bytearray(PAGE_DATA_BYTES)
            case "modify":
                offset = chance.choice((0, 1, 500, PAGE_DATA_BYTES - 40))
                data = chance.randbytes(chance.randrange(41))
                table.modify(page, offset, data)
                pages[page][offset : offset + len(data)] = data
            case "remove":
                table.remove(page)
                if len(pages) > 1:
                    del pages[page]
                    free.append(page)
            case "reopen":
                table.close()
                table = Table(tmp_path / "t.ydb")
        assert list(table.pages()) == list(pages), step
        assert list(table.free_pages()) == free[::-1]
        assert table.read(page, 480, 60) == pages[page][480:540] if page in pages else page in free
    for page, content in pages.items():
        assert table.read(page) == content
    assert (table.verify().problems, table.verify().anomalies) == ([], [])
    table.close()


def test_kill_during_a_change_leaves_a_table_marked_unfinished() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with Table(HOME / "t.ydb", disk=disk) as table:
        table.remove(table.allocate())
    disk.settle()
    with Table(HOME / "t.ydb", disk=disk) as table:
        table.modify(table.allocate(), 0, b"data")
        disk.mark("done")
    refused = 0
    for state in disk.process_kills(format="yeltsin"):
        try:
            with Table(HOME / "t.ydb", disk=state) as table:
                assert table.verify().sound
                found = list(table.pages())
                assert len(found) == 2 or not state.marks
        except DamagedJournal:
            assert state.marks == []
            refused += 1
    assert refused >= 6


def test_failed_disk_call_is_final_and_reported() -> None:
    def fresh() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        return disk

    for disk in every_fault(fresh, format="yeltsin"):
        failed = False
        try:
            with Table(HOME / "t.ydb", disk=disk) as table:
                try:
                    table.modify(table.allocate(), 5, b"data")
                    table.remove(page_at(0))
                    table.sync()
                except LogwrightError:
                    failed = True
                    if disk.failed in (f"write {table.path}", f"sync {table.path}"):
                        with pytest.raises(Poisoned):
                            table.allocate()
        except LogwrightError:
            failed = True
        assert disk.inner.open_files == 0
        if not failed:
            with Table(HOME / "t.ydb", read_only=True, disk=disk.inner) as table:
                assert list(table.pages()) == [page_at(1)]
                assert table.read(page_at(1), 4, 6) == b"\0data\0"
