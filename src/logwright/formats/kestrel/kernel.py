"""The hot loops: the compiled kernel where it was built, codec and replay elsewhere. Both answer the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the plain ones although the kernel is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.twins import bring

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

if TYPE_CHECKING:
    from .codec import AppendBuffer, Gatherer, columns, find_add, operations, pack, spans, turns, walk
    from .replay import Replay

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_kernel": "codec", "_replay": "replay"}, __all__)
