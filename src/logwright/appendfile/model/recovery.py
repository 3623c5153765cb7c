"""Recovery: the segments that were not checked when a journal was opened.

    with Writer("orders", recovering=True) as writer:
        for segment in writer.recovery():
            for record in segment.records: ...

Segments are returned in the order in which they were written; `complete` says that a checkpoint has closed a segment
and that nothing of it is missing. Checked segments are never returned. The journal can be written during the walk.

At the end of the walk everything that was appended is synced, and the old files are removed, all at once. A crash
before that, or a walk that is not finished, changes nothing: the next opening returns the same segments, and after them
the records appended since. The old files are those that existed when the journal was opened: a generation that is begun
during the walk belongs to the next one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.io.disk import File
from ...errors import DamagedJournal, Gap, LogwrightError
from ..bytes.layout import MAX_RECORD_BYTES, Done
from ..files.boundaries import GenerationEnd, lost_end, pair_of
from ..files.cursor import Cursor, judge
from ..files.files import JournalFile, list_files
from ..files.opening import forget_done, remove_done
from ..files.reader import generations, segments_of
from .replay import Segment, Segments

if TYPE_CHECKING:
    from ..files.writer import Writer


logger = logging.getLogger("logwright.appendfile")

_STEP_BYTES: Final = 1 << 20
"""The size of one read: it fits the cache of a processor."""
assert _STEP_BYTES >= MAX_RECORD_BYTES
_MOST_HELD: Final = 128
"""The most files that are held open."""
_ROOM_BYTES: Final = 64 << 20
"""With this much free space the old files need not be removed at once."""


class Recovery(Iterator[Segment]):
    """The segments that were not checked, once. Damage is handled by `mode` as in `Reader`.

    In the modes other than `failfast` a segment that has lost records has `complete=False`. If ids decrease, the later
    segments are returned too, although they may have been checked: it is unknown which of the ids is wrong.
    """

    def __init__(self, writer: Writer, *, mode: Mode = "failfast") -> None:
        self.mode = check_mode(mode)
        self.damages: list[Damage] = []
        """The damage that was skipped, in the other modes; and a torn tail, in all modes."""
        self._writer = writer
        self._older = writer.older
        self._error: BaseException | None = None
        self._has_bytes = False
        self._steps: Iterator[list[Segment]] = self._each_step()
        self._ready: Iterator[Segment] = iter(())
        self._room = memoryview(b"")
        self._with_data: JournalFile | None = None
        self._held: list[File] = []
        self._earlier: GenerationEnd | None = None
        """The end of the generation before."""

    def __next__(self) -> Segment:
        while True:
            for segment in self._ready:
                return segment
            try:
                found = self.step()
                self._ready = iter(found or ())
            except BaseException as error:  # an interrupt after the step would lose what it found
                self._error = error
                raise
            if found is None:
                self.free_old_files()
                raise StopIteration

    def step(self) -> list[Segment] | None:
        """The segments that the next part of a file completes, perhaps none; None at the end.

        The caller calls `free_old_files` then. After an error the old files stay, and each call raises it again.
        """
        if self._error is not None:
            raise self._error
        try:
            return next(self._steps, None)
        except BaseException as error:
            self._error = error
            raise

    def free_old_files(self) -> None:
        """Let the system have the space of the old files, which may take it as long as all of the walk."""
        while self._held:
            with contextlib.suppress(LogwrightError):  # they are gone all the same
                self._held.pop().close()

    def _each_step(self) -> Iterator[list[Segment]]:
        for files in generations(self._older):
            yield from self._each_of(files)
        try:
            self._finish()
        except BaseException:
            self.free_old_files()
            raise

    def _each_of(self, files: list[JournalFile]) -> Iterator[list[Segment]]:
        checked, _ = pair_of(self._writer.disk, files)
        if any(last >= checked for _, last in files[0].lost):
            logger.warning("%s: records are known to be lost: see logwright verify", self._writer.directory)
        parts = Segments(files[0].put_aside)
        for source in files:
            size = self._writer.disk.file_size(source.path)
            parts.begin_file(source.lost, is_doubtful=source.size_problem(size) is not None)
            cursor: Cursor | None = None
            continues = True
            while continues:
                found: list[Segment] = []
                cursor = self._opened(source, cursor)
                continues = self._read_on(cursor, parts, found)
                yield [segment for segment in found if segment.id >= checked or parts.went_back]
        self._earlier = GenerationEnd.of(files, parts.pair, parts.is_exact, self._earlier)
        last = parts.finish()
        if last is not None and (last.id >= checked or parts.went_back):
            yield [last]

    def _opened(self, source: JournalFile, cursor: Cursor | None) -> Cursor:
        """A cursor with its file open. It reads into memory which is used again at once: that is the quickest."""
        file = self._writer.disk.open(source.path, "read")
        if cursor is not None:
            cursor.file = file
            return cursor
        try:
            size = file.size()
            self._has_bytes |= size > 0
            wanted = min(_STEP_BYTES, size + 1)  # so that the end of a small file is seen by the first read
            if len(self._room) < wanted:
                self._room = memoryview(bytearray(wanted))
        except BaseException:
            file.close()
            raise
        return Cursor(file, source, room=self._room, disk=self._writer.disk)

    def _read_on(self, cursor: Cursor, parts: Segments, found: list[Segment]) -> bool:
        """Read one step, into what was found; whether there is another one.

        No file is open between two steps, because an unfinished walk would not close it.
        """
        source, start = cursor.source, cursor.position
        try:
            gap = self._lost_end(cursor, parts) if start == 0 else None
            if gap is not None:
                self._report(gap)
                parts.lose()
            while cursor.position - start < _STEP_BYTES:
                chunk = cursor.read()
                if chunk is not None:
                    found += segments_of(chunk, parts)
                    if self._with_data is not source and chunk.has_data():
                        self._with_data = source
                    continue
                damage, continues = judge(cursor)
                if damage is None:
                    return False
                self._report(damage)
                parts.lose()
                if not continues:
                    return False
            return True
        finally:
            cursor.file.close()

    def _lost_end(self, cursor: Cursor, parts: Segments) -> Damage | None:
        """What is missing before a file, by its first ids and the last ones before it."""
        if parts.pair is None and self._earlier is not None:
            return self._earlier.lost_end(cursor.file, cursor.source)
        return lost_end(cursor.file, cursor.source, parts.pair, is_exact=parts.is_exact)

    def _report(self, damage: Damage) -> None:
        if damage.kind == "torn_tail":
            logger.warning("%s: left out", damage)
        elif self.mode == "failfast":
            raise (Gap if damage.kind == "gap" else DamagedJournal)(damage.file, damage.start, damage.reason)
        self.damages.append(damage)

    def _finish(self) -> None:
        """Sync what was appended during the walk, and remove the old files."""
        writer = self._writer
        writer.sync()
        if not self._older:
            return
        self._hold()
        writer.end_recovery(Done(*writer.began, *self._last_data()))
        remove_done(writer.disk, writer.directory)
        if self._has_bytes:  # else nothing has made the room for it: the name of what is done with keeps the ids
            writer.begin()
            writer.sync()
        forget_done(writer.disk, writer.directory)

    def _hold(self) -> None:
        """Hold the old files open: then removing them takes away their names, and `free_old_files` the rest."""
        writer = self._writer
        with contextlib.suppress(LogwrightError):  # nothing depends on it
            if writer.disk.free_bytes(writer.directory) >= _ROOM_BYTES:
                for source in self._older[:_MOST_HELD]:
                    self._held.append(writer.disk.open(source.path, "read"))

    def _last_data(self) -> tuple[int, int]:
        """The end of the last file with data; if there is none, that of an earlier recovery, if any."""
        writer, source = self._writer, self._with_data
        if source is not None:
            return source.file_id, writer.disk.file_size(source.path)
        first = self._older[0].file_id
        earlier = [done for done in list_files(writer.disk, writer.directory).done if done.file_id == first]
        return (earlier[-1].last_file, earlier[-1].last_position) if earlier else (first, 0)
