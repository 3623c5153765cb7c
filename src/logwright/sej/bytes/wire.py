"""The hub's wire: messages of segments <-> protobuf, by the kernel where it was built, else in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.twins import bring
from .protobuf import Received, bytes_field, number_field

__all__ = ["COMPILED", "Received", "bytes_field", "from_wire", "number_field", "to_wire"]

if TYPE_CHECKING:
    from .protobuf import from_wire, to_wire

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_protobuf": "protobuf"}, ("from_wire", "to_wire"))
