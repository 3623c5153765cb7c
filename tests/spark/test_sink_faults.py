"""Failures and kills while Spark writes to journals: each record is there once, and existing records stay.

Tasks fail and are retried; the committing process is killed before each step that changes something; drivers are killed
with their JVM; the file system is full.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.sej import Reader, ShardedReader, Writer
from tests.spark.driver import Driver, DriverFailed, is_alive, wait_for
from tests.support.counts import COUNTS

JOBS = Path(__file__).parent / "jobs"
SMALL_BYTES = 256 << 10


@contextlib.contextmanager
def new_driver(directory: Path) -> Iterator[Driver]:
    environment = {"PYTHONPATH": str(JOBS)}  # Spark's own processes must find the sinks with traps
    with Driver("jobs/faults.py", directory, directory, environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with new_driver(tmp_path_factory.mktemp("driver")) as running:
        yield running


def staged(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".logwright" / "staging").iterdir() if path.name != "sink.lck")


def in_shards(root: Path) -> list[bytes]:
    """Every value below a root, sorted; each shard's offsets must count up from 0, and its bytes must be sound."""
    report = ShardedReader(root).verify()
    assert report.sound, report.problems
    found = []
    for home in sorted(path.parent for path in root.glob("*/jnl")):
        messages = list(Reader(home))
        assert [message.offset for message in messages] == list(range(len(messages)))
        found += [message.value for message in messages]
    return sorted(found)


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_retried_tasks_are_counted_once(driver: Driver, tmp_path: Path) -> None:
    expected = sorted(b"value %d" % number for number in range(300))
    faults = [(0, 1, "error"), (1, 3, "error"), (50, 2, "error"), (100, 3, "error"), (50, 2, "kill")]
    for after, attempts, by in faults:
        target = tmp_path / f"{after} {attempts} {by}"
        fault = {"failing_part": 1, "after": after, "attempts": attempts, "by": by}
        driver.ask("save_failing", target=str(target), rows=300, parts=3, **fault)
        assert in_shards(target) == expected, fault
        assert staged(target) == [], fault


def test_task_that_always_fails_changes_nothing(driver: Driver, tmp_path: Path) -> None:
    target, job = tmp_path / "out", {"rows": 300, "parts": 3, "failing_part": 2, "after": 60}
    driver.ask("save_failing", target=str(target), **job, attempts=0, by="error")
    before = in_shards(target)
    with pytest.raises(DriverFailed, match="this task fails"):
        driver.ask("save_failing", target=str(target), **job, attempts=4, by="error")
    assert in_shards(target) == before
    wait_for(lambda: staged(target) == [], "that nothing is left")


# --- the committing process -------------------------------------------------------------------------------------------


