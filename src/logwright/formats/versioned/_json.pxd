"""What the kernels of this format use of _json.pyx: a value of BONJSON as JSON."""

from ._growing cimport Growing
from .bonjson._kernel cimport Source


cdef int append_json(
    Growing *growing, Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end
) except -1
