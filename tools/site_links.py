"""A hook of MkDocs: links from pages to files outside docs/ lead to the repository, for the site has only the pages."""

from __future__ import annotations

import re
from typing import Any

REPOSITORY = "https://github.com/logwright/logwright/blob/main/"
_OUTSIDE = re.compile(r"\]\(\.\./(?=[A-Z]|examples/|tests/|src/)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called for each page; `../` leaves docs/ only on pages that are not in a folder of it."""
    return markdown if "/" in page.file.src_uri else _OUTSIDE.sub(f"]({REPOSITORY}", markdown)