class Query:
    """A streaming query that can be restarted repeatedly: each new file of lines is a batch."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.files = 0
        (home / "lines").mkdir()

    @property
    def target(self) -> Path:
        return self.home / "out"

    @property
    def expected(self) -> list[bytes]:
        return sorted(line.encode() for number in range(self.files) for line in lines_of(number))

    def add_file(self) -> int:
        """Put another file where the query finds it, atomically; the number of its batch."""
        hidden = self.home / "hidden"
        hidden.write_text("".join(f"{line}\n" for line in lines_of(self.files)))
        hidden.rename(self.home / "lines" / f"{self.files:03d}.txt")
        self.files += 1
        return self.files - 1

    def options(self, **options: Any) -> dict[str, Any]:
        places = {"source": self.home / "lines", "target": self.target, "checkpoint": self.home / "checkpoint"}
        return {name: str(place) for name, place in places.items()} | options

    def is_noted(self, batch: int) -> bool:
        """Whether Spark knows that a batch is done."""
        return (self.home / "checkpoint" / "commits" / str(batch)).exists()


def lines_of(number: int) -> list[str]:
    return [f"{number:03d} line {line}" for line in range(15)]


def test_kill_at_any_commit_step_leaves_each_record_once(driver: Driver, tmp_path: Path) -> None:
    """The process is killed before each step that changes something, and when all are done. Its Spark stays alive.

    Each round continues from the state of the preceding one: it repeats that batch, then writes its own.
    """
    query = Query(tmp_path)
    query.add_file()
    options = {"trap": "kill", "trapStep": ".*"}
    assert driver.ask("stream", **query.options(trapBatch=query.add_file(), report=str(tmp_path / "steps"))) == ""
    steps = (tmp_path / "steps").read_text().splitlines()
    assert "write 0000000000000000.jnl" in steps
    assert len(steps) > 15
    for number in range(1, len(steps) + 2):
        batch = query.add_file()
        failed = driver.ask("stream", **query.options(**options, trapBatch=batch, trapNumber=number))
        step = steps[number - 1] if number <= len(steps) else "the end"
        assert "crashed" in failed, f"at {step}"
        assert not query.is_noted(batch)
        assert query.is_noted(batch - 1)
        assert set(query.expected[:-15]) <= set(in_shards(query.target)), f"at {step}"
        COUNTS.add("kill -9", 1, "sej")
    assert driver.ask("stream", **query.options()) == ""
    assert in_shards(query.target) == query.expected
    assert staged(query.target) == []


def test_drivers_killed_before_during_and_after_a_commit_write_each_record_once(driver: Driver, tmp_path: Path) -> None:
    query = Query(tmp_path)
    places = [
        {"trapStep": r"rename .*\.manifest", "trapNumber": 1},
        {"trapStep": r"write .*\.jnl", "trapNumber": 2},
        {"trapStep": "nothing", "trapNumber": 1},
    ]
    for number, place in enumerate(places):
        batch = query.add_file()
        with new_driver(tmp_path / f"driver {number}") as doomed:
            victims = doomed.ask("processes")
            given = {"trap": "kill", "victims": ",".join(map(str, victims)), "trapBatch": batch, **place}
            doomed.say("stream", **query.options(**given))
            with pytest.raises(EOFError):
                doomed.answer()
            wait_for(lambda: not any(map(is_alive, victims)), "the death of the driver")  # noqa: B023
        assert not query.is_noted(batch)
        assert batch == 0 or query.is_noted(batch - 1)
        left = staged(query.target)
        assert any(name.endswith(".manifest") for name in left) == (number == 1)
        assert any(name.endswith(".staged") for name in left) == (number < 2)
        COUNTS.add("kill -9", 1, "sej")
    query.add_file()
    assert driver.ask("stream", **query.options()) == ""
    assert in_shards(query.target) == query.expected
    assert staged(query.target) == [], "what dead drivers had staged is removed"


# --- full disks -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system of 256 KiB")
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(mounted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system of 256 KiB cannot be mounted here: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def journal_of(directory: Path, count: int, size: int) -> list[bytes]:
    """A journal of `count` messages; their values."""
    dice = random.Random(count)
    values = [dice.randbytes(size) for _ in range(count)]
    with Writer(directory) as writer:
        for value in values:
            writer.append(value, b"", 0, 1)
    return values


def values_in(directory: Path) -> list[bytes]:
    assert Reader(directory).verify().sound
    return [message.value for message in Reader(directory)]


def test_full_file_system_is_reported_and_the_next_write_succeeds_with_space(
    driver: Driver, small_disk: Path, tmp_path: Path
) -> None:
    target = small_disk / "out"
    before = journal_of(target, 20, 1000)
    small = journal_of(tmp_path / "small batch", 10, 1000)
    middle = journal_of(tmp_path / "middle batch", 140, 1000)
    journal_of(tmp_path / "large batch", 400, 1000)
    with pytest.raises(DriverFailed, match=r"\.staged: No space left on device|\[Errno 28\]"):
        driver.ask("save", source=str(tmp_path / "large batch"), target=str(target))
    assert values_in(target) == before
    wait_for(lambda: staged(target) == [], "that nothing is left")
    with pytest.raises(DriverFailed, match=r"the batch needs \d+ bytes and \d+ are free; nothing was published"):
        driver.ask("save", source=str(tmp_path / "middle batch"), target=str(target))
    assert values_in(target) == before
    wait_for(lambda: staged(target) == [], "that nothing is left")
    driver.ask("save", source=str(tmp_path / "small batch"), target=str(target))
    assert values_in(target) == before + small
    subprocess.run(["mount", "-o", f"remount,size={4 * SMALL_BYTES}", str(small_disk)], check=True)
    driver.ask("save", source=str(tmp_path / "middle batch"), target=str(target))
    assert values_in(target) == before + small + middle
    assert staged(target) == []


def test_full_file_system_after_the_commit_is_reported_and_the_next_write_completes_it(
    driver: Driver, small_disk: Path, tmp_path: Path
) -> None:
    target = small_disk / "out"
    before = journal_of(target, 20, 1000)
    batch = journal_of(tmp_path / "batch", 40, 1000)
    following = journal_of(tmp_path / "following", 10, 1000)
    once = {"txnAppId": "copy", "txnVersion": 7}
    trap = {"trap": "fill", "trapStep": r"write .*\.jnl", "trapNumber": 1}
    with pytest.raises(DriverFailed) as caught:
        driver.ask("save", source=str(tmp_path / "batch"), target=str(target), sink="trapped", **trap, **once)
    assert "No space left on device" in str(caught.value)
    assert "The batch is committed but not all of it is in place yet" in str(caught.value)
    found = values_in(target)
    assert found[:20] == before
    assert found[20:] == batch[: len(found) - 20]
    (target / "filler").unlink()
    driver.ask("save", source=str(tmp_path / "batch"), target=str(target), **once)
    assert values_in(target) == before + batch, "the same once more is nothing new"
    driver.ask("save", source=str(tmp_path / "following"), target=str(target))
    assert values_in(target) == before + batch + following
    assert staged(target) == []


def test_file_size_limit_is_reported_and_loses_nothing(driver: Driver, tmp_path: Path) -> None:
    """For machines where no small file system can be mounted."""
    target = tmp_path / "out"
    before = journal_of(target, 20, 1000)
    batch = journal_of(tmp_path / "batch", 700, 1000)
    with pytest.raises(DriverFailed, match="File too large"):
        driver.ask("save", source=str(tmp_path / "batch"), target=str(target), sink="limited", fileLimit=400_000)
    assert values_in(target) == before
    wait_for(lambda: staged(target) == [], "that nothing is left")
    driver.ask("save", source=str(tmp_path / "batch"), target=str(target), sink="limited", fileLimit=4_000_000)
    assert values_in(target) == before + batch
