"""Options that are passed by name: one that does not exist is reported with the nearest one that does."""

from __future__ import annotations

import difflib
import functools
import inspect
import typing
from collections.abc import Callable, Collection, Iterable
from typing import Any, ParamSpec, Self, TypeVar

from ..errors import UnknownOption

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class NamedOptions:
    """The base of a class whose constructor names the nearest option when it does not know one.

    The options are checked before `__init__` is called. A wrapper of `__init__` could be interrupted after it, and
    would leave open what it has opened.
    """

    __slots__ = ()

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        check_options(cls.__init__, options)
        return super().__new__(cls)


def with_named_options(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The same for a function. It must not return something open, see `NamedOptions`; a coroutine may."""

    @functools.wraps(function)
    def checked(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        check_options(function, options)
        return function(*arguments, **options)

    return checked


def suggest(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: the name that was probably meant, or all that are known."""
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def check_options(function: Callable[..., object], options: Iterable[str]) -> None:
    """Raise `UnknownOption` for an option that is no parameter of a function."""
    for name in options:
        known = known_options(function)
        if known is not None and name not in known:
            raise UnknownOption(f"there is no option {name}; {suggest(name, known)}")


@functools.cache
def known_options(function: Callable[..., object]) -> tuple[str, ...] | None:
    """The options of a function or method, with those of an `**options: Unpack[…]`; None if it accepts any other."""
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            unpacked = _unpacked(function, parameter.name)
            if unpacked is None:
                return None
            names += unpacked
        elif parameter.name not in ("self", "cls"):
            names.append(parameter.name)
    return tuple(names)


def _unpacked(function: Callable[..., object], name: str) -> Iterable[str] | None:
    """The keys of the TypedDict that a parameter is annotated with; None if it is not, or only for a type checker."""
    try:
        annotation = inspect.get_annotations(function, eval_str=True).get(name)
    except NameError:
        return None
    return typing.get_args(annotation)[0].__annotations__ if typing.get_origin(annotation) is typing.Unpack else None
