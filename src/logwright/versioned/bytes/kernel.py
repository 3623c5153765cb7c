"""The hot loops: compiled where they were built, those of `codec.py` elsewhere; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import codec as _kernel
    from . import codec as _packing
    from . import codec as _replay
else:
    from . import _kernel, _packing, _replay

Latest = _replay.Latest
columns = _kernel.columns
entries = _kernel.entries
pack = _packing.pack
pack_encoded = _kernel.pack_encoded
pack_entry = _kernel.pack_entry
spans = _kernel.spans
walk = _kernel.walk
