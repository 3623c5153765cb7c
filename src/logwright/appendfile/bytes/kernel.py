"""The hot loops: the compiled kernel where it was built, the codec elsewhere. Both answer the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the plain one although the kernel is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.twins import bring

__all__ = [
    "COMPILED",
    "AppendBuffer",
    "Gatherer",
    "Run",
    "check_columns",
    "columns",
    "find_chain",
    "find_checkpoint",
    "pack",
    "payloads",
    "pieces",
    "records",
    "spans",
    "turns",
    "walk",
]

if TYPE_CHECKING:
    from .codec import (
        AppendBuffer,
        Gatherer,
        Run,
        check_columns,
        columns,
        find_chain,
        find_checkpoint,
        pack,
        payloads,
        pieces,
        records,
        spans,
        turns,
        walk,
    )

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_kernel": "codec"}, __all__)
