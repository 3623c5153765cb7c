"""Messages of sej and records of appendfile, with files so small that they are rotated often."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

from .. import appendfile, sej
from ..core.io.disk import Disk
from ..core.read.report import Report
from .exercises import Numbered, Task, Wrong, data_of

FILE_BYTES: Final = 8192
SEGMENT_RECORDS: Final = 20
"""The number of records of a segment of appendfile."""
UNCHECKED_SEGMENTS: Final = 30
"""The number of closed segments that stay: older ones are checked, and their files removed."""


class SejExercise(Numbered):
    """A sej writer; every other journal has checksums."""

    format = "sej"
    buffers: ClassVar[bool] = True

    def open(self, task: Task, disk: Disk) -> sej.Writer:
        checksums = task.seed % 2 == 0
        return sej.Writer(task.home, sync=task.policy, segment_size=FILE_BYTES, checksums=checksums, disk=disk)

    def write(self, journal: Any, task: Task, number: int) -> None:
        journal.append(data_of(task.seed, number), b"key %d" % (number % 11), number % 256, number)

    def verify(self, home: Path) -> Report:
        with sej.Reader(home) as reader:
            return reader.verify()

    def count(self, home: Path, task: Task) -> int:
        number = -1
        with sej.Reader(home) as reader:
            for number, message in enumerate(reader):
                found = message.offset, message.timestamp, message.type, message.key, message.value
                if found != (number, number, number % 256, b"key %d" % (number % 11), data_of(task.seed, number)):
                    raise Wrong(f"message {number} is not the one that was written: {message}")
        return number + 1

    def recount(self, home: Path, task: Task, count: int) -> None:
        with sej.Writer(home) as writer:
            found = writer.next_offset
        if found != count or self.count(home, task) != count:
            raise Wrong(f"{count} messages were there before it was opened for writing, and {found} afterwards")


class AppendfileExercise(Numbered):
    """A writer of appendfile that closes and checks segments, so that old files are removed."""

    format = "appendfile"
    buffers: ClassVar[bool] = True

    def open(self, task: Task, disk: Disk) -> appendfile.Writer:
        return appendfile.Writer(task.home, sync=task.policy, file_bytes=FILE_BYTES, disk=disk)

    def write(self, journal: Any, task: Task, number: int) -> None:
        if number % SEGMENT_RECORDS == 0 and journal.has_data:
            journal.register_checkpoint()
        if journal.current - journal.checked > UNCHECKED_SEGMENTS:
            journal.check_checkpoint()
        journal.append(data_of(task.seed, number))

    def verify(self, home: Path) -> Report:
        with appendfile.Reader(home) as reader:
            return reader.verify()

    def count(self, home: Path, task: Task) -> int:
        with appendfile.Reader(home) as reader:
            found = [record.data for record in reader if isinstance(record, appendfile.Data)]
        if not found:
            return 0
        first = int(found[0].split(b" ")[0])
        for number, data in enumerate(found, first):
            if data != data_of(task.seed, number):
                raise Wrong(f"record {number} is not the one that was written: {data!r}")
        count = first + len(found)
        checked = max(0, (count - 1) // SEGMENT_RECORDS - UNCHECKED_SEGMENTS)
        if first > (checked + 1) * SEGMENT_RECORDS:  # the next one may have been checked already
            raise Wrong(f"the records before {first} are gone, of segments that were not checked")
        return count

    def recount(self, home: Path, task: Task, count: int) -> None:
        appendfile.Writer(home).close()
        found = self.count(home, task)
        if found != count:
            raise Wrong(f"{count} records were there before it was opened for writing, and {found} afterwards")
