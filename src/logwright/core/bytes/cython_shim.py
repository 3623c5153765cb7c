"""A stand-in for the module `cython`, which is needed to build logwright but not to run it.

A module that runs interpreted and compiled from one source imports `cython`, or this module as `cython` if that fails
with ModuleNotFoundError. `setup.py` compiles `table.py` as `_table`, with the C types declared in `_table.pxd`.
Functions that the `.pxd` defines in C are defined in Python in a block `if not cython.compiled`.
"""

from __future__ import annotations

from typing import Final

compiled: Final = False
"""Whether the module is compiled. The compiler replaces this constant."""
