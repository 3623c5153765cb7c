# cython: language_level=3
"""Slot of table.py, compiled: a class of a `.py` source can neither have a list of free objects nor go without GC."""

cimport cython


@cython.final
@cython.no_gc  # what it holds has no way back to it
@cython.freelist(64)
cdef class Slot:
    """See table.Slot."""
