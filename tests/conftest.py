"""Common fixtures, the `--replay` option, and the summary of a run: times by area, tried faults, tests that hung."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.spark import quick
from tests.support import hangs, replay
from tests.support.counts import COUNTS
from tests.support.simulated_disk import SimulatedDisk

_COUNTS_KEY = "logwright_counts"
settings.register_profile("logwright", deadline=None)  # a busy machine must not fail a test
settings.load_profile("logwright")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--replay", default="", metavar="LABELS", help="run only this case of a test's loops, as a failure printed it"
    )


def pytest_configure(config: pytest.Config) -> None:
    replay.choose(config.getoption("--replay"))
    quick.choose()
    hangs.prepare(is_worker=hasattr(config, "workerinput"))
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a run in the background of a shell, as by nohup
        signal.signal(signal.SIGINT, signal.default_int_handler)  # otherwise children would ignore it too


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "load":  # another one was requested
        return None
    from tests.support.sharing import Sharing

    return Sharing(config, log)


# --- the command that replays a failure ------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.when == "call" and report.failed and replay.current():
        report.sections.append(("replay this case alone", replay.report(item.nodeid)))
    if report.when == "teardown":
        replay.forget()
    return report  # type: ignore[return-value]


# --- the table of faults, gathered from all workers -------------------------------------------------------------------


def pytest_sessionfinish(session: pytest.Session) -> None:
    worker_output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if worker_output is not None:  # only a worker of pytest-xdist has it
        worker_output[_COUNTS_KEY] = COUNTS.dump()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    COUNTS.load(getattr(node, "workeroutput", {}).get(_COUNTS_KEY, []))


@pytest.hookimpl(trylast=True)  # the end of a log is read first
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist: the process that started it prints
        return
    areas = {"seconds by area, over all workers": _seconds_by_area(terminalreporter)}
    for title, lines in {**areas, "faults tried": COUNTS.table(), "tests that did not end": hangs.reports()}.items():
        if lines:
            terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)


def _seconds_by_area(terminalreporter: Any) -> list[str]:
    """The time of the tests of each folder, the longest first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                area, _, _ = report.nodeid.partition("::")[0].rpartition("/")
                seconds[area] += report.duration
    return [f"{total:8.1f}  {area}" for area, total in sorted(seconds.items(), key=itemgetter(1), reverse=True)]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with hangs.watched(item.nodeid):
        return (yield)


# --- fixtures -------------------------------------------------------------------------------------------------------


@pytest.fixture
def journal_directory(tmp_path: Path) -> Path:
    """An empty directory on the real disk for one journal."""
    directory = tmp_path / "journal"
    directory.mkdir()
    return directory


@pytest.fixture
def simulated_disk() -> SimulatedDisk:
    """A disk in memory with the durable, empty directory `/journal`."""
    disk = SimulatedDisk()
    disk.make_directory(Path("/journal"))
    disk.settle()
    return disk
