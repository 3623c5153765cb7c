"""A run that is killed at any step of publishing, in each table format: the next run makes the right tables."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright import kestrel, sej
from logwright.core.io.disk import RealDisk
from logwright.errors import LogwrightError
from logwright.pipeline import Settings
from logwright.pipeline.run import Result, run
from tests.pipeline.killed_run import POINTS
from tests.pipeline.publish.test_kills import Killed, Killer, kills
from tests.pipeline.worlds import World, tables_of
from tests.support.counts import COUNTS
from tests.support.replay import each
from tests.support.threads import DEADLINE_SECONDS

TABLES = ("events", "queue_items")


def grow(root: Path, number: int) -> None:
    with sej.Writer(root / "orders") as writer:
        for offset in range(5):
            writer.append(b"%d" % offset, timestamp=number * 10**9)
    with kestrel.Writer(root / "queues" / "cars") as queue:
        for item in range(5):
            queue.addx(b"%d" % item, added=number)
        queue.remove()


def increment(root: Path, out: Path, format: str) -> Result:
    def no_spark() -> Any:
        pytest.fail("Spark was started")

    return run(Settings(str(root), str(out), incremental=True, tables=TABLES, format=format), no_spark)


def killed_at_each_call(out: Path, work: Any) -> Iterator[str]:
    """Do the work and stop it before each change of the disk, in a directory that is the same each time."""
    kept = out.with_name("kept")
    shutil.copytree(out, kept)

    def rounds() -> Iterator[tuple[str, str]]:
        number, done = 0, False
        while not done:
            number += 1
            shutil.rmtree(out)
            shutil.copytree(kept, out)
            killer = Killer(number, Killed, once=False)
            with pytest.MonkeyPatch.context() as patched:
                for name in ("rename", "remove", "make_directory", "sync_directory"):
                    _count(patched, killer, name)
                try:
                    work(out)
                    done = killer.steps < number
                except (Killed, LogwrightError):
                    pass
            yield f"{number}", f"before step {number}, {killer.last}"
        assert number > 10

    yield from each(rounds())


def _count(patched: pytest.MonkeyPatch, killer: Killer, name: str) -> None:
    plain = getattr(RealDisk, name)

    def step(disk: RealDisk, *arguments: Any) -> Any:
        killer.step(name)
        return plain(disk, *arguments)

    patched.setattr(RealDisk, name, step)


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_killed_increment_is_completed_or_repeated_by_the_next_run(tmp_path: Path, format: str) -> None:
    root, out = tmp_path / "root", tmp_path / "tables"
    grow(root, 0)
    increment(root, out, format)
    increment(root, tmp_path / "expected", format)
    grow(root, 1)
    increment(root, tmp_path / "expected", format)
    expected = tables_of(tmp_path / "expected", format, tables=TABLES)
    assert len(expected["events"]) == 22

    def work(place: Path) -> None:
        increment(root, place, format)

    if format == "parquet":
        places: Iterator[str] = killed_at_each_call(out, work)
    else:
        places = (place for place, _ in kills(out, format, work))
    for place in places:
        result = increment(root, out, format)
        assert result.tables["events"].rows == 22, place
        assert tables_of(out, format, tables=TABLES) == expected, place
        assert increment(root, out, format).batches == 0, place
        COUNTS.add("kill -9", 1, "pipeline")


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_tables_are_right_after_a_process_was_killed(tmp_path: Path, format: str) -> None:
    """By SIGKILL, again and again, while journals of all formats grow, are rotated and are packed."""
    world = World(tmp_path / "root", f"killed {format}")
    out = tmp_path / "killed"
    for point in POINTS:
        world.pack()  # what was read may be gone
        world.everything()
        command = [sys.executable, "-m", "tests.pipeline.killed_run", point, str(world.root), str(out), format]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
        assert done.returncode == -signal.SIGKILL, (point, done.stderr)
        result = run(Settings(str(world.root), str(out), incremental=True, format=format))
        assert result.completed == (point in POINTS[2:]), point
        run(Settings(str(world.root), str(tmp_path / "growing"), incremental=True))
        found = tables_of(out, format, with_files=False)
        assert found == tables_of(tmp_path / "growing", with_files=False), point
        COUNTS.add("kill -9", 1, "pipeline")
