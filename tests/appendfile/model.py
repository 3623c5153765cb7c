"""A journal without files: the expected content after each call, as simple as possible."""

from __future__ import annotations

from pathlib import Path

from logwright.appendfile.files.reader import Reader
from logwright.appendfile.model.replay import Segment
from logwright.core.io.disk import Disk
from logwright.errors import NotFound

View = list[tuple[int, tuple[bytes, ...], bool]]
"""Segments that are not checked: id, records, and whether they are complete."""


class Model:
    """The segments that are not checked: `old` ones from before the journal was opened, and newer ones.

    `aside` are the segments of a generation before the one that is being written.
    """

    def __init__(self) -> None:
        self.old: View = []
        self.aside: View = []
        self.closed: list[tuple[bytes, ...]] = []
        self.open: list[bytes] = []
        self.current = 0

    def append(self, data: bytes) -> None:
        self.open.append(data)

    def register(self) -> int:
        if self.open:
            self.closed.append(tuple(self.open))
            self.open = []
            self.current += 1
        return self.current

    @property
    def checked(self) -> int:
        return self.current - len(self.closed)

    def check(self) -> None:
        self.closed.pop(0)

    def reopen(self) -> None:
        """Open it again: everything that is not checked is old."""
        self.old = self.view()
        self.aside, self.closed, self.open = [], [], []

    def begin_generation(self) -> None:
        """Records appended since it was opened are set aside, and no reader has received them."""
        self.aside = self.view()[len(self.old) :]
        self.closed, self.open = [], []

    def consume(self) -> None:
        """The iteration over the old records has ended."""
        self.old = []

    def view(self) -> View:
        found = [*self.old, *self.aside]
        found += [(self.checked + row, records, True) for row, records in enumerate(self.closed)]
        return found + ([(self.current, tuple(self.open), False)] if self.open else [])


def view_of(segments: list[Segment]) -> View:
    """The segments that were read, in the form of the model."""
    return [(segment.id, tuple(segment.records), segment.complete) for segment in segments if not segment.checked]


def read_view(disk: Disk, home: Path) -> View:
    """The segments of a journal on a disk, in the form of the model."""
    try:
        return view_of(Reader(home, disk=disk).segments(mode="failfast"))
    except NotFound:
        return []
