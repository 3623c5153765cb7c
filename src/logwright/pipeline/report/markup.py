"""Build HTML and SVG from elements; everything that is not markup is escaped.

    element("a", "text & more", class_="b")     <a class="b">text &amp; more</a>

Content is either text, which is escaped, or `Markup`, which is not. Names of journals and files may contain any
characters: `shown` turns them into one line of printable ones.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

LONGEST_NAME: Final = 64
_LONGEST_TITLE: Final = 500
_EMPTY: Final = ("meta", "rect", "path", "line", "circle", "col")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Content: TypeAlias = "str | Iterable[str]"


def element(tag: str, /, *content: Content, **attributes: str | float | None) -> Markup:
    """An element. In names of attributes a final `_` is removed and other `_` become `-`; attributes that are None are
    omitted.
    """
    inside = "".join(_markup(part) for part in content)
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{said}/>" if tag in _EMPTY and not inside else f"<{tag}{said}>{inside}</{tag}>")


def join(*content: Content) -> Markup:
    """Several pieces of content as one."""
    return Markup("".join(_markup(part) for part in content))


def _markup(content: Content) -> str:
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return html.escape(content)
    return "".join(_markup(part) for part in content)


def _value(value: str | float) -> str:
    """The text of an attribute; numbers get at most two decimals."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def shown(name: str, longest: int = LONGEST_NAME) -> str:
    """A name in printable characters, shortened in the middle if it is long."""
    text = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in name[: 2 * _LONGEST_TITLE]
    )
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[len(text) - (longest - 1 - head) :]}"


def label(name: str, longest: int = LONGEST_NAME) -> Markup:
    """A name on the page: one line, with its own text direction, and the full name as a tooltip if it is shortened."""
    text = shown(name, longest)
    whole = shown(name, _LONGEST_TITLE)
    return element("bdi", text, title=whole if whole != text else None)


def title(text: str) -> Markup:
    """The tooltip of a shape."""
    return element("title", text)


def svg(
    width: float, height: float, *content: Content, describe: str, class_: str = "plot", stretched: bool = False
) -> Markup:
    """A drawing that fills the available width; `describe` is its text for screen readers."""
    return element(
        "svg",
        *content,
        class_=class_,
        viewBox=f"0 0 {_value(width)} {_value(height)}",
        preserveAspectRatio="none" if stretched else None,
        role="img",
        aria_label=describe,
    )


def text(
    x: float | str, y: float | str, content: str, *, class_: str | None = None, anchor: str | None = None
) -> Markup:
    """Text in a drawing; `anchor` is `middle` or `end`."""
    return element("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


# --- parts of a page ------------------------------------------------------------------------------------------------

NOTHING: Final = Markup("")
DASH: Final = "–"


def section(name: str, says: Content, *content: Content) -> Markup:
    """A section; links lead to its name in lower case."""
    head = (element("h2", name), element("p", says, class_="says"))
    return element("section", *head, *content, class_="card", id=name.lower())


def table(columns: Sequence[tuple[str, str]], rows: Iterable[Content]) -> Markup:
    """A table; a column is its heading and its class. On a narrow screen each row becomes a block."""
    heads = [element("th", name, class_="number" if kind == "number" else None, scope="col") for name, kind in columns]
    table = element("table", element("thead", element("tr", heads)), element("tbody", *rows), class_="stack")
    return element("div", table, class_="scroll")


def row(columns: Sequence[tuple[str, str]], *cells: Content, look: str | None = None) -> Markup:
    made = [
        element("td", cell, class_=kind or None, data_label=name or None)
        for (name, kind), cell in zip(columns, cells, strict=True)
    ]
    return element("tr", made, class_=look)


def empty(words: str, look: str = "") -> Markup:
    return element("p", words, class_=f"notice {look}".rstrip())
