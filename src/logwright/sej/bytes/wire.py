"""The hub's wire: messages of segments <-> protobuf, compiled where that was built; see core/bytes/compiled.py."""

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
