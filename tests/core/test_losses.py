"""The account of losses: kept durably, added to by repairs, reverted by undo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.core.io.lock import Lock
from logwright.core.read.file_check import report_repairs
from logwright.core.read.report import Report
from logwright.core.repair import losses
from logwright.core.repair import plan as repair
from logwright.core.repair.losses import Loss, account_path, add_losses, listed, read_losses, remove_losses
from logwright.core.repair.plan import Cut, Plan
from logwright.errors import DamagedJournal, Locked
from tests.support.simulated_disk import SimulatedDisk

LOSS = Loss("cars", 40, 12, 1, 3, "items added after 5", "opcode 77", part="cars", fields={"first": 4})
EXACT = Loss("bikes", 0, 9, 2, 2, "offsets 1 to 2", "size -1", part="bikes")
GUESS = Loss("cars", 7, 1, 0, 0, "the size of the item at 6", "one bit", kind="restored", part="cars")


def test_account_returns_entries_in_order(tmp_path: Path) -> None:
    add_losses(REAL_DISK, tmp_path, [LOSS, EXACT])
    add_losses(REAL_DISK, tmp_path, [GUESS])
    assert read_losses(REAL_DISK, tmp_path) == [LOSS, EXACT, GUESS]
    assert read_losses(REAL_DISK, tmp_path, "cars") == [LOSS, GUESS]


def test_journal_without_an_account_has_no_losses(tmp_path: Path) -> None:
    assert read_losses(REAL_DISK, tmp_path) == []
    assert not account_path(tmp_path).parent.exists()


def test_losses_of_the_same_repair_are_replaced_and_removed(tmp_path: Path) -> None:
    add_losses(REAL_DISK, tmp_path, [EXACT])
    add_losses(REAL_DISK, tmp_path, [LOSS], repair="repair-1.json")
    add_losses(REAL_DISK, tmp_path, [LOSS], repair="repair-1.json")
    assert [loss.repair for loss in read_losses(REAL_DISK, tmp_path)] == ["", "repair-1.json"]
    remove_losses(REAL_DISK, tmp_path, "repair-1.json")
    assert read_losses(REAL_DISK, tmp_path) == [EXACT]


def test_account_without_lines_has_no_file(tmp_path: Path) -> None:
    add_losses(REAL_DISK, tmp_path, [LOSS], repair="repair-1.json")
    remove_losses(REAL_DISK, tmp_path, "repair-1.json")
    assert not account_path(tmp_path).exists()


def test_removal_of_the_last_line_is_durable(simulated_disk: SimulatedDisk) -> None:
    home = Path("/journal")
    add_losses(simulated_disk, home, [LOSS], repair="repair-1.json")
    remove_losses(simulated_disk, home, "repair-1.json")
    assert f"name {account_path(home)}" not in simulated_disk.unsynced()


def test_account_locked_by_another_process_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "_LOCK_WAIT_SECONDS", 0)
    add_losses(REAL_DISK, tmp_path, [LOSS])
    with (
        Lock.acquire(REAL_DISK, account_path(tmp_path).with_name(losses._LOCK_NAME)),
        pytest.raises(Locked),
    ):
        add_losses(REAL_DISK, tmp_path, [EXACT])
    assert read_losses(REAL_DISK, tmp_path) == [LOSS]


def test_json_contains_an_exact_number_or_its_bounds() -> None:
    keys = ("file", "position", "bytes", "records", "what", "reason")
    assert [EXACT.as_json()[key] for key in keys] == ["bikes", 0, 9, 2, "offsets 1 to 2", "size -1"]
    assert "at_least" not in EXACT.as_json()
    assert (LOSS.as_json()["at_least"], LOSS.as_json()["at_most"]) == (1, 3)
    assert "records" not in LOSS.as_json()


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (LOSS, "lost at least 1 and at most 3 records: items added after 5 (cars @ 40: 12 bytes: opcode 77)"),
        (EXACT, "lost 2 records: offsets 1 to 2 (bikes @ 0: 9 bytes: size -1)"),
        (GUESS, "restored by inference: the size of the item at 6 (cars @ 7: 1 bytes: one bit)"),
    ],
)
def test_text_output_starts_with_the_records(loss: Loss, text: str) -> None:
    assert loss.describe() == text


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"file": 1}', json.dumps({**EXACT.as_json(), "fields": []})])
def test_damaged_account_is_an_error_and_a_problem(tmp_path: Path, line: str) -> None:
    add_losses(REAL_DISK, tmp_path, [EXACT])
    good = account_path(tmp_path).read_text()
    account_path(tmp_path).write_text(good + line)
    with pytest.raises(DamagedJournal, match="account of losses") as caught:
        read_losses(REAL_DISK, tmp_path)
    assert caught.value.position == len(good)
    report = Report("sej")
    report_repairs(REAL_DISK, tmp_path, report)
    assert [(problem.file, problem.kind) for problem in report.problems] == [(".logwright/losses", "unreadable")]


def test_long_lists_of_names_are_shortened() -> None:
    names = [f"k{number}" for number in range(30)]
    assert listed(names[:3], 3) == "k0, k1, k2"
    assert listed(names, 30).endswith("k19 and 10 more")


def test_repair_writes_the_account_and_undo_reverts_it(tmp_path: Path) -> None:
    file = tmp_path / "cars"
    file.write_bytes(b"0123456789")
    plan = Plan("kestrel", (Cut("cars", 4, 10, "bad"),), losses=(LOSS,))
    done = repair.apply(REAL_DISK, tmp_path, plan)
    assert read_losses(REAL_DISK, tmp_path)[0].what == LOSS.what
    assert repair.list_repairs(REAL_DISK, tmp_path)[0].plan.losses == (LOSS,)
    report = Report("kestrel")
    report_repairs(REAL_DISK, tmp_path, report, "cars")
    assert report.sound
    assert report.as_json()["losses"][0]["at_most"] == 3
    repair.undo(REAL_DISK, tmp_path)
    assert read_losses(REAL_DISK, tmp_path) == []
    assert done.log.exists()


def test_damaged_line_does_not_prevent_repair_or_undo(tmp_path: Path) -> None:
    file = tmp_path / "cars"
    file.write_bytes(b"0123456789")
    plan = Plan("kestrel", (Cut("cars", 4, 10, "bad"),), losses=(LOSS,))
    repair.apply(REAL_DISK, tmp_path, plan)
    with account_path(tmp_path).open("ab") as account:
        account.write(b"hello \xff")
    repair.undo(REAL_DISK, tmp_path)
    assert file.read_bytes() == b"0123456789"
    assert account_path(tmp_path).read_bytes() == b"hello \xff\n"
    repair.apply(REAL_DISK, tmp_path, plan)
    with pytest.raises(DamagedJournal, match="it is not valid JSON; correct the line, or remove it"):
        read_losses(REAL_DISK, tmp_path)
    account_path(tmp_path).write_bytes(account_path(tmp_path).read_bytes().removeprefix(b"hello \xff\n"))
    assert [loss.what for loss in read_losses(REAL_DISK, tmp_path)] == [LOSS.what]
