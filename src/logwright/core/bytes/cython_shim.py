"""A stand-in for the module `cython`, which is needed to build logwright, and not to run it.

A module that runs interpreted and compiled from one source imports cython, and this as `cython` where that fails with
ModuleNotFoundError. `setup.py` compiles it under its own name with an underscore, `table.py` as `_table`, with the C
types that are declared in `_table.pxd`. What the `.pxd` defines in C, the source defines in Python in a block
`if not cython.compiled`.
"""

from __future__ import annotations

from typing import Final

compiled: Final = False
"""Whether this is compiled: in a compiled module the compiler replaces it."""
