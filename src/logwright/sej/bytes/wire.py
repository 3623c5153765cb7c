"""The messages of segments as the hub sends them: compiled where that was built, `protobuf.py` elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.compiled import COMPILED
from . import protobuf

if TYPE_CHECKING or not COMPILED:
    from . import protobuf as _protobuf
else:
    from . import _protobuf

Received = protobuf.Received
bytes_field = protobuf.bytes_field
from_wire = _protobuf.from_wire
number_field = protobuf.number_field
to_wire = _protobuf.to_wire
