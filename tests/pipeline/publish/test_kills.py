"""A process that is killed while it publishes to Delta or Iceberg: each table has a whole batch, and in the end all do.

Every call that reaches the disk or the library of the format is a step. The k-th round stops before the k-th step, and
nothing after it has any effect either, as if the process were gone. A kill before a call that only reads leaves what a
kill before the next one leaves, so these count only where they fail and the process lives on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import deltalake.table
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from logwright.errors import LogwrightError, Poisoned, StorageFailed
from logwright.pipeline.publish import Batch, open_publisher
from logwright.pipeline.publish.delta import DeltaTables
from logwright.pipeline.publish.iceberg import IcebergTables
from logwright.pipeline.publish.store import LocalStore, Store
from logwright.pipeline.publish.synced_io import SyncedFileIO, _SyncedStream
from logwright.pipeline.publish.transactions import Change, Tables
from tests.pipeline.publish.worlds import (
    BY_QUEUE,
    EVENTS,
    NEW,
    OLD,
    SCHEMAS,
    Rows,
    checkpoint,
    event,
    first_batch,
    second_batch,
    view,
    write,
)
from tests.support.replay import each

EMPTY: dict[str, Rows] = {"events": [], "items": []}
TABLES: dict[str, type[Tables]] = {"delta": DeltaTables, "iceberg": IcebergTables}
STEPS: dict[str, list[tuple[Any, str]]] = {
    "store": [
        (Store, "check"),
        (Store, "parts"),
        *((LocalStore, name) for name in ("prepare", "read", "write", "remove", "settle")),
    ],
    "delta": [
        (deltalake.DeltaTable, "create"),
        (deltalake.DeltaTable, "create_write_transaction"),
        (deltalake.DeltaTable, "update_incremental"),
        (deltalake.DeltaTable, "transaction_version"),
        (deltalake.table.TableAlterer, "add_columns"),
    ],
    "iceberg": [
        (SqlCatalog, "load_table"),
        (SqlCatalog, "commit_table"),
        (SyncedFileIO, "new_output"),
        (_SyncedStream, "close"),
    ],
}
READS = {"load_table", "parts", "read", "transaction_version", "update_incremental"}
each_format = pytest.mark.parametrize("format", ["delta", "iceberg"])


class Killed(BaseException):
    """The process is gone."""


class Killer:
    """Stops before the step with this number, and before all that follow it."""

    def __init__(self, number: int, error: Callable[[str], BaseException], once: bool) -> None:
        self.number = number
        self.steps = 0
        self.error = error
        self.once = once
        self.last = ""

    def step(self, name: str) -> None:
        self.steps += 1
        if self.steps == self.number or (self.steps > self.number and not self.once):
            self.last = self.last or name
            raise self.error(name)


def steps_of(patched: pytest.MonkeyPatch, format: str, killer: Killer) -> None:
    for owner, name in (*STEPS["store"], *STEPS[format]):
        if name in READS and not killer.once:
            continue
        plain = owner.__dict__[name]

        def step(*arguments: Any, plain: Any = plain, name: str = name, **options: Any) -> Any:
            killer.step(name)
            return (plain.__func__ if isinstance(plain, classmethod) else plain)(*arguments, **options)

        patched.setattr(owner, name, classmethod(step) if isinstance(plain, classmethod) else step)


def kills(
    out: Path,
    format: str,
    work: Callable[[Path], None],
    error: Callable[[str], BaseException] = Killed,
    once: bool = False,
) -> Iterator[tuple[str, bool]]:
    """Do the work and stop it before each step, in a directory that is the same each time; whether it was finished."""
    kept = out.with_name("kept")
    shutil.copytree(out, kept)

    def rounds() -> Iterator[tuple[str, tuple[str, bool]]]:
        number = 0
        done = False
        while not done:
            number += 1
            shutil.rmtree(out)
            shutil.copytree(kept, out)
            killer = Killer(number, error, once)
            with pytest.MonkeyPatch.context() as patched:
                steps_of(patched, format, killer)
                try:
                    work(out)
                    done = killer.steps < number
                    finished = True
                except (Killed, LogwrightError):
                    finished = False
            yield f"{number}", (f"before step {number}, {killer.last}", finished)
        assert number > 3

    yield from each(rounds())


def publish_second(out: Path, format: str) -> None:
    with open_publisher(out, format) as publisher:
        second_batch(publisher)


def check(out: Path, format: str, story: str, old: Any, new: Any, again: Callable[[Path, str], None]) -> None:
    """Check what is left of a batch, before and after opening again, and publish it if it is not there."""
    found = view(format, str(out))
    for table, rows in found.items():
        assert rows in (old[table], new[table]), f"{story}: {table} is not a whole batch"
    with open_publisher(out, format) as publisher:
        reached = publisher.checkpoint
        live = {f"{file.table}/{file.name}" for table in SCHEMAS for file in publisher.files(table)}
    found = view(format, str(out))
    assert found in (old, new), story
    state = checkpoint(out)
    assert (state or {}).get("batch") == (None if reached is None else reached.batch), story
    assert not (out / "_logwright" / "manifest.json").exists(), story
    last = 0 if reached is None else reached.batch
    there = {str(path.relative_to(out)): int(path.name.split("-")[1]) for path in out.rglob("part-*.parquet")}
    assert not {name for name, batch in there.items() if batch > last}, story
    assert live <= there.keys(), story
    if found == old:
        again(out, format)
        assert view(format, str(out)) == new, story


@each_format
def test_kill_before_each_step_leaves_whole_batches_and_is_completed_or_discarded(tmp_path: Path, format: str) -> None:
    out = tmp_path / "tables"
    with open_publisher(out, format) as publisher:
        first_batch(publisher)
    seen = set()
    for story, finished in kills(out, format, lambda out: publish_second(out, format)):
        found = view(format, str(out))
        seen.add("".join("new " if found[table] == NEW[table] else "old " for table in SCHEMAS))
        assert not finished or found == NEW, story
        check(out, format, story, OLD, NEW, publish_second)
    assert seen == {"old old ", "new old ", "new new "}, "a kill between the tables is among them"


@each_format
def test_kill_during_the_first_batch_leaves_all_of_it_or_nothing(tmp_path: Path, format: str) -> None:
    out = tmp_path / "tables"
    out.mkdir()

    def publish_first(out: Path, format: str) -> None:
        with open_publisher(out, format) as publisher:
            first_batch(publisher)

    for story, _ in kills(out, format, lambda out: publish_first(out, format)):
        check(out, format, story, EMPTY, OLD, publish_first)


@each_format
def test_kill_during_recovery_is_completed_by_the_next_opening(tmp_path: Path, format: str) -> None:
    out = tmp_path / "tables"
    with open_publisher(out, format) as publisher:
        first_batch(publisher)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(TABLES[format], "commit", _without_power(TABLES[format].commit))
            with pytest.raises(StorageFailed, match="no power"):
                second_batch(publisher)
        with pytest.raises(Poisoned, match="publishing batch 2 failed; open the directory again"):
            publisher.publish(Batch(2))
        publisher.discard()
    assert view(format, str(out)) == {"events": NEW["events"], "items": OLD["items"]}
    for story, finished in kills(out, format, lambda out: open_publisher(out, format).close()):
        found = view(format, str(out))
        assert (found["events"], found["items"] in (OLD["items"], NEW["items"])) == (NEW["events"], True), story
        with open_publisher(out, format) as publisher:
            assert publisher.batch == 3, story
            assert not (finished and publisher.completed), story
        assert view(format, str(out)) == NEW, story


@each_format
def test_whichever_step_fails_the_old_or_the_new_state_remains(tmp_path: Path, format: str) -> None:
    """The process lives on: it discards what it can, and the error is one of ours."""
    out = tmp_path / "tables"
    with open_publisher(out, format) as publisher:
        first_batch(publisher)

    def publish_or_discard(out: Path) -> None:
        with open_publisher(out, format) as publisher:
            try:
                second_batch(publisher)
            except LogwrightError:
                publisher.discard()
                raise

    def failed(name: str) -> BaseException:
        return StorageFailed(name, "the disk", OSError("Input/output error"))

    for story, finished in kills(out, format, publish_or_discard, failed, once=True):
        assert not finished or view(format, str(out)) == NEW, story
        check(out, format, story, OLD, NEW, publish_second)


def test_an_empty_entry_of_a_delta_log_after_a_power_cut_is_no_batch(tmp_path: Path) -> None:
    """`deltalake` does not sync its log: the name may be there without the contents."""
    out = tmp_path / "tables"
    with open_publisher(out, "delta") as publisher:
        first_batch(publisher)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LocalStore, "settle", lambda self, files: _killed_if("_delta_log", files))
            with pytest.raises(Killed):
                second_batch(publisher)
    (out / "events" / "_delta_log" / f"{2:020d}.json").write_bytes(b"")
    assert view("delta", str(out))["events"] == OLD["events"]
    with open_publisher(out, "delta") as publisher:
        assert publisher.completed
    assert view("delta", str(out)) == NEW


def _without_power(commit: Any) -> Any:
    def fails_at_the_second_table(self: Any, change: Change, batch: int) -> None:
        if change.table == "items":
            raise StorageFailed("commit to", "items", OSError("no power"))
        commit(self, change, batch)

    return fails_at_the_second_table


def _killed_if(word: str, files: list[str]) -> None:
    if any(word in name for name in files):
        raise Killed


@each_format
def test_new_columns_and_the_rows_that_have_them_survive_kills(tmp_path: Path, format: str) -> None:
    out = tmp_path / "tables"
    more = EVENTS.append(EVENTS.field("a").with_name("size"))
    with open_publisher(out, format) as publisher:
        first_batch(publisher)

    def publish(out: Path) -> None:
        with open_publisher(out, format) as publisher:
            added = write(publisher, "events", [event(3) | {"size": 5}], more)
            publisher.publish(Batch(2, [added], [], {**SCHEMAS, "events": more}, BY_QUEUE))

    for story, _ in kills(out, format, publish):
        with open_publisher(out, format) as publisher:
            batch = publisher.batch
        rows = view(format, str(out))["events"]
        if batch == 2:
            assert [{name: row[name] for name in EVENTS.names} for row in rows] == OLD["events"], story
        else:
            expected = [row | {"size": None} for row in OLD["events"]]
            assert rows == [*expected, event(3) | {"size": 5}], story
