"""Reading and writing BONJSON: the compiled kernel where it was built, the codec elsewhere. Both answer the same.

`COMPILED` says which one it is. Set LOGWRIGHT_PURE=1 to use the codec although the kernel is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.bytes.twins import bring

__all__ = ["COMPILED", "decode", "decode_prefix", "encode", "size_of"]

if TYPE_CHECKING:
    from .codec import decode, decode_prefix, encode, size_of

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_kernel": "codec"}, __all__)
