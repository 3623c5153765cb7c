"""The current case of a long loop, so that a failure prints one command that runs this case alone.

Loops over crash states, failing calls and damage use `each`, which remembers the label of the current case. If the test
fails, its report ends with

    pytest 'tests/core/test_disk.py::test_name' --replay='17.3 > 4.0'

A run with that option skips every other case. Loops may be nested: there is a label for each level, outermost first.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TypeVar

Case = TypeVar("Case")
SEPARATOR = " > "


class _Loop:
    """A loop and its current case. A loop that was left early keeps its label: that may be the failing case."""

    __slots__ = ("case", "label", "left")

    def __init__(self) -> None:
        self.case: object = None
        self.label = ""
        self.left = False


_current: list[_Loop] = []
"""The loops that are running, outermost first, followed by those that were left last."""
_wanted: list[str] = []


def choose(labels: str) -> None:
    """Run only the cases with these labels from now on; an empty string removes the restriction."""
    _wanted[:] = labels.split(SEPARATOR) if labels else []


def current() -> str:
    """The labels of the current case; empty if no loop is running."""
    return SEPARATOR.join(loop.label for loop in _current)


def forget() -> None:
    """Forget the loops of a test that has ended."""
    _current.clear()


def report(test: str) -> str:
    """The command that runs the current case of a test alone, and the history of the case if it has a `story`."""
    stories = [story for loop in _current if (story := getattr(loop.case, "story", None))]
    return "\n".join([f"pytest {shlex.quote(test)} --replay={shlex.quote(current())}", *stories[-1:]])


def each(cases: Iterable[tuple[str, Case]]) -> Iterator[Case]:
    """The cases whose label is selected, in order; the label is remembered while each is tried."""
    while _current and _current[-1].left:
        _current.pop()
    depth = len(_current)
    wanted = _wanted[depth] if depth < len(_wanted) else None
    loop = _Loop()
    _current.append(loop)
    try:
        for label, case in cases:
            if wanted is None or label == wanted:
                loop.label, loop.case = label, case
                del _current[depth + 1 :]
                yield case
    except GeneratorExit:
        loop.left = True  # by a failure or a `break`: only the next loop shows which
        raise
    if _current[depth:] and _current[depth] is loop:  # the loop of a forgotten test must not affect others
        del _current[depth:]
