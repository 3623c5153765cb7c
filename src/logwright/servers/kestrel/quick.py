"""What is done for every request: compiled where that was built, by `lane.py` elsewhere.

`COMPILED` says which it is; LOGWRIGHT_PURE=1 chooses the plain one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.twins import bring

__all__ = ["COMPILED", "Lane", "Line", "send_all"]

if TYPE_CHECKING:
    from .lane import Lane, Line, send_all

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_lane": "lane"}, __all__)
