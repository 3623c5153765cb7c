"""The lane: compiled if that was built, otherwise `lane.py`; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import lane as _lane
else:
    from . import _lane

Lane = _lane.Lane
Line = _lane.Line
send_all = _lane.send_all
