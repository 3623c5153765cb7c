"""HTML and SVG put together out of elements, with everything that is not markup escaped.

    element("a", "text & more", class_="b")     <a class="b">text &amp; more</a>

Content is either text, which is escaped, or `Markup`, which is not. Names of journals and files are whatever someone
called them: `shown` makes one line of visible characters of them.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final, TypeAlias

LONGEST_NAME: Final = 64
_LONGEST_TITLE: Final = 500
_EMPTY: Final = ("meta", "rect", "path", "line", "circle", "col")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Content: TypeAlias = "str | Iterable[str]"


def element(tag: str, /, *content: Content, **attributes: str | float | None) -> Markup:
    """An element. Of the names of attributes a `_` at the end goes, others become `-`; what is None is left out."""
    inside = "".join(_markup(part) for part in content)
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{said}/>" if tag in _EMPTY and not inside else f"<{tag}{said}>{inside}</{tag}>")


def join(*content: Content) -> Markup:
    """Several pieces as one."""
    return Markup("".join(_markup(part) for part in content))


def _markup(content: Content) -> str:
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return html.escape(content)
    return "".join(_markup(part) for part in content)


def _value(value: str | float) -> str:
    """Numbers with no more digits than a screen can show."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def shown(name: str, longest: int = LONGEST_NAME) -> str:
    """A name as visible characters, shortened in the middle if it is long."""
    text = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in name[: 2 * _LONGEST_TITLE]
    )
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[len(text) - (longest - 1 - head) :]}"


def label(name: str, longest: int = LONGEST_NAME) -> Markup:
    """A name within a page: in one line, its direction kept to itself, the whole of it on hover if it is long."""
    text = shown(name, longest)
    whole = shown(name, _LONGEST_TITLE)
    return element("bdi", text, title=whole if whole != text else None)


def title(text: str) -> Markup:
    """What a shape says when one points at it."""
    return element("title", text)


def svg(
    width: float, height: float, *content: Content, describe: str, class_: str = "plot", stretched: bool = False
) -> Markup:
    """A drawing that is as wide as there is room for; `describe` is for those who do not see it."""
    return element(
        "svg",
        *content,
        class_=class_,
        viewBox=f"0 0 {_value(width)} {_value(height)}",
        preserveAspectRatio="none" if stretched else None,
        role="img",
        aria_label=describe,
    )


def text(x: float, y: float, content: str, *, class_: str | None = None, anchor: str | None = None) -> Markup:
    """Text in a drawing; `anchor` is `middle` or `end`."""
    return element("text", content, x=x, y=y, class_=class_, text_anchor=anchor)
