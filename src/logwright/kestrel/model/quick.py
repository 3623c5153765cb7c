"""The hot loops of the queue: the compiled ones where they were built, `tally.py` and `shelf.py` elsewhere.

Both answer the same. `COMPILED` says which they are; LOGWRIGHT_PURE=1 chooses the plain ones, as for `kernel.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.twins import bring

__all__ = ["COMPILED", "Shelf", "Tally", "copy_adds"]

if TYPE_CHECKING:
    from .shelf import Shelf
    from .tally import Tally, copy_adds

    COMPILED = True
else:
    COMPILED = bring(__name__, {"_shelf": "shelf", "_tally": "tally"}, __all__)
