"""Known losses on the command line: listed by `verify` and `inspect`, and copied by `convert`."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright import arrow, kestrel
from logwright.core.io.disk import REAL_DISK
from logwright.core.repair.losses import Loss, account_path, add_losses, read_losses
from tests.cli.support import run

JOURNALS = ["orders", "queues", "stores", "readings", "pages"]
LOSS = Loss("a.file", 40, 12, 1, 3, "three of them", "bad bytes", fields={"where": 7})
LINE = "lost at least 1 and at most 3 records: three of them (a.file @ 40: 12 bytes: bad bytes)"


@pytest.fixture(params=JOURNALS)
def lossy(request: pytest.FixtureRequest, demo: Path) -> Path:
    """A sound journal of each format, with a loss in its account."""
    path: Path = demo / request.param
    add_losses(REAL_DISK, path, [LOSS])
    return path


def test_verify_lists_known_losses_and_calls_the_journal_sound(lossy: Path) -> None:
    outcome = run("verify", lossy)
    assert outcome.code == 0
    assert outcome.lines[0].startswith(f"{lossy}: sound, with known losses (")
    assert outcome.lines[1] == LINE
    found = run("verify", lossy, "--json").object
    assert (found["sound"], found["losses"]) == (True, [LOSS.as_json()])


def test_strict_verify_fails_on_known_losses(lossy: Path) -> None:
    assert run("verify", lossy, "--strict").code == 1
    assert run("verify", lossy, "--strict", "--json").code == 1
    account_path(lossy).unlink()
    assert run("verify", lossy, "--strict").code == 0


def test_inspect_counts_known_losses(lossy: Path) -> None:
    outcome = run("inspect", lossy)
    assert outcome.code == 0
    assert "sound so far, with known losses" in outcome.out
    assert "1 known; `logwright verify` lists them" in outcome.out
    assert run("inspect", lossy, "--json").object["losses"] == [LOSS.as_json()]


def test_state_and_changes_are_printed_with_the_reservation(lossy: Path) -> None:
    verbs = ["state", "changes"] if lossy.name in ("queues", "stores") else ["state"]
    for verb in verbs:
        outcome = run(verb, lossy)
        assert outcome.code == 0
        warned = f"records were lost, so this answer may lack them; `logwright verify {lossy}` lists the losses"
        assert outcome.err.count(warned) == 1
    account_path(lossy).unlink()
    for verb in verbs:
        assert "lost" not in run(verb, lossy).err
    account_path(lossy).write_text("{")
    assert "account of losses" in run("state", lossy).err


def test_damaged_account_is_damage_in_verify_and_inspect(lossy: Path) -> None:
    account_path(lossy).write_text("{")
    assert run("verify", lossy).code == 1
    outcome = run("inspect", lossy)
    assert outcome.code == 1
    assert "account of losses" in outcome.out


def test_losses_of_one_queue_do_not_affect_another(demo: Path) -> None:
    add_losses(REAL_DISK, demo / "queues", [Loss("mail", 0, 1, 1, 1, "one", "bad", part="mail")])
    assert run("verify", demo / "queues" / "jobs", "--strict").code == 0
    assert run("verify", demo / "queues" / "mail", "--strict").code == 1
    assert len(run("verify", demo / "queues", "--json").object["losses"]) == 1


def test_losses_of_a_shard_are_listed_with_its_name(demo: Path) -> None:
    add_losses(REAL_DISK, demo / "events" / "web.2.001", [LOSS])
    assert [loss["file"] for loss in run("verify", demo / "events", "--json").object["losses"]] == ["web.2.001/a.file"]


def test_conversion_to_another_journal_copies_the_account(demo: Path, tmp_path: Path) -> None:
    add_losses(REAL_DISK, demo / "orders", [LOSS], repair="repair-1.json")
    outcome = run("convert", demo / "orders", tmp_path / "copy", "--to", "sej")
    assert outcome.code == 0
    assert "known losses" in outcome.err
    (loss,) = read_losses(REAL_DISK, tmp_path / "copy")
    what = f"{LOSS.what}, in the journal that this is a copy of"
    assert (loss.what, loss.repair, loss.fields) == (what, "", {"source": {"where": 7}})
    assert run("verify", tmp_path / "copy").lines[1] == LINE.replace(LOSS.what, what)
    assert run("convert", tmp_path / "copy", tmp_path / "again", "--to", "sej").code == 0
    assert read_losses(REAL_DISK, tmp_path / "again") == [loss]


def test_account_survives_conversion_to_parquet_and_back(demo: Path, tmp_path: Path) -> None:
    add_losses(REAL_DISK, demo / "stores", [LOSS])
    assert run("convert", demo / "stores", tmp_path / "s.parquet").code == 0
    assert arrow.parquet_losses(tmp_path / "s.parquet") == [LOSS]
    assert run("convert", tmp_path / "s.parquet", tmp_path / "stores", "--to", "versioned").code == 0
    assert read_losses(REAL_DISK, tmp_path / "stores") == [LOSS]


def test_conversion_without_losses_leaves_no_account(demo: Path, tmp_path: Path) -> None:
    assert run("convert", demo / "orders", tmp_path / "copy", "--to", "sej").code == 0
    assert not account_path(tmp_path / "copy").exists()


def test_damage_skipped_by_a_conversion_is_in_the_account_of_the_copy(demo: Path, tmp_path: Path) -> None:
    assert run("convert", demo / "damaged", tmp_path / "copy", "--to", "sej", "--mode", "permissive").code == 1
    (loss,) = read_losses(REAL_DISK, tmp_path / "copy")
    assert (loss.at_least, loss.at_most, loss.kind) == (0, None, "lost")
    assert run("verify", tmp_path / "copy").code == 0


def test_queue_named_damaged_is_sound(tmp_path: Path) -> None:

    with kestrel.Queue(tmp_path, "damaged") as queue:
        queue.put(b"x")
    with kestrel.Queue(tmp_path, "other") as queue:
        queue.put(b"x")
    (tmp_path / "other").write_bytes((tmp_path / "other").read_bytes() + b"\x02\x00\x00")  # a torn tail
    assert run("inspect", tmp_path).code == 0
