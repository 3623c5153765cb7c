"""Power cuts, killed processes and failing disks at every step of every transaction, checkpoint and recovery.

After a crash the database has the state after one of its transactions, none earlier than the last acknowledged one. Its
lists are whole. Opening it once more changes nothing. It stays usable.

Stories begin with an existing empty database. The creation of a database is a separate story, `CREATING`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import LogwrightError
from logwright.yeltsin.bytes.table_layout import PAGE_DATA_BYTES
from logwright.yeltsin.files import operations
from logwright.yeltsin.model import database, transaction_log
from tests.contract.scenarios import ForgetfulDisk
from tests.support.faulty_disk import every_fault
from tests.support.simulated_disk import SimulatedDisk
from tests.yeltsin.crashed import begun, check, crashed, fresh
from tests.yeltsin.databases import JOURNAL, TABLE, Story, pattern
from tests.yeltsin.tables import page_at

MODIFYING = [
    ["modify 0 0 700", "modify 0 300 30"],
    ["modify 0 600 1200"],
    ["modify 0 10 20", "fail"],
    ["modify 0 0 5"],
    ["modify 0 1000 600"],
]
GROWING = [
    ["allocate", "modify 1 0 900"],
    ["allocate", "allocate", "modify 3 65000 517", "modify 0 7 7"],
    ["remove 1", "modify 2 0 30"],
    ["modify 0 0 5", "remove 2", "fail"],
    ["remove 2", "remove 0"],
    ["allocate", "modify 0 4 600", "allocate"],
]
SHUFFLING = [
    ["allocate", "allocate", "allocate"],
    ["remove 1", "remove 2", "allocate", "modify 2 0 40", "allocate"],
    ["remove 0", "remove 3", "allocate", "remove 1", "allocate"],
    ["remove 2", "remove 3", "remove 1", "remove 1"],
]
STORIES = [
    Story("modifying", MODIFYING),
    Story("growing", GROWING),
    Story("shuffling", SHUFFLING),
    Story("modifying, checkpoints", MODIFYING, 4000),
    Story("growing, checkpoints", GROWING, 3000),
    Story("shuffling, one checkpoint", SHUFFLING, 1 << 30),
]
IDS = [story.name for story in STORIES]
CREATING = [
    Story("creating", [["modify 0 0 5"]], creates=True),
    Story("creating, checkpoints", [["modify 0 0 5"]], 4000, creates=True),
]


@pytest.fixture(autouse=True)
def _small_and_silent(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")
    monkeypatch.setattr(database, "AHEAD_BYTES", 3000)


@pytest.mark.parametrize("story", STORIES, ids=IDS)
def test_story_ends_in_the_state_of_the_model(story: Story) -> None:
    check(story, crashed(story).copy(), len(story.transactions))


@pytest.mark.parametrize("story", [*CREATING, *STORIES], ids=str)
def test_power_cut_at_any_point_leaves_all_of_a_transaction_or_none(story: Story) -> None:
    for state in crashed(story).crash_states(most=5, format="yeltsin"):
        check(story, state, continues=False)


@pytest.mark.parametrize(
    ("story", "sync"),
    [
        *((story, "none") for story in (*CREATING[:1], *STORIES[:3])),
        *((story, "always") for story in (*CREATING, *STORIES)),
        *((story, "interval(3600000)") for story in STORIES[1:3]),
    ],
    ids=str,
)
def test_process_killed_at_any_point_loses_nothing(story: Story, sync: str) -> None:
    for state in crashed(story, sync).process_kills(format="yeltsin"):
        check(story, state)


@pytest.mark.parametrize("story", STORIES, ids=IDS)
def test_power_cut_between_two_interval_syncs_leaves_complete_transactions(story: Story) -> None:
    for state in crashed(story, "interval(3600000)").crash_states(most=4, format="yeltsin"):
        with story.opened(state) as db:
            assert any(model.is_in(db) for model in story.states), state.story


@pytest.mark.parametrize("story", [CREATING[0], *STORIES], ids=str)
def test_power_cut_during_the_recovery_loses_nothing(story: Story) -> None:
    for before in itertools.islice(crashed(story).crash_states(most=5, format=""), 0, None, 41):
        done = max(before.marks, default=0)
        story.opened(before).close()
        for state in before.crash_states(most=3, format="yeltsin"):
            check(story, state, done, continues=False)


@pytest.mark.parametrize(
    "story",
    [
        CREATING[0],
        Story("growing a little", GROWING[:3]),
        pytest.param(STORIES[1], marks=pytest.mark.torture),
        *STORIES[3::2],
    ],
    ids=str,
)
def test_failed_disk_call_loses_nothing(story: Story) -> None:
    before = begun(story)
    for disk in every_fault(before.copy, format="yeltsin"):
        done = [0]
        with contextlib.suppress(LogwrightError):
            story.run(disk, done.append)
        assert disk.inner.open_files == 0
        check(story, disk.inner.copy(), max(done), continues=False)


# --- negative controls ------------------------------------------------------------------------------------------------


def any_fails(story: Story, disk: SimulatedDisk, **choices: Any) -> bool:
    """Whether a crash state shows that something is wrong."""
    for state in disk.crash_states(format="", **choices):
        try:
            check(story, state, continues=False)
        except (AssertionError, LogwrightError):
            return True
    return False


@pytest.mark.parametrize("name", ["modifying", "growing, checkpoints"])
@pytest.mark.parametrize("file", [JOURNAL, TABLE])
def test_every_omitted_sync_is_detected(name: str, file: Path) -> None:
    (story,) = (story for story in STORIES if story.name == name)
    disk = begun(story)
    forgets: Callable[[str, Path], bool] = lambda kind, path: kind == "sync" and path == file  # noqa: E731
    forgetful: Any = ForgetfulDisk(disk, forgets)
    story.run(forgetful, disk.mark)
    assert forgetful.forgotten
    assert any_fails(story, disk, most=30)


def test_torn_transaction_would_be_accepted_without_its_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story("large", [["modify 0 0 5000"], ["modify 0 2000 5000"]])
    disk = crashed(story)
    monkeypatch.setattr(operations, "holds_seal", lambda *arguments: True)
    assert any(any_fails(story, disk, kinds=("torn",), seed=seed) for seed in range(20))


def ends_at(offset: int) -> Story:
    """A story whose second transaction ends at a given byte of a sector."""
    first, head = 20 + 25 + 17 + 2 * 300 + 13, 25 + 17
    size = (offset - first - head) % 512 // 2 + 512
    assert (first + head + 2 * size - offset) % 512 in (0, 511)
    return Story(f"ends at {offset}", [["modify 0 0 300"], [f"modify 0 100 {size}"]])


@pytest.mark.parametrize("offset", [502, 503, 504, 505, 507, 509, 511, 512])
def test_seal_across_two_sectors_is_not_taken_as_missing(offset: int) -> None:
    story = ends_at(offset)
    for state in crashed(story).crash_states(kinds=("torn",), format="yeltsin"):
        check(story, state, continues=False)


def test_seal_across_two_sectors_needs_a_second_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "lies_in_two_sectors", lambda end: False)
    disks = [(story, crashed(story)) for story in map(ends_at, (505, 506))]
    assert any(any_fails(story, disk, kinds=("torn",), seed=seed) for seed in range(2, 20) for story, disk in disks)


# --- redo -------------------------------------------------------------------------------------------------------------


def test_last_transactions_are_redone_from_any_mixture_of_old_and_new_pages() -> None:
    story = Story("mixture", SHUFFLING, 1 << 30)
    old = fresh()
    story.opened(old).close()
    before = old.open(TABLE, "read").read_at(0, 1 << 30)
    new = crashed(story)
    after = new.open(TABLE, "read").read_at(0, 1 << 30)
    journal = new.open(JOURNAL, "read").read_at(0, 1 << 30)
    at = int.from_bytes(journal[12:20], "little")
    flags = bytearray(journal)
    while at:  # as if the checkpoint had never happened
        flags[at + 24] = 0
        at = int.from_bytes(journal[at : at + 8], "little")
    for choice in range(32):
        disk = fresh()
        mixture = bytearray(before.ljust(len(after), b"\0"))
        for page in range(4):
            if choice >> page & 1:
                mixture[page_at(page) : page_at(page) + 19] = after[page_at(page) : page_at(page) + 19]
        if choice >> 4:
            mixture[:30] = after[:30]
        for path, data in ((TABLE, mixture[: len(mixture) if choice else len(before)]), (JOURNAL, flags)):
            disk.open(path, "create").write_at(0, bytes(data))
        with story.opened(disk) as db:
            assert len(db.redone) == len(SHUFFLING)
            assert story.states[-1].is_in(db), choice


def test_zeros_written_ahead_are_not_a_loss() -> None:
    story = Story("ahead", MODIFYING, 1 << 30)
    disk = fresh()
    db = story.opened(disk)
    with db.transaction() as transaction:
        transaction.modify(page_at(0), 0, pattern(1, PAGE_DATA_BYTES))
    killed = disk.copy()
    assert killed.file_size(JOURNAL) > 2 * PAGE_DATA_BYTES + 3000
    with story.opened(killed) as db:
        assert (db.recovered, len(db.redone)) == (None, 1)
    assert killed.file_size(JOURNAL) == 20 + 25 + 17 + 2 * PAGE_DATA_BYTES + 5 + 8


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("story", STORIES, ids=IDS)
def test_many_power_cuts_lose_no_acknowledged_transaction(story: Story, seed: int) -> None:
    for state in crashed(story).crash_states(most=60, seed=seed, format="yeltsin"):
        check(story, state)
    for before in itertools.islice(crashed(story).crash_states(most=6, seed=seed, format=""), 0, None, 9):
        done = max(before.marks, default=0)
        story.opened(before).close()
        for state in before.crash_states(most=5, seed=seed, format="yeltsin"):
            check(story, state, done)
