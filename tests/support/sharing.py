"""Groups of tests that one worker of pytest-xdist runs, and starts with: those that share a Spark session or a cluster.

A JVM that several tests share warms up once, and the fixtures of a module are made once. Any other test runs on the
next free worker. Tests are grouped by file, because pytest 9.2 silently ignores `xdist_group`, the mark for this
purpose.
"""

from __future__ import annotations

from functools import cached_property

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

CLUSTER_FILES = ("tests/spark/test_cluster.py", "tests/spark/test_sink_faults.py")
"""Separate from the other tests of Spark: they have their own drivers, and share nothing with those."""
ALONE_FILES = ("tests/spark/test_demo.py",)
SPARK_PAGES = ("docs/spark.md", "docs/pipeline.md")
MOST_AT_ONCE = 32
"""The number of tests after which a worker gets no further group at once."""
SHARES = 200
"""A worker gets at most this part of the remaining groups at once: the last ones singly, so that no worker waits."""


def group_of(test: str) -> str:
    """The group of a test; its own name if it is not in a group."""
    file = test.partition("::")[0]
    if file in CLUSTER_FILES:
        return "cluster"
    is_page = file == "tests/test_docs.py" and any(test.endswith(f"[{page}]") for page in SPARK_PAGES)
    if is_page or (file.startswith("tests/spark/") and file not in ALONE_FILES):
        return "spark"
    return test


class Sharing(LoadScopeScheduling):
    """Assigns tests to workers: the largest groups first, so that single tests fill the remaining time.

    Several groups are assigned at once as long as there are many. The inherited methods assign a single one, and search
    all tests of the run for that, which took longer than many of the tests.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    @cached_property
    def _places(self) -> dict[str, int]:
        """The position of each test; it is the same on all workers."""
        return {test: place for place, test in enumerate(self.collection or [])}

    def _assign_work_unit(self, node: WorkerController) -> None:
        enough = min(MOST_AT_ONCE, len(self.workqueue) // SHARES)
        places: list[int] = []
        while self.workqueue and len(places) <= enough:
            group, tests = self.workqueue.popitem(last=False)
            self.assigned_work[node][group] = tests
            places += [self._places[test] for test, is_completed in tests.items() if not is_completed]
        node.send_runtest_some(places)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        test = self.registered_collections[node][item_index]
        group = group_of(test)
        tests = self.assigned_work[node][group]
        del tests[test]
        if not tests:
            del self.assigned_work[node][group]
        self._reschedule(node)
