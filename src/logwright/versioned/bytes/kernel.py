"""The hot loops: the compiled kernel where it was built, the codec elsewhere. Both answer the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the codec although the kernel is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.twins import bring

__all__ = ["COMPILED", "Latest", "columns", "entries", "pack", "pack_encoded", "pack_entry", "spans", "walk"]

if TYPE_CHECKING:
    from .codec import Latest, columns, entries, pack, pack_encoded, pack_entry, spans, walk

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_kernel": "codec", "_replay": "codec", "_packing": "codec"}, __all__)
