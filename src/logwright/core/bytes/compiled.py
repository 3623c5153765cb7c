"""COMPILED: whether the compiled kernels are used. It is decided once, for the whole package.

They are used if they were built, unless LOGWRIGHT_PURE=1 selects plain Python. `setup.py` builds all of them or none. A
module with hot loops chooses like this:

    if TYPE_CHECKING or not COMPILED:
        from . import codec as _kernel
    else:
        from . import _kernel

    columns = _kernel.columns
    walk = _kernel.walk

Both do the same; the tests compare them.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Final

COMPILED: Final = not os.environ.get("LOGWRIGHT_PURE") and find_spec(f"{__package__}._buffers") is not None
