"""Groups of tests that one worker of pytest-xdist runs, and starts with: those that share a Spark session or a cluster.

A JVM that several tests share warms up once, and the fixtures of a module are made once. Any other test runs on the
next free worker. Tests are grouped by file, because pytest 9.2 silently ignores `xdist_group`, the mark for this
purpose.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

CLUSTER_FILES = ("tests/spark/test_cluster.py", "tests/spark/test_sink_faults.py")
"""Separate from the other tests of Spark: they have their own drivers, and share nothing with those."""
ALONE_FILES = ("tests/spark/test_demo.py",)
SPARK_PAGES = ("docs/spark.md", "docs/pipeline.md")


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
    """Assigns tests to workers: the largest groups first, so that single tests fill the remaining time."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
