"""The compiled lane if it was built, else `lane.py`; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import lane as _lane
else:
    from . import _lane

WAITING = _lane.WAITING
CHANGING = _lane.CHANGING
ANSWERING = _lane.ANSWERING
UNREAD = _lane.UNREAD
CLOSING = _lane.CLOSING
BLOCKED = _lane.BLOCKED
ENDED = _lane.ENDED
PAUSED = _lane.PAUSED
NO_TOKEN = _lane.NO_TOKEN
GENERAL = _lane.GENERAL
Lane = _lane.Lane
Line = _lane.Line
send_all = _lane.send_all
