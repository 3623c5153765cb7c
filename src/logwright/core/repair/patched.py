"""PatchedFile: a file with some bytes replaced in memory, to plan a repair that depends on earlier patches."""

from __future__ import annotations

from bisect import bisect_left, insort

from ...errors import WrongUse
from ..io.disk import File, FileView, skip_hole


class PatchedFile(FileView):
    """A read-only `File` with some bytes replaced. No patch is longer than `MOST_BYTES`."""

    MOST_BYTES = 8

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._patches: list[tuple[int, bytes]] = []

    def add(self, position: int, data: bytes) -> None:
        """Replace bytes at a position."""
        if len(data) > self.MOST_BYTES:
            raise WrongUse(f"{len(data)} bytes are too many for one patch")
        insort(self._patches, (position, data))

    def with_patch(self, position: int, data: bytes) -> PatchedFile:
        """A copy with one more patch."""
        other = PatchedFile(self.file)
        other._patches = list(self._patches)
        other.add(position, data)
        return other

    def read_at(self, position: int, size: int) -> bytes:
        data = bytearray(self.file.read_at(position, size))
        self._patch(position, memoryview(data))
        return bytes(data)

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = self.file.read_into(position, buffer)
        self._patch(position, buffer[:count])
        return count

    def data_from(self, position: int) -> int:
        found = skip_hole(self.file, position, self.size())
        following = bisect_left(self._patches, (position - self.MOST_BYTES, b""))
        return max(position, min([found, *(at for at, _ in self._patches[following : following + 1])]))

    def _patch(self, position: int, view: memoryview) -> None:
        end = position + len(view)
        for number in range(bisect_left(self._patches, (position - self.MOST_BYTES, b"")), len(self._patches)):
            at, data = self._patches[number]
            if at >= end:
                break
            first, last = max(at, position), min(at + len(data), end)
            if first < last:
                view[first - position : last - position] = data[first - at : last - at]
