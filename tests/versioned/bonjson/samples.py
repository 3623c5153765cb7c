"""Shared by the tests of BONJSON: the codec and its twin, the originals' vectors, and results to compare."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from logwright.errors import WrongUse
from logwright.versioned.bytes.bonjson import codec
from logwright.versioned.bytes.bonjson.errors import DecodeError, EncodeError

GOLDEN = Path(__file__).parents[2] / "golden" / "bonjson"


def _twins() -> dict[str, ModuleType]:
    try:
        return {"codec": codec, "kernel": importlib.import_module("logwright.versioned.bytes.bonjson._kernel")}
    except ImportError:
        return {"codec": codec}


TWINS = _twins()
EACH_TWIN = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)


def golden(name: str) -> dict[str, Any]:
    """A file of the documents that the originals write, accept and reject."""
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


def golden_documents() -> list[bytes]:
    """Every document of the vectors."""
    vectors = golden("vectors")
    return [bytes.fromhex(case["hex"]) for case in (*vectors["vectors"], *vectors["decode_only"])]


def answer_of(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a call, in a form in which 1, 1.0 and True differ, and NaN is equal to itself."""
    try:
        return repr(function(*arguments, **options))
    except (DecodeError, EncodeError, WrongUse) as error:
        return type(error).__name__, *error.args
