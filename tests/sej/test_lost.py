"""Known losses of a sej journal: every reader skips the gap, logs it once, and stops at any other gap."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.repair.losses import Loss, account_path
from logwright.errors import Gap
from logwright.sej.bytes.layout import segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.lost import are_known, lost_messages
from logwright.sej.files.reader import Reader
from logwright.sej.files.repair import apply, plan, undo
from logwright.sej.files.scanner import Scanner
from logwright.sej.model.aio import AsyncConsumer, AsyncScanner
from logwright.sej.model.consumer import Consumer
from logwright.sej.tables.splits import SPLITS
from tests.sej.samples import MESSAGE_BYTES, make_journal, offsets_of
from tests.support.damage import damage_file, noise, overwrite

PASSED = "messages 13 to 14 passed: lost, as the account of losses says"
LEFT = [*range(13), *range(15, 25)]


@pytest.fixture
def lossy(journal_directory: Path) -> Path:
    """A journal of 25 messages that has lost 13 and 14, with an account of this."""
    make_journal(journal_directory, 25)
    damage_file(journal_directory / "jnl" / segment_name(10), overwrite, 3 * MESSAGE_BYTES, noise(50, 1))
    apply(journal_directory, plan(journal_directory))
    return journal_directory


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().rpartition("jnl @ 0: ")[2] for record in caplog.records]


def test_reader_skips_a_known_gap_and_logs_one_line(lossy: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert offsets_of(Reader(lossy)) == LEFT
    assert logged(caplog) == [PASSED]


def test_in_permissive_a_known_gap_is_damage_of_the_kind_lost(lossy: Path, caplog: pytest.LogCaptureFixture) -> None:
    items = list(Reader(lossy).messages(mode="permissive"))
    assert [item for item in items if isinstance(item, Damage)] == [
        Damage("jnl/000000000000000f.jnl", 0, 0, PASSED, "lost")
    ]
    assert offsets_of(item for item in items if isinstance(item, Message)) == LEFT
    assert logged(caplog) == []


def test_scanner_skips_a_known_gap(lossy: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Scanner(lossy, timeout=0) as scanner:
        assert offsets_of(scanner) == LEFT
    assert logged(caplog) == [PASSED]


@pytest.mark.parametrize("start", [13, 14])
def test_scanner_starting_within_a_loss_continues_after_it(lossy: Path, start: int) -> None:
    with Scanner(lossy, start, timeout=0) as scanner:
        assert offsets_of(scanner) == [*range(15, 25)]


def test_consumers_skip_a_known_gap(lossy: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    with Consumer(lossy, "plain", lambda message: seen.append(message.offset), timeout=0) as consumer:
        assert consumer.run() == 23
        assert consumer.committed == 25
    assert seen == LEFT
    assert logged(caplog) == [PASSED]


def test_asynchronous_scanners_and_consumers_skip_a_known_gap(lossy: Path) -> None:
    async def run() -> tuple[list[int], list[int]]:
        handled: list[int] = []

        async def handle(message: Message) -> None:
            handled.append(message.offset)

        async with AsyncScanner(lossy, timeout=0) as scanner:
            scanned = offsets_of([item async for item in scanner])
        async with AsyncConsumer(lossy, "async", handle, timeout=0) as consumer:
            await consumer.run()
        return scanned, handled

    assert asyncio.run(run()) == (LEFT, LEFT)


def test_splits_skip_a_known_gap(lossy: Path) -> None:
    reader = Reader(lossy)
    planned = SPLITS.plan(reader, 100)
    assert [split.before.kind for split in planned if split.before is not None] == ["lost"]
    found = [chunk for split in planned for chunk in SPLITS.chunks(reader, split)]
    assert sum(chunk.count for chunk in found if not isinstance(chunk, Damage)) == len(LEFT)


def test_last_messages_are_read_across_a_known_gap(lossy: Path) -> None:
    assert [item.record.offset for item in Reader(lossy).last(15)] == LEFT[-15:]


def test_verify_and_inspect_call_it_sound_and_list_the_loss(lossy: Path) -> None:
    report = Reader(lossy).verify()
    assert (report.sound, report.anomalies) == (True, [])
    assert [(loss.at_least, loss.fields["first"], loss.fields["next"]) for loss in report.losses] == [(2, 13, 15)]
    assert not Reader(lossy).summary().damaged
    assert Reader(lossy).summary().records == len(LEFT)


def test_gap_larger_than_the_known_loss_is_a_gap(lossy: Path) -> None:
    (lossy / "jnl" / segment_name(15)).unlink()
    for read in (lambda: list(Reader(lossy)), lambda: list(Scanner(lossy, timeout=0)), lambda: Reader(lossy).last(15)):
        with pytest.raises(Gap, match="the segment begins with offset 20 where 13 was expected"):
            read()
    assert [problem.kind for problem in Reader(lossy).verify().problems] == ["gap"]
    found = plan(lossy)
    assert [(loss.fields["first"], loss.fields["next"]) for loss in found.losses] == [(13, 20)]
    apply(lossy, found)
    assert offsets_of(Reader(lossy)) == [*range(13), *range(20, 25)]


def test_undo_restores_the_damage_and_removes_the_account(lossy: Path) -> None:
    undo(lossy)
    assert Reader(lossy).losses() == []
    assert [problem.kind for problem in Reader(lossy).verify().problems] == ["malformed"]


def test_unreadable_account_explains_nothing(lossy: Path) -> None:
    account_path(lossy).write_bytes(b"{\n")
    with pytest.raises(Gap):
        list(Reader(lossy))
    assert [problem.kind for problem in Reader(lossy).verify().problems] == ["gap", "unreadable"]


def test_copied_directory_includes_the_account(lossy: Path, tmp_path: Path) -> None:
    lossy.rename(tmp_path / "elsewhere")
    assert offsets_of(Reader(tmp_path / "elsewhere")) == LEFT


def test_ranges_of_several_repairs_explain_a_gap_together() -> None:
    def lost(first: int, after: int) -> Loss:
        return lost_messages("file", 0, 0, "", first=first, after=after)

    account = [lost(20, 30), lost(5, 8), lost(8, 12), lost(10, 11)]
    assert are_known(account, 5, 12)
    assert are_known(account, 7, 9)
    assert are_known(account, 20, 30)
    assert not are_known(account, 4, 6)
    assert not are_known(account, 5, 13)
    assert not are_known(account, 11, 25)
    assert not are_known([], 1, 2)
    assert not are_known([Loss("file", 0, 0, 0, 0, "", "", kind="restored", fields={"first": 0, "next": 9})], 1, 2)


def test_log_line_names_the_journal_and_the_file(lossy: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "logwright"):
        list(Reader(lossy))
    assert [record.getMessage() for record in caplog.records] == [f"{lossy}: jnl/000000000000000f.jnl @ 0: {PASSED}"]
