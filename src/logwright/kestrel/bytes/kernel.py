"""The hot loops: compiled where they were built, `codec.py` and `replay.py` elsewhere; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from ..model.replay import Replay as Replay
    from . import codec as _kernel
else:
    from ..model._replay import Replay as Replay
    from . import _kernel

AppendBuffer = _kernel.AppendBuffer
Gatherer = _kernel.Gatherer
columns = _kernel.columns
find_add = _kernel.find_add
operations = _kernel.operations
pack = _kernel.pack
spans = _kernel.spans
turns = _kernel.turns
walk = _kernel.walk
