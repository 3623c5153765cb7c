"""The journals of the demo, and a server over them, for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logwright.cli import main
from tests.web.support import Site, serving


@pytest.fixture(scope="package")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("web") / "demo"
    assert main(["demo", str(root)]) == 0
    return root


@pytest.fixture(scope="package")
def site(journals: Path) -> Iterator[Site]:
    with serving(journals) as found:
        yield found
