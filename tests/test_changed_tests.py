"""`tools/changed_tests.py` finds the tests of a changed file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "changed_tests.py"
EXAMPLE = "examples/accounts.py"
PAGE = "tests/test_docs.py::test_examples_of_a_page_print_the_documented_output[docs/torture.md]"


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("src/logwright/sej/files/writer.py", {"tests/sej/test_writer.py"}),
        ("src/logwright/sej/bytes/_kernel.pyx", {"tests/sej/test_kernel.py"}),
        ("src/logwright/kestrel/model/engine.py", {"tests/kestrel"}),
        ("src/logwright/servers/queue/parser.py", {"tests/servers/queue/test_parser.py"}),
        ("src/logwright/values.py", {"tests/test_values.py"}),
        (EXAMPLE, {f"tests/test_docs.py::test_program_runs_and_prints_what_it_should[{Path(EXAMPLE).name}]"}),
        ("src/logwright/torture/run.py", {"tests/cli/test_torture.py"}),
        ("tests/sej/test_writer.py", {"tests/sej/test_writer.py"}),
        ("tests/sej/test_removed.py", set()),
        ("docs/torture.md", {PAGE}),
        ("Makefile", set()),
    ],
)
def test_changed_file_has_these_tests(changed: str, tests: set[str]) -> None:
    spec = importlib.util.spec_from_file_location("changed_tests", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.tests_of(changed) == tests
