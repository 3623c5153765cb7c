"""The hot loops: compiled where they were built, those of `codec.py` elsewhere; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import codec as _kernel
else:
    from . import _kernel

AppendBuffer = _kernel.AppendBuffer
BatchBuilder = _kernel.BatchBuilder
check_columns = _kernel.check_columns
columns = _kernel.columns
find_head = _kernel.find_head
messages = _kernel.messages
spans = _kernel.spans
walk = _kernel.walk
