"""`logwright torture`: finds nothing with our writers, and finds what a writer loses that forgets a step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logwright import sej
from logwright.core.format import FORMATS
from logwright.core.io.disk import REAL_DISK, Disk
from logwright.torture import run as torture
from logwright.torture.exercises import Settled, Task, Wrong
from logwright.torture.journals import SejExercise
from logwright.torture.power import missing_for_power_cuts
from logwright.torture.queue import Model, QueueExercise
from logwright.torture.run import Torture
from tests.cli.support import assert_one_error_line, execute, run
from tests.support.counts import COUNTS
from tests.support.small_disk import small_disk
from tests.support.threads import DEADLINE_SECONDS

NAMES = ["format", "policy", "fault", "faults", "acknowledged", "checked", "lost", "seconds", "failures"]


def needs_power_cuts() -> None:
    if (missing := missing_for_power_cuts()) is not None:
        pytest.skip(missing)


def test_every_writer_keeps_what_it_has_acknowledged(tmp_path: Path) -> None:
    outcome = run("torture", tmp_path, "--kills", 4, "--seed", 3, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert [(found["format"], found["policy"], found["fault"]) for found in outcome.objects] == [
        (format, policy, "kill") for format in FORMATS for policy in ("always", "interval(20)", "none")
    ]
    for found in outcome.objects:
        assert list(found) == NAMES
        assert (found["faults"], found["lost"], found["failures"]) == (4, 0, [])
        COUNTS.add("kill -9", 4, found["format"])
    assert sum(found["acknowledged"] for found in outcome.objects) > 100
    assert list(tmp_path.iterdir()) == []


def test_table_and_result_for_people(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("stays")
    outcome = run("torture", tmp_path, "--kills", 1, "--format", "kestrel", "--format", "sej")
    assert outcome.code == 0
    head, *rows, last = outcome.lines
    assert head.split() == ["format", "policy", "fault", *NAMES[3:8], "result"]
    assert [row.split()[0] for row in rows] == ["kestrel"] * 3 + ["sej"] * 3
    assert last == "nothing acknowledged was lost in 6 kills and power cuts"
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_time_ends_a_run(tmp_path: Path) -> None:
    outcome = run("torture", tmp_path, "--seconds", 0.001, "--format", "sej", "--json")
    assert outcome.code == 0
    assert sum(found["faults"] for found in outcome.objects) <= 1


def test_writers_that_were_not_tried_are_not_called_good(tmp_path: Path) -> None:
    outcome = run("torture", tmp_path, "--seconds", 0.001, "--format", "sej", "--format", "kestrel")
    assert outcome.code == 0
    _, *rows, _, last = outcome.lines
    tried = [row.split()[3] != "0" for row in rows]
    assert [row.endswith("not tried") for row in rows] == [not found for found in tried]
    assert last == f"{tried.count(False)} of 6 were not tried: give it more --seconds, or use --kills"


def test_journals_are_kept_on_request(tmp_path: Path) -> None:
    outcome = run("torture", tmp_path, "--kills", 3, "--format", "sej", "--keep", "--seed", 1)
    assert outcome.code == 0
    (made,) = tmp_path.iterdir()
    assert outcome.err == f"logwright: the journals are in {made}\n"
    assert {path.name.rsplit("-", 2)[0] for path in made.iterdir()} <= {"sej-always", "sej-interval(20)", "sej-none"}


def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    needs_power_cuts()
    outcome = run("torture", tmp_path, "--kills", 2, "--power-cuts", "--json", "--seed", 5)
    assert (outcome.code, outcome.err) == (0, "")
    cuts = [found for found in outcome.objects if found["fault"] == "power cut"]
    assert len(cuts) == 2 * len(FORMATS)
    for found in cuts:
        COUNTS.add("power cuts", found["faults"], found["format"])
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


# --- writers that lose something --------------------------------------------------------------------------------------


class ForgetsFlush(SejExercise):
    """Acknowledges messages that are still in its buffer."""

    def open(self, task: Task, disk: Disk) -> sej.Writer:
        writer = super().open(task, disk)
        writer.flush = lambda: None  # type: ignore[method-assign]
        return writer


class ForgetfulDisk:
    """The real disk without syncs."""

    def open(self, path: Path, mode: Any) -> Any:
        return ForgetfulFile(REAL_DISK.open(path, mode))

    def sync_directory(self, path: Path) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)


class ForgetfulFile:
    def __init__(self, file: Any) -> None:
        self.path, self._file = file.path, file

    def sync(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class ForgetsSync(SejExercise):
    """Acknowledges messages that only the operating system has."""

    def open(self, task: Task, disk: Disk) -> sej.Writer:
        return super().open(task, ForgetfulDisk())


class PutsTwice(QueueExercise):
    """Puts items of which it reports only the first."""

    def use(self, task: Task, disk: Disk, send: Any) -> None:
        def send_less(report: list[Any]) -> None:
            send([*report[:2], report[2][:1]] if report[:2] == ["do", "put"] else report)

        super().use(task, disk, send_less)


def failures_of(outcome: Any) -> list[str]:
    return [text for found in outcome.objects for text in found["failures"]]


def test_forgotten_flush_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torture.EXERCISES, "sej", ForgetsFlush())
    outcome = run("torture", tmp_path, "--kills", 8, "--format", "sej", "--seed", 1, "--json")
    assert outcome.code == 1
    always, _, none = outcome.objects
    assert (always["lost"], always["failures"]) == (0, [])
    assert none["lost"] > 0
    assert f"{none['acknowledged']} records were acknowledged, and " in none["failures"][0]
    (made,) = tmp_path.iterdir()
    assert f"the journals are in {made}" in outcome.err
    assert "failed: sej, none, after kill " in outcome.err
    assert outcome.err.endswith("logwright: seed 1\n")


def test_forgotten_sync_is_found_by_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_power_cuts()
    monkeypatch.setitem(torture.EXERCISES, "sej", ForgetsSync())
    outcome = run("torture", tmp_path, "--kills", 4, "--format", "sej", "--seed", 1, "--power-cuts", "--json")
    assert outcome.code == 1
    assert [found["lost"] for found in outcome.objects if found["fault"] == "kill"] == [0, 0, 0]
    assert any(found["lost"] for found in outcome.objects if found["fault"] == "power cut")
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_items_that_nobody_put_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torture.EXERCISES, "kestrel", PutsTwice())
    outcome = run("torture", tmp_path, "--kills", 8, "--format", "kestrel", "--seed", 1, "--json")
    assert outcome.code == 1
    assert failures_of(outcome)


@pytest.mark.parametrize("format", FORMATS)
def test_record_that_is_removed_after_the_kill_is_found(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = Torture._settle

    def settle_without_the_end(self: Torture, case: Any) -> Settled:
        for path in case.home.rglob("*"):
            if path.is_file() and case.expectation.acknowledged > 3 and ".logwright" not in path.parts:
                with path.open("r+b") as file:
                    file.truncate(path.stat().st_size // 2)
        return settle(self, case)

    monkeypatch.setattr(Torture, "_settle", settle_without_the_end)
    outcome = run("torture", tmp_path, "--kills", 6, "--format", format, "--seed", 2, "--json")
    assert outcome.code == 1
    assert all(found["failures"] for found in outcome.objects)


def test_hung_writer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torture, "DEADLINE_SECONDS", 0.0)
    outcome = run("torture", tmp_path, "--kills", 1, "--format", "sej")
    assert outcome.code == 1
    assert "the writer reports nothing for 0 seconds" in outcome.err


def test_model_of_a_queue_knows_what_a_call_returns() -> None:
    model = Model([(1, 0), (2, 1)])
    model.done("open", [1], [[1, 7]])
    model.done("put", [3], None)
    assert model.after_restart() == [(1, 1), (2, 1), (3, 0)]
    with pytest.raises(Wrong, match=r"get has returned the items \[3\] instead of \[2\]"):
        model.done("get", [1], [3])


# --- wrong use, full disks, interrupts --------------------------------------------------------------------------------


def test_directory_must_exist(tmp_path: Path) -> None:
    assert_one_error_line(run("torture", tmp_path / "none"), 2, "none: no such directory; create it")


def test_time_and_number_exclude_each_other(tmp_path: Path) -> None:
    outcome = run("torture", tmp_path, "--seconds", 1, "--kills", 1)
    assert_one_error_line(outcome, 2, "give --seconds or --kills, not both")


def test_time_that_never_ends_is_refused(tmp_path: Path) -> None:
    assert_one_error_line(run("torture", tmp_path, "--seconds", "nan"), 2, "--seconds nan is not a time")
    assert list(tmp_path.iterdir()) == []


def test_directory_that_cannot_be_written_to() -> None:
    assert_one_error_line(run("torture", "/proc", "--kills", 1), 2, "create a directory in /proc: ")


def test_power_cuts_say_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert_one_error_line(run("torture", tmp_path, "--power-cuts"), 2, "power cuts need root")
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_reported_as_such_and_not_as_loss(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 64 * 1024) as disk:
        outcome = run("torture", disk, "--kills", 20, "--format", "appendfile", "--json", "--seed", 1)
        assert outcome.code == 2, outcome
        assert "error: the disk is full: " in outcome.err
        assert "No space left on device; no loss was found; make space and run this again" in outcome.err
        assert all((found["lost"], found["failures"]) == (0, []) for found in outcome.objects)
        assert list(disk.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    arguments = ["--power-cuts"] if missing_for_power_cuts() is None else []
    command = [sys.executable, "-m", "logwright", "torture", str(tmp_path), "--format", "sej", "--seconds", "600"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not list(tmp_path.glob("*/sej-*")):
            assert process.poll() is None
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, err) == (130, b"")
    assert out.startswith(b"format ")
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_of_all_processes_while_they_start_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """A terminal sends Ctrl-C to the writers as well. Their source is still importing then."""
    command = [sys.executable, "-m", "logwright", "torture", str(tmp_path), "--seconds", "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        while not list(tmp_path.iterdir()):
            assert process.poll() is None
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, err) == (130, b"")
    assert list(tmp_path.iterdir()) == []


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    outcome = run("torture", tmp_path, "--kills", 1, "--format", "sej", terminal=True)
    assert outcome.code == 0
    assert "faults" in outcome.err


def test_runs_as_a_program(tmp_path: Path) -> None:
    outcome = execute("torture", tmp_path, "--kills", 1, "--format", "yeltsin", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert len(outcome.objects) == 3
