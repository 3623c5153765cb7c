"""The table of a store: the compiled one where it was built, the one in Python elsewhere. Both do the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the one in Python although the other is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.twins import bring

__all__ = ["COMPILED", "Moves", "Table"]

if TYPE_CHECKING:
    from .table import Moves, Table

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_store": "table"}, __all__)
