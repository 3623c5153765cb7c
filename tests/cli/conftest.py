"""The sample journals of `logwright demo`: written once, copied for each test that requests them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.support import run


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the sample journals. Tests must not change it: see `demo`."""
    directory = tmp_path_factory.mktemp("samples") / "demo"
    assert run("demo", directory).code == 0
    return directory


@pytest.fixture
def demo(samples: Path, tmp_path: Path) -> Path:
    """A copy of the sample journals that a test may change."""
    directory = tmp_path / "demo"
    shutil.copytree(samples, directory)
    return directory
