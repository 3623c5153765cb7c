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
Run = _kernel.Run
check_columns = _kernel.check_columns
columns = _kernel.columns
find_chain = _kernel.find_chain
find_checkpoint = _kernel.find_checkpoint
follow = _kernel.follow
pack = _kernel.pack
payloads = _kernel.payloads
pieces = _kernel.pieces
records = _kernel.records
spans = _kernel.spans
checkpoints = _kernel.checkpoints
walk = _kernel.walk
