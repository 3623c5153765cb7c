"""Reading and writing BONJSON: the compiled kernel where it was built, the codec elsewhere. Both answer the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the codec although the kernel is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .codec import decode, decode_prefix, encode, size_of

    COMPILED = True
elif os.environ.get("LOGWRIGHT_PURE"):
    from .codec import decode, decode_prefix, encode, size_of

    COMPILED = False
else:
    try:
        from ._kernel import decode, decode_prefix, encode, size_of

        COMPILED = True
    except ImportError:
        from .codec import decode, decode_prefix, encode, size_of

        COMPILED = False

__all__ = ["COMPILED", "decode", "decode_prefix", "encode", "size_of"]
