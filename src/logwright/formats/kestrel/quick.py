"""The hot loops of the queue: the compiled ones where they were built, `tally.py` and `shelf.py` elsewhere.

Both answer the same. `COMPILED` says which they are; LOGWRIGHT_PURE=1 chooses the plain ones, as for `kernel.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .shelf import Shelf
    from .tally import Tally, copy_adds

    COMPILED = True
elif os.environ.get("LOGWRIGHT_PURE"):
    from .shelf import Shelf
    from .tally import Tally, copy_adds

    COMPILED = False
else:
    try:
        from ._shelf import Shelf
        from ._tally import Tally, copy_adds

        COMPILED = True
    except ImportError:
        from .shelf import Shelf
        from .tally import Tally, copy_adds

        COMPILED = False

__all__ = ["COMPILED", "Shelf", "Tally", "copy_adds"]
