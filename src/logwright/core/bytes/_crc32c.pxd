"""Checksums for other kernels, without calling Python: see _crc32c.pyx."""

from libc.stdint cimport uint32_t


cdef uint32_t checksum_of_bytes(const unsigned char *data, size_t size, uint32_t value) noexcept nogil
