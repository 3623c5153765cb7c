"""The hot loops: those of the compiled kernel if it was built, else those of `codec.py`; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import codec as _kernel
else:
    from . import _kernel

AppendBuffer = _kernel.AppendBuffer
BatchBuilder = _kernel.BatchBuilder
columns = _kernel.columns
copy_adds = _kernel.copy_adds
find_add = _kernel.find_add
operations = _kernel.operations
pack = _kernel.pack
spans = _kernel.spans
effects = _kernel.effects
walk = _kernel.walk
