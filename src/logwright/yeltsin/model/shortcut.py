"""The short way of transactions that only modify pages: compiled where it was built, plain elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.twins import bring

__all__ = ["COMPILED", "Changes", "Ending", "modify_at_once"]

if TYPE_CHECKING:
    from .changes import Changes, Ending, modify_at_once

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_changes": "changes"}, __all__)
