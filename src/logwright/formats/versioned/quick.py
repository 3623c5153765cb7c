"""The table of a store: the compiled one where it was built, the one in Python elsewhere. Both do the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the one in Python although the other is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .table import Moves, Table

    COMPILED = True
elif os.environ.get("LOGWRIGHT_PURE"):
    from .table import Moves, Table

    COMPILED = False
else:
    try:
        from ._store import Moves, Table

        COMPILED = True
    except ImportError:
        from .table import Moves, Table

        COMPILED = False

__all__ = ["COMPILED", "Moves", "Table"]
