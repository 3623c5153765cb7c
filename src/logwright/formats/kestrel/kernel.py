"""The hot loops: the compiled kernel where it was built, codec and replay elsewhere. Both answer the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the plain ones although the kernel is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .codec import AppendBuffer, Gatherer, columns, find_add, operations, pack, spans, turns, walk
    from .replay import Replay

    COMPILED = True
elif os.environ.get("LOGWRIGHT_PURE"):
    from .codec import AppendBuffer, Gatherer, columns, find_add, operations, pack, spans, turns, walk
    from .replay import Replay

    COMPILED = False
else:
    try:
        from ._kernel import AppendBuffer, Gatherer, columns, find_add, operations, pack, spans, turns, walk
        from ._replay import Replay

        COMPILED = True
    except ImportError:
        from .codec import AppendBuffer, Gatherer, columns, find_add, operations, pack, spans, turns, walk
        from .replay import Replay

        COMPILED = False

__all__ = [
    "COMPILED",
    "AppendBuffer",
    "Gatherer",
    "Replay",
    "columns",
    "find_add",
    "operations",
    "pack",
    "spans",
    "turns",
    "walk",
]
