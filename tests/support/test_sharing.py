"""Tests that share a Spark session run on the same worker, every test runs once, and the listed test files exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer

from tests.support.sharing import ALONE_FILES, CLUSTER_FILES, SPARK_PAGES, Sharing, group_of

ROOT = Path(__file__).resolve().parents[2]


def test_tests_that_share_a_spark_session_are_in_one_group() -> None:
    found = 0
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if re.search(r"def test_\w+\([^)]*\bspark: Any", path.read_text()):
            assert group_of(f"{path.relative_to(ROOT)}::test_it[case]") == "spark", path
            found += 1
    assert found > 10
    for page in SPARK_PAGES:
        assert group_of(f"tests/test_docs.py::test_examples_of_a_page_print_the_documented_output[{page}]") == "spark"


def test_tests_with_their_own_driver_are_a_second_group_and_others_are_single() -> None:
    assert {group_of(f"{file}::test_it") for file in CLUSTER_FILES} == {"cluster"}
    for test in (
        f"{ALONE_FILES[0]}::test_it",
        "tests/test_docs.py::test_it[docs/queue.md]",
        "tests/core/a.py::b[c::d]",
    ):
        assert group_of(test) == test


@pytest.mark.parametrize("file", [*CLUSTER_FILES, *ALONE_FILES, *SPARK_PAGES])
def test_named_test_files_exist(file: str) -> None:
    assert (ROOT / file).is_file()


class Worker:
    """A worker that notes the tests assigned to it."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.assigned: list[list[int]] = []
        self.shutting_down = False

    def send_runtest_some(self, places: list[int]) -> None:
        self.assigned.append(places)

    def shutdown(self) -> None:
        self.shutting_down = True

    def each_test(self) -> Iterator[int]:
        """The assigned tests, including those that are assigned meanwhile."""
        for places in self.assigned:
            yield from places


def test_every_test_runs_once_and_the_last_ones_are_assigned_singly() -> None:
    spark = [f"tests/spark/test_source.py::test_it[{number}]" for number in range(50)]
    collection = [*(f"tests/core/a.py::test_it[{number}]" for number in range(4000)), *spark]
    config: Any = SimpleNamespace(getvalue=lambda name: ["2*popen"], option=SimpleNamespace(loadscopereorder=True))
    scheduler = Sharing(config, Producer("sharing", enabled=False))
    workers: list[Any] = [Worker("one"), Worker("two")]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, collection)
    scheduler.schedule()
    assert [collection[place] for place in workers[0].assigned[0]] == spark

    running = {worker: worker.each_test() for worker in workers}
    ran = []
    while running:
        for worker, tests in list(running.items()):
            place = next(tests, None)
            if place is None:
                del running[worker]
            else:
                ran.append(place)
                scheduler.mark_test_complete(worker, place)
    assert scheduler.tests_finished
    assert all(worker.shutting_down for worker in workers)
    assert sorted(ran) == list(range(len(collection)))
    assert sum(len(worker.assigned) for worker in workers) < 1000
    assert {len(places) for worker in workers for places in worker.assigned[-50:]} == {1}
