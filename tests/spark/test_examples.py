"""The Spark example in README runs on journals like those of `logwright demo`; test_docs runs those of docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from logwright.cli import main
from logwright.sej import Writer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_of_a_page_run(spark: Any, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "journals"]) == 0
    with Writer("orders") as writer:
        writer.append(b"value", b"key")
    blocks = re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks, "a page about Spark has examples"
    names: dict[str, object] = {"__name__": "example"}
    for block in blocks:
        # Spark's own processes run where the JVM was started, before this test had a directory.
        block = re.sub(r'(load|save|start)\("(?!/|\w+:)', rf'\1("{tmp_path}/', block)
        exec(compile(block, str(page), "exec"), names)
