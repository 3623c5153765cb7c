"""The hot loops: compiled where they were built, those of `codec.py` elsewhere; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from .codec import decode, decode_prefix, encode, size_of
else:
    from ._kernel import decode, decode_prefix, encode, size_of

__all__ = ["decode", "decode_prefix", "encode", "size_of"]
