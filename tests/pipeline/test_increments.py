"""Increments and full runs make the same tables, whatever happens to journals in between; no Spark is started."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

from logwright import kestrel, sej
from logwright.arrow.discovery import Journal, open_journal
from logwright.cli import main
from logwright.errors import WrongUse
from logwright.kestrel.tables.materializer import QueueMaterials
from logwright.pipeline import Settings, layout, plan, stamps, task
from logwright.pipeline.layout import MOST_LIVE, MOST_SMALL
from logwright.pipeline.run import Result, compact, run
from tests.pipeline.worlds import World, read_table, tables_of

MOMENT = datetime.datetime(2023, 11, 14, 22, 30, tzinfo=datetime.UTC)


def no_spark() -> Any:
    pytest.fail("Spark was started")


def increment(root: Path, out: Path, **more: Any) -> Result:
    return run(Settings(str(root), str(out), incremental=True, moment=MOMENT, **more), no_spark)


def everything(root: Path, out: Path, **more: Any) -> Result:
    return run(Settings(str(root), str(out), moment=MOMENT, **more), no_spark)


@pytest.mark.parametrize("seed", range(4))
def test_increments_equal_a_full_run_row_for_row(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:  # journals that are not written to are not opened, however recently they were
        monkeypatch.setattr(stamps, "_RECENT_NS", 0)
    world = World(tmp_path / "root", seed)
    world.everything()
    increment(world.root, tmp_path / "growing")
    for number in range(4):
        world.step()
        increment(world.root, tmp_path / "growing", batch_bytes=world.dice.choice((5000, 1 << 30)))
        everything(world.root, tmp_path / f"whole {number}")
        growing = tables_of(tmp_path / "growing", with_files=False)
        whole = tables_of(tmp_path / f"whole {number}", with_files=False)
        for table, rows in whole.items():
            assert growing[table] == rows, (table, number)


class Steps:
    """The event that ends a run with `follow`: whenever the run waits, its tables are checked, and journals grow."""

    def __init__(self, world: World, check: Callable[[int], None], most: int) -> None:
        self.taken = 0
        self._world = world
        self._check = check
        self._most = most

    def is_set(self) -> bool:
        return self.taken > self._most

    def wait(self, seconds: float) -> None:
        self._check(self.taken)
        self.taken += 1
        self._world.step()


@pytest.mark.parametrize("seed", range(3))
def test_run_that_follows_equals_full_runs_row_for_row(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "_RECENT_NS", 0 if seed % 2 else 2_000_000_000)
    world = World(tmp_path / "root", f"followed {seed}")
    world.everything()
    batch_bytes = 5000 if seed == 1 else 1 << 30

    def check(number: int) -> None:
        everything(world.root, tmp_path / f"whole {number}")
        growing = tables_of(tmp_path / "growing", with_files=False)
        for table, rows in tables_of(tmp_path / f"whole {number}", with_files=False).items():
            assert growing[table] == rows, (table, number)

    stop: Any = Steps(world, check, 4)
    settings = Settings(str(world.root), str(tmp_path / "growing"), follow=True, moment=MOMENT, batch_bytes=batch_bytes)
    assert run(settings, no_spark, stop=stop).batches >= 3


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_increments_are_the_same_in_every_table_format(tmp_path: Path, format: str) -> None:
    """Read by the libraries of the formats, which know nothing of the pipeline."""
    world = World(tmp_path / "root", format)
    for number in range(3):
        world.everything()
        increment(world.root, tmp_path / format, format=format)
        increment(world.root, tmp_path / "parquet")
        other, parquet = tables_of(tmp_path / format, format), tables_of(tmp_path / "parquet")
        for table, rows in parquet.items():
            assert other[table] == rows, (table, number)
    with pytest.raises(WrongUse, match=f"has tables in the format {format}, not parquet"):
        everything(world.root, tmp_path / format)


def test_tables_keep_what_journals_forget(tmp_path: Path) -> None:
    """Queues are packed, and segments and archives that were read are removed."""
    world = World(tmp_path / "root", "forgetful")
    world.everything()
    out = tmp_path / "growing"
    everything(world.root, tmp_path / "whole")
    for number in range(3):
        increment(world.root, out)
        everything(world.root, tmp_path / f"whole {number}")
        before = tables_of(out, with_files=False)
        world.pack()
        for path in (world.root / "orders" / "jnl").glob("*.jnl"):
            if path.name != max(path.parent.glob("*.jnl")).name:
                path.unlink()
        for path in (world.root / "stores").glob("*.zz"):
            path.unlink()
        result = increment(world.root, out)
        assert (result.records, result.notes) == (0, [])
        assert {name: rows for name, rows in tables_of(out, with_files=False).items() if name != "files"} == {
            name: rows for name, rows in before.items() if name != "files"
        }
        world.everything()


def test_number_of_files_is_bounded_whatever_the_number_of_batches(tmp_path: Path) -> None:
    world = World(tmp_path / "root", "many batches")
    world.everything()
    increment(world.root, tmp_path / "growing")
    for _ in range(20):
        world.step()
        result = increment(world.root, tmp_path / "growing")
        assert max(table.files for table in result.tables.values()) <= MOST_SMALL + MOST_LIVE
    everything(world.root, tmp_path / "whole")
    assert tables_of(tmp_path / "growing", with_files=False) == tables_of(tmp_path / "whole", with_files=False)
    before = tables_of(tmp_path / "growing")
    compacted = compact(str(tmp_path / "growing"))
    assert {name: table.files for name, table in compacted.tables.items() if table.files > 2} == {}
    assert tables_of(tmp_path / "growing") == before
    world.everything()
    increment(world.root, tmp_path / "growing")
    everything(world.root, tmp_path / "whole")
    assert tables_of(tmp_path / "growing", with_files=False) == tables_of(tmp_path / "whole", with_files=False)


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_compacting_by_the_command_alone_keeps_all_rows(
    tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world, out = World(tmp_path / "root", "compacted"), tmp_path / "growing"
    for _ in range(3):
        world.everything()
        increment(world.root, out, format=format)
    before = tables_of(out, format)
    assert main(["pipeline", "compact", "--tables", str(out), "--json"]) == 0
    compacted = json.loads(capsys.readouterr().out)["tables"]
    assert compacted["events"]["rows"] == len(before["events"])
    assert compacted["messages"]["files"] == 1
    assert max(table["files"] for table in compacted.values()) <= 2, "final rows, and live ones"
    assert tables_of(out, format) == before
    world.everything()
    increment(world.root, out, format=format)
    everything(world.root, tmp_path / "whole")
    assert tables_of(out, format, with_files=False) == tables_of(tmp_path / "whole", with_files=False)


def test_compacting_keeps_the_compression_and_increments_may_change_it(tmp_path: Path) -> None:
    world = World(tmp_path / "root", "compressed")
    out = tmp_path / "growing"

    def compressions() -> set[str]:
        files = [pq.ParquetFile(path).metadata for path in (out / "events").glob("*.parquet")]
        return {file.row_group(0).column(0).compression for file in files if file.num_rows}

    for _ in range(2):
        world.everything()
        increment(world.root, out, options={"compression": "zstd"})
    before = tables_of(out)
    assert compact(str(out)).tables["events"].files == 1
    assert (compressions(), tables_of(out)) == ({"ZSTD"}, before)
    world.everything()
    increment(world.root, out, options={"compression": "none"})
    assert compressions() == {"ZSTD", "UNCOMPRESSED"}
    compact(str(out))
    assert compressions() == {"UNCOMPRESSED"}


def test_items_expire_without_new_records(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    with kestrel.Writer(tmp_path / "root" / "cars") as writer:
        writer.addx(b"late", added=now_ms, expires=now_ms + 3_600_000)
        writer.addx(b"soon", added=now_ms, expires=now_ms + 3_600_001)
        writer.addx(b"never", added=now_ms)
    settings = Settings(str(tmp_path / "root"), str(tmp_path / "growing"), incremental=True)
    clock = time.time_ns

    def states() -> list[str]:
        found = read_table(tmp_path / "growing", "queue_items").sort_by("item")
        return list(found["state"].to_pylist())

    assert (run(settings, no_spark).batches, states()) == (1, ["waiting"] * 3)
    assert run(settings, no_spark).batches == 0
    with mock.patch.object(time, "time_ns", return_value=clock() + 3_700_000_000_000):
        result = run(settings, no_spark)
        assert (result.batches, result.records, states()) == (1, 0, ["expired", "expired", "waiting"])
        assert run(settings, no_spark).batches == 0


def test_journals_that_rest_are_not_opened_unless_they_change_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "_RECENT_NS", 0)
    world = World(tmp_path / "root", "resting")
    for _ in range(3):
        world.everything()
    increment(world.root, tmp_path / "growing")
    everything(world.root, tmp_path / "whole")
    opened: list[str] = []

    def noted(journal: Journal) -> Any:
        opened.append(journal.name)
        return open_journal(journal)

    monkeypatch.setattr(plan, "open_journal", noted)
    assert (increment(world.root, tmp_path / "growing").batches, opened) == (0, ["pages"])
    with kestrel.Writer(world.root / "queues" / "cars") as writer:
        writer.addx(b"new")
    result = increment(world.root, tmp_path / "growing")
    assert (result.batches, result.records, opened) == (1, 1, ["pages", "pages", "queues"])
    files = tables_of(tmp_path / "growing", tables=("files", "consumers"))
    everything(world.root, tmp_path / "whole")
    assert files == tables_of(tmp_path / "whole", tables=("files", "consumers"))


@pytest.mark.parametrize(("rows", "files"), [(50, 12), (51, 1)])
def test_files_with_many_rows_are_not_merged_however_small_they_are(
    tmp_path: Path, rows: int, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "LARGE_ROWS", rows)
    for number in range(12):
        with sej.Writer(tmp_path / "root" / str(number)) as writer:
            for _ in range(50):
                writer.append(b"v")
    result = run(Settings(str(tmp_path / "root"), str(tmp_path / "out"), split_bytes=1000), no_spark)
    assert (result.tables["messages"].rows, result.tables["messages"].files) == (600, files)


@pytest.mark.parametrize("moment", [None, MOMENT])
def test_small_parts_of_many_journals_make_the_same_rows_together_and_one_by_one(
    tmp_path: Path, moment: datetime.datetime | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        World(tmp_path / "root" / f"world {number}", number).everything()
    (tmp_path / "root" / "world 0" / "queues" / "empty").touch()
    root = str(tmp_path / "root")
    with mock.patch.object(QueueMaterials, "joined", autospec=True, side_effect=QueueMaterials.joined) as joined:
        run(Settings(root, str(tmp_path / "together"), moment=moment), no_spark)
    assert joined.call_count == 1
    monkeypatch.setattr(task, "_SMALL_BYTES", -1)
    result = run(Settings(root, str(tmp_path / "alone"), moment=moment), no_spark)
    assert min(result.tables[name].rows for name in ("queue_items", "kv_history", "kv_state")) > 0
    assert tables_of(tmp_path / "together") == tables_of(tmp_path / "alone")
