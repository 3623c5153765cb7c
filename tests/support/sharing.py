"""Which tests one worker of pytest-xdist runs alone, and begins with: those that share a Spark, or a cluster.

A JVM that several tests share gets warm once, and what a module prepares with it is prepared once. Any other test is
for the worker that has time next. Tests are grouped by their files: `xdist_group`, the mark that is meant for this,
is silently ignored with pytest 9.2.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

CLUSTER_FILES = ("tests/spark/test_cluster.py", "tests/spark/test_sink_faults.py")
"""Beside the other tests of Spark: they have their own drivers, and share nothing with those."""
ALONE_FILES = ("tests/spark/test_demo.py",)
SPARK_PAGES = ("docs/spark.md", "docs/pipeline.md")


def group_of(test: str) -> str:
    """The name of the tests that a test is run with; its own if it is run by itself."""
    file = test.partition("::")[0]
    if file in CLUSTER_FILES:
        return "cluster"
    is_page = file == "tests/test_docs.py" and any(test.endswith(f"[{page}]") for page in SPARK_PAGES)
    if is_page or (file.startswith("tests/spark/") and file not in ALONE_FILES):
        return "spark"
    return test


class Sharing(LoadScopeScheduling):
    """What gives tests to workers: the largest groups first, so that single ones fill the time that is left."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
