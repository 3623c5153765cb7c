"""Reader: a journal opened for reading. It needs no lock, changes nothing, and works beside a writer.

The journal is all files of a directory: first those that a recovery has put aside, then those that are being written.
`records` returns objects, `scan` objects with their places, `chunks` the buffers that columns are made of, and
`segments` the segments. See `core/read/chunk_reader.py` for damage and for a torn tail of the last file, and
`cursor.py` for where reading continues after damage.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk, File
from ...core.read.chunk import POSITION_BITS
from ...core.read.chunk_reader import FilesReader
from ...core.read.chunk_reader import located as located_in
from ...core.read.report import Progress
from ...errors import HistoryUnavailable, NotFound, WrongUse
from ..bytes import kernel
from ..bytes.layout import LOCK_NAME, file_name, parse_name
from ..bytes.records import Record
from ..model.replay import Segment, Segments, difference
from . import check
from .boundaries import GenerationEnd, lost_end, note_beginnings
from .cursor import Chunk, Cursor, judge
from .files import Files, JournalFile, Listing, list_files, note_losses, wrong_names

ROW_FIELDS: Final = ("kind", "segment", "data", "checked", "current")
"""The columns of a table of records; no record has all of them."""


class Reader(FilesReader[Chunk, JournalFile, Record]):
    """The journal in a directory, or one file of it, opened for reading.

    A journal that was opened for writing, and never written to, has no files yet.
    """

    format = "appendfile"
    has_times = False
    batched_by: ClassVar[Mapping[str, Any]] = {"notes_lost": True}
    part_name = "journal"
    row_fields = ROW_FIELDS

    summarize = check.summarize
    verify = check.verify

    def __init__(self, path: Path | str, *, disk: Disk = REAL_DISK) -> None:
        self.path = Path(path)
        self.disk = disk
        self._single = not disk.is_directory(self.path)
        if not self.files() and not is_opened(disk, self.path):
            raise NotFound(f"{self.path}: no files of a journal are here")

    @property
    def part(self) -> str:
        """A journal has no parts."""
        return ""

    @property
    def directory(self) -> Path:
        """The directory that names of files are relative to."""
        return self.path.parent if self._single else self.path

    def listing(self) -> Listing:
        """The current files of the journal."""
        if not self._single:
            listing = list_files(self.disk, self.path)
            note_beginnings(self.disk, listing)
            return listing
        listing = Listing(self.directory)
        if self.disk.exists(self.path) and not self.disk.is_directory(self.path):
            file_id = parse_name(self.path.name) or 0
            is_last = not self.disk.exists(self.path.with_name(file_name(file_id + 1)))
            following = None if is_last else file_id + 1
            listing.files = [JournalFile(self.path.name, self.path, following, file_id)]
            note_losses(self.disk, listing)
        return listing

    def files(self) -> list[JournalFile]:
        """The files that count, oldest first."""
        return self.listing().files

    @property
    def first(self) -> int:
        """The number of the first record, or of the next one if there is none."""
        return self.listing().first_number

    def next_of(self, files: Files) -> int:
        """The number that the next record after these files will get."""
        return super().next_of(files) if files.files else self.listing().first_number

    # --- going through it -------------------------------------------------------------------------------------------

    def decoded(self, chunk: Chunk) -> list[Record]:
        """The records of a chunk."""
        return decoded(chunk)

    def snapshot_chunks(
        self,
        files: Files,
        start: int | None,
        stop: int | None,
        mode: Mode,
        progress: Progress | None = None,
        *,
        notes_lost: bool = False,
        **how: Any,
    ) -> Iterator[Chunk | Damage]:
        """The chunks of files that are open.

        With `notes_lost` their files know which segments damage has taken records out of, if `mode` reads past it.
        """
        lost: dict[int, tuple[tuple[int, int], ...]] = {}
        if notes_lost and mode != "failfast":
            lost = {each[0].generation: self.damaged_segments(files, each) for each in generations(files.files)}
        yield from self._report_lost(files, mode)
        for _, source, report in self.files_between(files, start, stop, progress):
            if start is None or start <= source.first_number:
                yield from self.report_names(source, mode)
            noted = replace(source, damaged=lost.get(source.generation, ()))
            yield from self.file_chunks(noted, files.file(source), start, stop, mode, report, **how)

    def damaged_segments(self, files: Files, generation: list[JournalFile]) -> tuple[tuple[int, int], ...]:
        """The segments of files of one generation that damage has taken records out of, each as a range of one."""
        parts = Segments()
        for source in generation:
            self._begin_file(files, source, parts, "dropmalformed")
            for item in self.file_chunks(source, files.file(source), None, None, "permissive"):
                if not isinstance(item, Damage):
                    for pair in zip(*item.checkpoints()[2:], strict=True):
                        parts.turn(*pair)
                elif item.kind != "torn_tail":
                    parts.lose()
            files.done_with(source)
        damaged = tuple((segment, segment) for segment in parts.all_damaged())
        before = generation[0].lost_before
        return damaged if before is None else (before, *damaged)

    def _begin_file(self, files: Files, source: JournalFile, parts: Segments, mode: Mode) -> None:
        """Let `parts` know that the next file begins, and whether something is missing before it."""
        gap = lost_end(files.file(source), source, parts.pair, is_exact=parts.is_exact)
        if gap is not None:
            list(self.report(gap, mode))
        if source.missing or gap is not None:
            parts.lose()
        lost = source.lost if source.lost_before is None else (*source.lost, source.lost_before)
        parts.begin_file(lost, is_doubtful=source.size_problem(files.file(source).size()) is not None)

    def _report_lost(self, files: Files, mode: Mode) -> Iterator[Damage]:
        """Report lost generations, if there is no file that shows them."""
        for gap in [] if files.files else self.missing():
            yield from self.report(gap, mode)

    def missing(self) -> list[Damage]:
        """The generations that are lost, if there is no file that shows them."""
        listing = self.listing()
        return [Damage(lost.place, 0, 0, lost.reason, "gap") for lost in ([] if listing.files else listing.lost)]

    def report_names(self, source: JournalFile, mode: Mode) -> Iterator[Damage]:
        """Report a problem with the id of a file."""
        for kind, reason in wrong_names(source):
            yield from self.report(Damage(source.name, 0, 0, reason, kind), mode)

    def file_chunks(
        self,
        source: JournalFile,
        file: File,
        start: int | None,
        stop: int | None,
        mode: Mode,
        report: Callable[[int], None] | None = None,
        *,
        at: int = 0,
        pair: tuple[int, int] | None = None,
    ) -> Iterator[Chunk | Damage]:
        """The chunks of one file; `at` is where a record begins, not after `start`, and `pair` the ids before it."""
        low, high = source.positions(start, stop)
        cursor = Cursor(file, source, at, pair=pair, disk=self.disk)
        yield from self.cursor_chunks(cursor, judge, low, high, mode, report)

    def find_place(self, text: str) -> int:
        """The record number of a place. A file that a recovery has put aside is also found by its old name."""
        name, separator, position = text.rpartition("@")
        file_id = parse_name(name)
        for source in [] if file_id is None else self.files():
            if source.file_id == file_id:
                name = source.name
        return super().find_place(f"{name}{separator}{position}")

    # --- segments ---------------------------------------------------------------------------------------------------

    def segments(self, at: int | None = None, *, mode: Mode = "dropmalformed") -> list[Segment]:
        """All existing segments, including checked ones: now, or before the record with the number `at`."""
        list(self.half_repaired(mode))
        with self.snapshot() as files:
            self._check_kept(files, at)
            list(self._report_lost(files, mode))
            found: list[Segment] = []
            earlier: GenerationEnd | None = None
            for generation in generations(files.files):
                parts = Segments(generation[0].put_aside)
                if at is None or generation[0].first_number < at:
                    self._begin_generation(files, generation[0], earlier, mode)
                segments = list(self._generation_segments(files, generation, at, mode, parts))
                earlier = GenerationEnd.of(generation, parts.pair, parts.is_exact, earlier)
                for segment in segments:
                    segment.checked = segment.id < parts.checked
                found += segments
            return found

    def _begin_generation(self, files: Files, source: JournalFile, earlier: GenerationEnd | None, mode: Mode) -> None:
        """Report what is wrong with the id of the first file of a generation, or missing before it."""
        list(self.report_names(source, mode))
        gap = None if earlier is None else earlier.lost_end(files.file(source), source)
        if gap is not None:
            list(self.report(gap, mode))

    def _generation_segments(
        self, files: Files, generation: list[JournalFile], at: int | None, mode: Mode, parts: Segments
    ) -> Iterator[Segment]:
        for source in generation:
            if at is not None and source.first_number >= at:
                break
            self._begin_file(files, source, parts, mode)
            for item in self.file_chunks(source, files.file(source), None, at, "permissive"):
                if isinstance(item, Damage):
                    list(self.report(item, mode))  # which raises, or not: a segment must know what it has lost
                yield from segments_of(item, parts)
            files.done_with(source)
        last = parts.finish()
        if last is not None:
            yield last

    def _check_kept(self, files: Files, at: int | None) -> None:
        """Raise `HistoryUnavailable` for a number in a file that is gone, `WrongUse` for one to come."""
        if at is None:
            return
        following = self.next_of(files)
        if not 0 <= at <= following:
            raise WrongUse(f"{self.path}: there is no record {place_of(at)}; the next one gets {place_of(following)}")
        if at >> POSITION_BITS not in {source.file_id for source in files.files} and at != following:
            raise HistoryUnavailable(f"{self.path}: what was at {place_of(at)} was checked, and its file removed")

    def state(self, at: int | None = None) -> dict[str, Any]:
        """The segments as JSON, now or before the record with the number `at`.

        Where some wait to be recovered all have a `generation`: another one may have the same id.
        """
        self.torn_tail = None
        found = self.segments(at, mode="permissive")
        if all(segment.generation is None for segment in found):
            return {"segments": [segment.as_json() for segment in found]}
        return {"segments": [{"generation": segment.generation, **segment.as_json()} for segment in found]}

    def diff(self, start: int, stop: int) -> dict[str, Any]:
        """The changes of segments between two numbers; see `replay.difference`."""
        self.torn_tail = None
        return difference(self.segments(start, mode="permissive"), self.segments(stop, mode="permissive"))

    def as_json(self, located: Located) -> dict[str, Any]:
        """A record as `dump --json` prints it."""
        return record_as_json(located)


def place_of(number: int) -> str:
    """The number of a record as people write it."""
    return f"{file_name(number >> POSITION_BITS)}@{number & (1 << POSITION_BITS) - 1}"


def is_opened(disk: Disk, directory: Path) -> bool:
    """Whether a writer has been in a directory, which may not have written anything yet."""
    lock = directory / LOCK_NAME
    return disk.exists(lock) and not disk.is_directory(lock)


# --- chunks to objects ----------------------------------------------------------------------------------------------


def decoded(chunk: Chunk) -> list[Record]:
    """The records of a chunk."""
    return kernel.records(chunk.data, chunk.start, chunk.stop, chunk.count, chunk.segment)


def located(chunk: Chunk) -> Iterator[Located]:
    """The records of a chunk with their places."""
    return located_in(chunk, decoded(chunk))


def record_as_json(located: Located) -> dict[str, Any]:
    """A record and its place, ready to be printed as JSON; bytes are base64."""
    fields = located.record.as_json()
    if "data" in fields:
        fields["data"] = base64.b64encode(fields["data"]).decode()
    return {"file": located.file, "position": located.span.start, "size": located.span.size, **fields}


def generations(files: list[JournalFile]) -> list[list[JournalFile]]:
    """The files by the generation that they belong to, in order."""
    found: list[list[JournalFile]] = []
    for file in files:
        if not found or found[-1][-1].generation != file.generation:
            found.append([])
        found[-1].append(file)
    return found


def segments_of(item: Chunk | Damage, parts: Segments) -> Iterator[Segment]:
    """Put what was read into `parts`; the segments that are whole by that."""
    if isinstance(item, Damage):
        if item.kind != "torn_tail":
            parts.lose()
        return
    closed, rest = kernel.pieces(item.data, item.start, item.stop, item.count)
    for before, checked, current in closed:
        parts.add(before)
        found = parts.turn(checked, current)
        if found is not None:
            yield found
    parts.add(rest)
