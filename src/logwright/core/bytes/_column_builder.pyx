# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""ColumnBuilder: the base of every kernel's BatchBuilder, which puts records into the columns of one batch: see column_builder.py.

A kernel has a struct of pointers, one for each column, NULL for those that were not requested, and a loop over records
that releases the GIL:

    cdef class BatchBuilder(ColumnBuilder):
        def __init__(self, want, rows, data_bytes, allocate=bytearray):
            self._begin(Columns(0), rows, {"data": data_bytes}, allocate)
            self._room.kinds = <uint8_t *>self._numbers(want & KINDS, "kinds", 1)
            self._bytes(want & DATA, "data", "data_ends", &self._room.data)

        def add(self, buffer, start, stop, count):
            self._check_ours()
            self._busy = True                # the GIL is released: another thread must not add meanwhile
            with nogil:
                answer = c_gather(&self._room, ...)
            self._busy = False

        def take(self):
            return self._leave(self._room.row)
"""

from ._buffers cimport View

from ...errors import TooLarge, WrongUse


cdef class ColumnBuilder:
    """Columns that are being filled. They own their memory until they are taken."""

    cdef int _begin(self, object columns, Py_ssize_t rows, dict room, object allocate) except -1:
        """Columns for `rows` rows; `room` is the capacity in bytes of each column of bytes, by name."""
        if self._views is not None:
            raise WrongUse("these columns were already begun")  # and their memory may be in use
        if not 0 <= rows <= 0x7FFFFFFF:
            raise TooLarge(f"one batch of columns holds less than 2 GiB of each column, and not {rows} rows")
        for name, size in room.items():
            if not 0 <= size <= 0x7FFFFFFF:
                raise TooLarge(f"one batch of columns holds less than 2 GiB of {name}")
        self._views = []
        self._columns = columns
        self._allocate = allocate
        self._byte_room = room
        self._rows = rows
        return 0

    cdef unsigned char *_numbers(self, bint wanted, str name, Py_ssize_t width) except? NULL:
        """The memory of a column of numbers of `width` bytes each; NULL if it is not wanted."""
        return self._allocated(name, self._rows * width) if wanted else NULL

    cdef int _bytes(self, bint wanted, str name, str ends_name, BytesColumn *column) except -1:
        """The memory of a column of bytes and of their ends; none if it is not wanted."""
        column.ends = NULL
        column.used = 0
        if wanted:
            column.room = self._byte_room[name]
            column.data = self._allocated(name, column.room)
            column.ends = <int32_t *>self._allocated(ends_name, (self._rows + 1) * 4)
            column.ends[0] = 0
        return 0

    cdef unsigned char *_allocated(self, str name, Py_ssize_t size) except? NULL:
        buffer = self._allocate(size)
        setattr(self._columns, name, buffer)
        cdef View view = View(buffer, True)
        if view.size < size:
            raise WrongUse(f"a buffer of {size} bytes was asked for, not of {view.size}")
        self._views.append(view)
        return <unsigned char *>view.data

    cdef int _check_ours(self) except -1:
        """Raise if these columns have been taken, or another thread is adding to them."""
        if self._columns is None:
            raise WrongUse("these columns have been taken")
        if self._busy:
            raise WrongUse("another thread is adding to these columns")
        return 0

    cdef object _leave(self, Py_ssize_t count):
        """Hand over the columns, of which `count` rows are filled."""
        self._check_ours()
        columns, self._columns = self._columns, None
        columns.count = count
        self._views = []
        return columns
