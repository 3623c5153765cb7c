"""The table of a store: compiled if it was built, otherwise `table.py`; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import table as _table
else:
    from . import _table

Moves = _table.Moves
Table = _table.Table
