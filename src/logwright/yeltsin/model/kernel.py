"""Changes of mapped pages: compiled if that was built, otherwise `changes.py`; see core/bytes/compiled.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import changes as _changes
else:
    from . import _changes

Changes = _changes.Changes
Ending = _changes.Ending
modify_at_once = _changes.modify_at_once
