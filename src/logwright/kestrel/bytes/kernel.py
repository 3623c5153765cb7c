"""The hot loops: the compiled kernel where it was built, codec and replay elsewhere. Both answer the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the plain ones although the kernel is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.twins import bring

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
    from ..model.replay import Replay
    from .codec import AppendBuffer, Gatherer, columns, find_add, operations, pack, spans, turns, walk

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_kernel": "codec", "..model._replay": "..model.replay"}, __all__)
