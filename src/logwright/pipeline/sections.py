"""The parts that every chapter of the report is made of: a heading, what it says, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .drawing import Content, Markup, element

NOTHING: Final = Markup("")
DASH: Final = "–"


def section(name: str, says: Content, *content: Content) -> Markup:
    return element("section", element("h2", name), element("p", says, class_="says"), *content)


def table(columns: Sequence[tuple[str, str]], rows: Iterable[Content]) -> Markup:
    """A table; a column is its heading and its class."""
    heads = [element("th", name, class_="number" if kind == "number" else None) for name, kind in columns]
    table = element("table", element("thead", element("tr", heads)), element("tbody", *rows))
    return element("div", table, class_="scroll")


def row(columns: Sequence[tuple[str, str]], *cells: Content, look: str | None = None) -> Markup:
    made = [element("td", cell, class_=kind or None) for (_, kind), cell in zip(columns, cells, strict=True)]
    return element("tr", made, class_=look)


def empty(words: str, look: str = "") -> Markup:
    return element("p", words, class_=f"empty {look}".rstrip())
