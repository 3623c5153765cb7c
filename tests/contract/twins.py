"""Twins: the codec of a format and its compiled kernel, called with the same arguments.

    TWINS = Twins("logwright.sej", compiled=COMPILED)
    walked = TWINS.answers("walk", data, 0, len(data))

Both must return the same. If both raise an error of ours, its types are compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from logwright.core.bytes.outcome import Malformed
from logwright.errors import LogwrightError


class Twins:
    """The implementations of a format's hot loops by name: `codec`, and `kernel` if it is built.

    With `by_repr`, lists are compared by their representation, because NaN is not equal to itself.
    """

    def __init__(self, package: str, *, compiled: bool, by_repr: bool = False) -> None:
        self._by_repr = by_repr
        self._modules = {"codec": import_module(f"{package}.bytes.codec")}
        if compiled:
            self._modules["kernel"] = import_module(f"{package}.bytes._kernel")

    def names(self) -> tuple[str, ...]:
        return tuple(self._modules)

    def __getitem__(self, name: str) -> ModuleType:
        return self._modules[name]

    def items(self) -> Iterator[tuple[str, ModuleType]]:
        yield from self._modules.items()

    def answers(self, function: str, *arguments: Any) -> Any:
        """The result of a call, after asserting that all twins return the same."""
        plain, *others = (self._answer(getattr(twin, function), arguments) for twin in self._modules.values())
        for other in others:
            assert other == plain, f"{function}: the codec says {plain}, the kernel {other}"
        return plain

    def _answer(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        answer = _answer(function, arguments)
        return repr(answer) if self._by_repr and isinstance(answer, list) else answer


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        answer = function(*arguments)
    except (Malformed, LogwrightError) as error:
        return type(error).__name__
    if is_dataclass(answer) and hasattr(answer, "count"):  # columns, whose buffers may have different types
        return {field.name: getattr(answer, field.name) for field in fields(answer)}
    return list(answer) if isinstance(answer, array) else answer
