"""Options that are passed on by name: one that does not exist is reported with the nearest one that does."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable

from ..errors import WrongUse


def check_options(function: Callable[..., object], options: Iterable[str]) -> None:
    """Raise `WrongUse` for an option that is no parameter of a function."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            there = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise WrongUse(f"there is no option {name}; {there}")
