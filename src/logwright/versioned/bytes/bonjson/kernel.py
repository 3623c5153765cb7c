"""The hot loops: compiled where they were built, those of `codec.py` elsewhere; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import codec as _kernel
else:
    from . import _kernel

decode = _kernel.decode
decode_prefix = _kernel.decode_prefix
encode = _kernel.encode
size_of = _kernel.size_of
