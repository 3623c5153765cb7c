"""Which of two twins is used: the compiled modules where all of them have what is asked for, else the plain ones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from logwright.core.bytes.twins import bring


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with twins: `fast` and `slow` have `walk`, `quick` and `plain` have `Replay`."""
    folder = tmp_path / "twinned"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name, text in (
        ("fast", "walk = 'compiled'"),
        ("slow", "walk = 'plain'\nspans = 'plain'"),
        ("quick", "Replay = 'compiled'"),
        ("plain", "Replay = 'plain'"),
    ):
        (folder / f"{name}.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("LOGWRIGHT_PURE", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "twinned"]:
        monkeypatch.delitem(sys.modules, name)
    module = ModuleType("twinned.kernel")
    monkeypatch.setitem(sys.modules, "twinned.kernel", module)
    return "twinned.kernel"


def brought(name: str) -> dict[str, object]:
    return {key: value for key, value in vars(sys.modules[name]).items() if not key.startswith("__")}


def test_compiled_ones_are_used_where_they_are(package: str) -> None:
    assert bring(package, {"fast": "slow", "quick": "plain"}, ["COMPILED", "walk", "Replay"])
    assert brought(package) == {"walk": "compiled", "Replay": "compiled"}


def test_the_environment_chooses_the_plain_ones(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGWRIGHT_PURE", "1")
    assert not bring(package, {"fast": "slow", "quick": "plain"}, ["COMPILED", "walk", "Replay"])
    assert brought(package) == {"walk": "plain", "Replay": "plain"}


def test_one_that_is_missing_makes_all_plain(package: str) -> None:
    assert not bring(package, {"fast": "slow", "not_built": "plain"}, ["walk", "Replay"])
    assert brought(package) == {"walk": "plain", "Replay": "plain"}


def test_one_that_was_built_before_it_had_a_name_makes_all_plain(package: str) -> None:
    assert not bring(package, {"fast": "slow"}, ["walk", "spans"])
    assert brought(package) == {"walk": "plain", "spans": "plain"}


def test_a_name_that_nobody_has_is_an_error_that_names_it(package: str) -> None:
    with pytest.raises(ImportError, match="twinned was built before it had columns"):
        bring(package, {"fast": "slow"}, ["walk", "columns"])
