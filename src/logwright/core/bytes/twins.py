"""Twins: modules that exist twice, compiled and in plain Python, and which of the two is used.

A format has a module that brings the hot loops to everyone else:

    if TYPE_CHECKING:
        from ..codec import columns, walk

        COMPILED = True
    else:
        COMPILED = bring(__name__, {"_kernel": "codec"}, __all__)

Both answer the same; the tests hold them to it. LOGWRIGHT_PURE=1 chooses the plain ones although the others are there.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any


def bring(module: str, twins: Mapping[str, str], names: Iterable[str]) -> bool:
    """Put names into a module, from the compiled modules beside it or from their plain twins; whether from the former.

    All of them are compiled or none is, so that what they have in common fits.
    """
    package = module.rpartition(".")[0]
    wanted = [name for name in names if name != "COMPILED"]
    found: dict[str, Any] | None = None
    if not os.environ.get("LOGWRIGHT_PURE"):
        with contextlib.suppress(ImportError):
            found = _names_of(package, twins.keys(), wanted)
    sys.modules[module].__dict__.update(found or _names_of(package, twins.values(), wanted))
    return found is not None


def _names_of(package: str, modules: Iterable[str], names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in modules:
        there = vars(importlib.import_module(module if module.startswith(".") else f".{module}", package))
        found = {**{name: there[name] for name in names if name in there}, **found}
    if missing := [name for name in names if name not in found]:
        raise ImportError(f"{package} was built before it had {', '.join(missing)}")
    return found
