"""The live page: `logwright web ROOT` serves journals to a browser while their writers run, and changes nothing.

A request passes `guard.py`, which decides who may ask, and is answered by a function of `api.py` in a thread.
`catalog.py` knows the journals, `outline.py` their rows; `records.py`, `models.py`, `queries.py` and `checks.py` read
them. `live.py` sends what is appended to all browsers. The page itself is in `static/`.
"""

from __future__ import annotations

from .app import WebServer, application
from .guard import Guard

__all__ = ["Guard", "WebServer", "application"]
