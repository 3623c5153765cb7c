"""Tests that share a Spark session run on the same worker, and the listed test files exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.sharing import ALONE_FILES, CLUSTER_FILES, SPARK_PAGES, group_of

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
