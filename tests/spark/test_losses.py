"""Known losses on Spark: rows of the table `damage`, each once, and in the accounts of restored journals again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logwright import appendfile, kestrel
from logwright.core.io.disk import REAL_DISK
from logwright.core.repair import plan as plans
from logwright.core.repair.losses import Loss, account_path, add_losses, read_losses
from logwright.core.repair.plan import Create, Patch, Plan, Remove
from logwright.errors import DamagedJournal
from logwright.pipeline import Settings
from logwright.pipeline.publish.parquet import table_files
from logwright.pipeline.restore import restore
from logwright.pipeline.run import Result, run
from logwright.sej import ShardedWriter, Writer
from logwright.spark.stream import JournalStream
from logwright.versioned import VersionedKVStore
from tests.spark.streams import following, read_batch, stream_of

ORDERS = Loss("jnl/0000000000000000.jnl", 40, 12, 2, 2, "offsets 1 and 2", "size -1", fields={"first": 1, "next": 3})
SHARD = Loss("jnl/0000000000000000.jnl", 9, 1, 0, 0, "a size", "one bit", kind="restored")
QUEUE = Loss("mail", 0, 5, 1, None, "items of the queue mail", "opcode 99", part="mail")
STORE = Loss("cars.jrn", 17, 5, 1, 3, "the key a", "no object", part="cars", fields={"from": 1, "to": 2})


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """Journals of three formats with losses in their accounts; one shard of two has one."""
    root = tmp_path / "journals"
    with Writer(root / "orders") as writer:
        writer.append(b"x")
    with ShardedWriter(root / "events", "web", 1) as sharded:
        for number in range(20):
            sharded.append(b"v", b"%d" % number)
    with kestrel.Queue(root / "queues", "mail") as queue:
        queue.put(b"x")
    with VersionedKVStore(root / "stores", "cars") as store:
        store.insert("a", 1)
    add_losses(REAL_DISK, root / "orders", [ORDERS], repair="repair-1.json")
    add_losses(REAL_DISK, root / "events" / "web.1.001", [SHARD])
    add_losses(REAL_DISK, root / "queues", [QUEUE])
    add_losses(REAL_DISK, root / "stores", [STORE])
    return root


def make_tables(spark: Any, journals: Path, out: Path, **more: Any) -> Result:
    settings = Settings(str(journals), str(out), mode="permissive", **more)
    return run(settings, spark)


def damage(out: Path) -> list[dict[str, Any]]:
    files = table_files(out, "damage")
    assert files
    found: list[dict[str, Any]] = pa.concat_tables([pq.read_table(out / name) for name in files]).to_pylist()
    return sorted(found, key=lambda row: (row["journal"], row["file"]))


def test_known_losses_are_rows_of_the_table_damage_and_not_a_failure(
    spark: Any, journals: Path, tmp_path: Path
) -> None:
    result = make_tables(spark, journals, tmp_path / "tables")
    assert not result.is_damaged
    rows = damage(tmp_path / "tables")
    assert [(row["journal"], row["file"], row["kind"]) for row in rows] == [
        ("events", "web.1.001/jnl/0000000000000000.jnl", "restored"),
        ("orders", "jnl/0000000000000000.jnl", "lost"),
        ("queues", "mail", "lost"),
        ("stores", "cars.jrn", "lost"),
    ]
    assert (rows[1]["position"], rows[1]["size"], rows[1]["reason"]) == (40, 12, "offsets 1 and 2: size -1")
    assert json.loads(rows[1]["detail"]) == ORDERS.as_json()


class Killed(BaseException):
    """The exception that stands for the death of the process."""


def interrupt(directory: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a repair, and kill it when it is about to create a file."""

    def kill(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(plans, "_put", kill)
        with pytest.raises(Killed):
            plans.apply(REAL_DISK, directory, plan)


def test_half_repaired_journal_is_refused_and_in_the_mode_permissive_a_row_of_damage(
    spark: Any, journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan("sej", (Patch("jnl/0000000000000000.jnl", 0, b"\0", b"\0", "1"), Create("x", "", (), "2", b"x")))
    interrupt(journals / "orders", plan, monkeypatch)
    with pytest.raises(Exception, match=r"a repair was interrupted after 1 of 2 steps; `logwright repair .*orders`"):
        spark.read.format("logwright").load(str(journals)).collect()
    assert make_tables(spark, journals, tmp_path / "tables").is_damaged
    rows = [row for row in damage(tmp_path / "tables") if row["kind"] == "repair"]
    assert [(row["journal"], row["position"], row["size"]) for row in rows] == [("orders", 0, 0)]


@pytest.mark.parametrize("mode", ["failfast", "permissive"])
@pytest.mark.parametrize(
    ("format", "path", "directory", "file"),
    [
        ("sej", "orders", "orders", "jnl/0000000000000000.jnl"),
        ("sej", "events", "events/web.1.001", "jnl/0000000000000000.jnl"),
        ("appendfile", "readings", "readings", "1.journal"),
        ("versioned", "stores", "stores", "cars.jrn"),
    ],
)
def test_stream_never_moves_over_a_half_repaired_journal_in_any_mode(
    format: str,
    path: str,
    directory: str,
    file: str,
    mode: str,
    journals: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with VersionedKVStore(journals / "stores", "cars") as store:
        store.rotate()
        store.insert("b", 2)
    with appendfile.Writer(journals / "readings", file_bytes=64) as readings:
        readings.append(b"a" * 50)
        readings.append(b"b" * 50)

    def stream() -> JournalStream:
        return stream_of(format, journals / path, mode=mode, failOnDataLoss="false")

    start = stream().initialOffset()
    end = following(stream(), start)
    assert end != start
    data = (journals / directory / file).read_bytes()
    plan = Plan(format, (Remove(file, "it is damaged"), Create(file, "", (), "it is written again", data)))
    interrupt(journals / directory, plan, monkeypatch)
    asked: list[Callable[[], object]] = [
        lambda: stream().initialOffset(),
        lambda: following(stream(), end),
        lambda: list(read_batch(stream(), start, end)),
    ]
    for ask in asked:
        with pytest.raises(DamagedJournal, match="a repair was interrupted after 1 of 2 steps"):
            ask()
    plans.undo(REAL_DISK, journals / directory)
    assert following(stream(), end) == end


def test_increment_adds_each_known_loss_once(spark: Any, journals: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    make_tables(spark, journals, out, incremental=True)
    assert len(damage(out)) == 4
    make_tables(spark, journals, out, incremental=True)
    assert len(damage(out)) == 4
    add_losses(REAL_DISK, journals / "queues", [Loss("mail", 5, 5, 1, 1, "another item", "opcode 98", part="mail")])
    result = make_tables(spark, journals, out, incremental=True)
    assert [row["reason"] for row in damage(out) if row["journal"] == "queues"] == [
        "items of the queue mail: opcode 99",
        "another item: opcode 98",
    ]
    assert not result.is_damaged


def test_unreadable_account_is_a_loss_of_unknown_size(spark: Any, journals: Path, tmp_path: Path) -> None:
    account_path(journals / "orders").write_text("{")
    make_tables(spark, journals, tmp_path / "tables")
    (row,) = [row for row in damage(tmp_path / "tables") if row["journal"] == "orders"]
    assert (row["file"], row["kind"]) == (".logwright/losses", "lost")
    assert row["reason"].startswith("unknown: the account of losses cannot be read: ")


def test_restored_journals_have_their_accounts(spark: Any, journals: Path, tmp_path: Path) -> None:
    make_tables(spark, journals, tmp_path / "tables")
    restore(str(tmp_path / "tables"), str(tmp_path / "out"), spark=spark)
    assert read_losses(REAL_DISK, tmp_path / "out" / "orders") == [ORDERS]
    assert read_losses(REAL_DISK, tmp_path / "out" / "events" / "web.1.001") == [SHARD]
    assert read_losses(REAL_DISK, tmp_path / "out" / "queues") == [QUEUE]
    assert read_losses(REAL_DISK, tmp_path / "out" / "stores") == [STORE]
