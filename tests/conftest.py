"""What every test can use, the `--replay` option, and the table of faults at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark import quick
from tests.support import replay
from tests.support.counts import COUNTS
from tests.support.simulated_disk import SimulatedDisk

_COUNTS_KEY = "logwright_counts"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--replay", default="", metavar="LABELS", help="run only this case of a test's loops, as a failure printed it"
    )


def pytest_configure(config: pytest.Config) -> None:
    replay.choose(config.getoption("--replay"))
    quick.choose()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "load":  # somebody wants another one
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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = COUNTS.table()
    if lines:
        terminalreporter.section("faults tried")
        for line in lines:
            terminalreporter.write_line(line)


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
