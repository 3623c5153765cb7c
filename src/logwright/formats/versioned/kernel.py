"""The hot loops: the compiled kernel where it was built, the codec elsewhere. Both answer the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the codec although the kernel is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .codec import Latest, columns, entries, pack_encoded, pack_entry, spans, walk

    COMPILED = True
elif os.environ.get("LOGWRIGHT_PURE"):
    from .codec import Latest, columns, entries, pack_encoded, pack_entry, spans, walk

    COMPILED = False
else:
    try:
        from ._kernel import columns, entries, pack_encoded, pack_entry, spans, walk
        from ._replay import Latest

        COMPILED = True
    except ImportError:
        from .codec import Latest, columns, entries, pack_encoded, pack_entry, spans, walk

        COMPILED = False

__all__ = ["COMPILED", "Latest", "columns", "entries", "pack_encoded", "pack_entry", "spans", "walk"]
