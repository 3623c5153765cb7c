"""The files of a journal, their order, and the numbers of their records.

Opening a journal moves its files into `.logwright/recovery/N/`, where N is larger than all of their ids; new files have
ids from N on. So a boundary N divides the files of a directory into generations: a file with a smaller id belongs
before it, even if its move was interrupted. Within a generation ids are consecutive; between two generations some may
be missing, because the files were not needed any more.

The number of a record is the id of its file times 2^64, plus its position in the file. It stays when the file is moved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from ...core.bytes.outcome import Damage
from ...core.io.disk import Disk
from ...core.read.chunk import POSITION_BITS, NumberedFile
from ...core.read.snapshot import Snapshot
from ...core.repair.losses import ACCOUNT_NAME, Loss, add_losses, read_losses
from ...errors import DamagedJournal, NotFound
from ..bytes.layout import (
    HOME_DIRECTORY,
    MAX_CHECKPOINTS,
    MAX_ID,
    NOTE_NAME,
    RECOVERY_DIRECTORY,
    Done,
    file_name,
    parse_boundary,
    parse_done,
    parse_name,
)
from .note import Noted, read_note

CURRENT: Final = -1
"""The boundary of the generation that is being written: there is none."""
_ATTEMPTS: Final = 20
"""How often the names are listed again."""


class LostGeneration(NamedTuple):
    """A generation of which no file is there: the id after its last file, and its first ids if the note has them.

    `folder` is its directory, relative to that of the journal, empty for the generation that was being written.
    """

    boundary: int
    folder: str
    ids: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The name of its last file, relative to the journal's directory."""
        return self.folder + file_name(self.boundary - 1)

    @property
    def place(self) -> str:
        """Where it is missing: its directory, or its last file if it has none."""
        return self.folder[:-1] or self.name

    @property
    def reason(self) -> str:
        """That it is missing, in words."""
        if self.folder:
            return f"no file is in {self.folder[:-1]}, and at least file {self.boundary - 1} was: it is missing"
        return f"file {self.boundary - 1} is missing, which {NOTE_NAME} names, and all others since the last recovery"


@dataclass(frozen=True, slots=True)
class JournalFile(NumberedFile):
    """A file of a journal; `name` is relative to the journal's directory.

    `before` is its own id, and `timestamp` the next one: None for the last file, which is written to. `generation` is
    the boundary after it, `boundary` the one before it, 0 if none is known, and `ends_generation` says whether it is
    the last one. `missing` is how many ids right before this one are not there; `others` have the same id. `lost` are
    ranges of segments of its generation that have lost records by a repair, each the first and the last; `damaged` are
    those that lose some if damage is skipped. `following` is the next file of its generation. `lost_generations` are
    generations beside it of which no file is there. `noted` is what the note says of it. `last` is the last file of the
    journal by the note, and the ids that it begins with, if files after this one are missing. `lost_before` are the
    first and the last segment that were in earlier files, if these are missing (see `note_beginnings`).
    """

    name: str
    path: Path
    timestamp: int | None
    before: int
    generation: int = CURRENT
    missing: int = 0
    others: tuple[str, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    damaged: tuple[tuple[int, int], ...] = ()
    ends_generation: bool = False
    boundary: int = 0
    following: Path | None = None
    lost_generations: tuple[LostGeneration, ...] = ()
    noted: Noted | None = field(default=None, compare=False)
    last: tuple[int, tuple[int, int]] | None = None
    lost_before: tuple[int, int] | None = field(default=None, compare=False)

    @property
    def file_id(self) -> int:
        """The number in its name."""
        return self.before

    @property
    def put_aside(self) -> int | None:
        """The boundary of the generation that a recovery has put it aside with; None for one that is written."""
        return None if self.generation == CURRENT else self.generation

    @property
    def missing_ids(self) -> tuple[range, range]:
        """The ids that are missing before this file, and after the last one of a generation that was put aside."""
        before = range(self.file_id - self.missing, self.file_id)
        ends_early = self.ends_generation and self.generation != CURRENT
        stop = self.generation if ends_early else 0 if self.last is None else self.last[0] + 1
        return before, range(self.file_id + 1, stop)

    def known_ids(self, size: int) -> tuple[int, int] | None:
        """The ids that it begins with, if they are known without reading it: it has this size."""
        if self.noted is not None and self.noted.fits(size):
            return self.noted.ids
        return (0, 0) if parse_name(self.path.name) == 0 else None  # as every journal begins

    def size_problem(self, size: int) -> Damage | None:
        """The damage of a file of this size, if the note says that it had another one."""
        if self.noted is None or self.noted.fits(size):
            return None
        kind, wrong = ("truncated", "missing") if size < self.noted.size else ("changed_file", "there that were not")
        had = f"{self.noted.size} bytes" if self.noted.is_finished else f"at least {self.noted.size} bytes"
        return Damage(self.name, size, size, f"it has {size} bytes and had {had}: records are {wrong}", kind)

    @property
    def ends_last(self) -> bool:
        """Whether its generation ends with it, and no file after it is missing: then it may have no bytes."""
        return self.ends_generation and not self.missing_ids[1]

    def begins_after(self, before: JournalFile) -> bool:
        """Whether this is the first file of a generation, and no file is missing after the last one before it."""
        return before.generation != self.generation and before.file_id + 1 == self.file_id == self.boundary

    def knows_jump(self, before: tuple[int, int], pair: tuple[int, int]) -> bool:
        """Whether the account of losses explains that the ids of a checkpoint do not follow those before it."""
        steps = (pair[0] - before[0], pair[1] - before[1])
        continues = min(steps) >= 0 and sum(steps) <= MAX_CHECKPOINTS
        return any(first <= before[1] <= last and (continues or first <= pair[1] <= last) for first, last in self.lost)


Files = Snapshot[JournalFile]
"""The files of a journal as they were at one moment, open for reading."""


@dataclass(slots=True)
class Listing:
    """The files of a journal in order, and the files that an interrupted move has left in their old place."""

    directory: Path
    files: list[JournalFile] = field(default_factory=list)
    boundaries: list[int] = field(default_factory=list)
    """The directories below the one for recovery, some of which may be empty."""
    ended: list[int] = field(default_factory=list)
    """Directories of finished recoveries that are not removed yet."""
    left_behind: list[JournalFile] = field(default_factory=list)
    """Names in the journal's directory of files that are, or should be, in one of those."""
    done: list[Done] = field(default_factory=list)
    """The finished recoveries that may still be needed."""
    lost: list[LostGeneration] = field(default_factory=list)
    """The generations of which no file is there. Files are moved after their directory was created."""

    @property
    def current(self) -> list[JournalFile]:
        """The files of the generation that is being written."""
        return [file for file in self.files if file.generation == CURRENT]

    @property
    def older(self) -> list[JournalFile]:
        """The files of the generations before it."""
        return [file for file in self.files if file.generation != CURRENT]

    @property
    def first_number(self) -> int:
        """The number of the first record, or of the next one if there is none."""
        return (self.files[0].file_id if self.files else self.next_id) << POSITION_BITS

    @property
    def next_id(self) -> int:
        """The id that the next file gets."""
        last = max((file.file_id + 1 for file in self.files), default=0)
        return max([last, *self.boundaries, *(done.file_id for done in self.done)])

    def has_read_all(self, number: int, following: int) -> bool:
        """Whether a reader at this number missed nothing when a recovery removed the files before this id."""
        return any(
            done.file_id == following and (done.last_file << POSITION_BITS) + done.last_position <= number
            for done in self.done
        )


def gone_between(before: JournalFile, source: JournalFile) -> range:
    """The ids of files that were checked and removed between two that follow each other in a listing.

    Within a generation there are none: an id that is missing there is damage.
    """
    if before.generation == source.generation:
        return range(0)
    return range(max(before.file_id + 1, before.generation), source.file_id)


def generation_directory(directory: Path, boundary: int) -> Path:
    """The directory of a generation that is not written any more."""
    return directory / RECOVERY_DIRECTORY / str(boundary)


@dataclass(slots=True)
class _Names:
    """The names in the directories of a journal, and those of the directories for recovery by their boundaries."""

    here: list[str]
    home: list[str]
    moved: dict[int, list[str]]
    ended: int
    """Files before this id belong to a finished recovery and are not removed yet; -1 for none."""


def list_files(disk: Disk, directory: Path) -> Listing:
    """The files of the journal in a directory, as they were at one moment.

    An opening moves files between directories, and the end of a recovery renames their directory. So the names are
    listed again until nothing has changed.
    """
    noted = read_note(disk, directory)  # before the files: a writer adds to these first
    names = _names(disk, directory)
    for _ in range(_ATTEMPTS):
        before, names = names, _names(disk, directory)
        if names == before:
            return _listing(disk, directory, names, noted)
    raise NotFound(f"{directory}: its files change faster than they can be listed")


def _names(disk: Disk, directory: Path) -> _Names:
    here = [name for name in disk.list_directory(directory) if parse_name(name) is not None]
    home = names_in(disk, directory / HOME_DIRECTORY)
    aside = names_in(disk, directory / RECOVERY_DIRECTORY) if home else []
    boundaries = sorted(boundary for name in aside if (boundary := parse_boundary(name)) is not None)
    folders = {boundary: generation_directory(directory, boundary) for boundary in boundaries}
    moved = {boundary: names_in(disk, folder) for boundary, folder in folders.items() if not disk.is_link(folder)}
    done = {name: found for name in home if (found := parse_done(name)) is not None}
    full = [found.file_id for name, found in done.items() if names_in(disk, directory / HOME_DIRECTORY / name)]
    return _Names(here, home, moved, max(full, default=-1))


def names_in(disk: Disk, path: Path) -> list[str]:
    """The names in a directory; none if it does not exist or is a link."""
    if disk.is_link(path) or not disk.is_directory(path):
        return []
    try:
        return disk.list_directory(path)
    except NotFound:
        return []


def _listing(disk: Disk, directory: Path, names: _Names, noted: dict[int, Noted]) -> Listing:
    listing = Listing(directory)
    listing.done = [done for name in names.home if (done := parse_done(name)) is not None]
    listing.boundaries = [boundary for boundary in names.moved if boundary > names.ended]
    listing.ended = [boundary for boundary in names.moved if boundary <= names.ended]
    here: dict[int, list[JournalFile]] = {boundary: [] for boundary in [*listing.boundaries, CURRENT]}
    for file in _files_named(directory, names.here):
        generation = next((boundary for boundary in listing.boundaries if boundary > file.file_id), CURRENT)
        here[generation].append(replace(file, generation=generation))
    for boundary in listing.boundaries:
        folder = generation_directory(directory, boundary)
        moved = _files_named(folder, names.moved[boundary], f"{RECOVERY_DIRECTORY}/{boundary}/", boundary)
        listing.left_behind += here[boundary]
        files = _arranged(_without_second_names(disk, moved, here[boundary]))
        listing.files += files
        if not files:
            listing.lost.append(LostGeneration(boundary, f"{RECOVERY_DIRECTORY}/{boundary}/"))
    current = _arranged(here[CURRENT])
    if current:
        current[-1] = replace(current[-1], timestamp=None)
    listing.files += current
    _add_noted(listing, noted)
    _note_boundaries(listing)
    _note_lost(listing)
    if ACCOUNT_NAME in names.home:
        note_losses(disk, listing)
    return listing


def _add_noted(listing: Listing, noted: dict[int, Noted]) -> None:
    """Let each file know what the note says of it, and the last one which files after it are missing."""
    listing.files = [
        replace(file, noted=noted[file.file_id]) if file.file_id in noted else file for file in listing.files
    ]
    last = max(noted, default=-1)
    if last < listing.next_id:
        return
    if listing.current:
        file = listing.files[-1]
        listing.files[-1] = replace(file, timestamp=file.file_id + 1, last=(last, noted[last].ids))
    else:
        listing.lost.append(LostGeneration(last + 1, "", noted[last].ids))


def _note_boundaries(listing: Listing) -> None:
    """Let each file know the boundary before its generation."""
    boundaries = sorted({*listing.boundaries, *listing.ended, *(done.file_id for done in listing.done)})
    if boundaries:
        listing.files = [
            replace(file, boundary=boundaries[place - 1]) if (place := bisect_right(boundaries, file.file_id)) else file
            for file in listing.files
        ]


def _note_lost(listing: Listing) -> None:
    """Let the file after a generation that is lost know it, or the last one if there is none."""
    for lost in listing.lost if listing.files else ():
        later = (row for row, file in enumerate(listing.files) if file.file_id >= lost.boundary)
        row = next(later, len(listing.files) - 1)
        file = listing.files[row]
        listing.files[row] = replace(file, lost_generations=(*file.lost_generations, lost))


# --- segments that have lost records ----------------------------------------------------------------------------------


def note_losses(disk: Disk, listing: Listing) -> None:
    """Let each file know which segments of its generation have lost records, by the account of losses."""
    lost = _lost_segments(disk, listing)
    if lost:
        listing.files = [replace(file, lost=tuple(lost.get(file.generation, ()))) for file in listing.files]


def _lost_segments(disk: Disk, listing: Listing) -> dict[int, list[tuple[int, int]]]:
    """The segments of each generation that have lost records, by the account of losses; all of them if it is broken."""
    try:
        losses = read_losses(disk, listing.directory)
    except DamagedJournal:
        return {boundary: [(0, MAX_ID)] for boundary in [*listing.boundaries, CURRENT]}
    found: dict[int, list[tuple[int, int]]] = {}
    begun = max([0, *listing.boundaries, *(done.file_id for done in listing.done)])
    for loss in losses:
        lost = lost_range(loss)
        if lost is not None:
            file_id, *segments = lost
            generation = next((boundary for boundary in listing.boundaries if boundary > file_id), CURRENT)
            if generation != CURRENT or file_id >= begun:
                found.setdefault(generation, []).append((segments[0], segments[1]))
    return found


def lost_range(loss: Loss) -> tuple[int, int, int] | None:
    """The file of a loss, and the first and the last segment that have lost records by it; None where it says none."""
    file_id, segments = loss.fields.get("file_id"), loss.fields.get("segments")
    numbers = [file_id, *segments] if isinstance(segments, list) else []
    if loss.kind != "lost" or len(numbers) != 3 or not all(type(number) is int for number in numbers):
        return None
    return numbers[0], numbers[1], numbers[2]


def add_lost_segments(disk: Disk, directory: Path, file: str, file_id: int, segments: Iterable[int]) -> None:
    """Add to the account that these segments of a file had lost records before they came here, unless it says so."""
    known = [found for loss in read_losses(disk, directory) if (found := lost_range(loss)) and found[0] == file_id]
    reason = "the journal that these records come from has lost others"
    new = [
        Loss(
            *(file, 0, 0, 0, None, f"data or checkpoints of segment {segment}, not complete", reason),
            fields={"file_id": file_id, "segments": [segment, segment], "checked": None, "suspect": None},
        )
        for segment in segments
        if not any(first <= segment <= last for _, first, last in known)
    ]
    if new:
        add_losses(disk, directory, new)


# --- names ------------------------------------------------------------------------------------------------------------


def _files_named(folder: Path, names: list[str], prefix: str = "", generation: int = CURRENT) -> list[JournalFile]:
    """The files of a journal among the names in a directory. What is no plain file is one that cannot be read."""
    return [
        JournalFile(prefix + name, folder / name, file_id + 1, file_id, generation)
        for name in names
        if (file_id := parse_name(name)) is not None
    ]


def _without_second_names(disk: Disk, moved: list[JournalFile], left: list[JournalFile]) -> list[JournalFile]:
    """The files of a generation. After a power cut during a move, a file may have both its old name and its new one."""
    ids = {file.file_id: file for file in moved}
    return moved + [
        file
        for file in left
        if file.file_id not in ids or disk.identity(file.path) != disk.identity(ids[file.file_id].path)
    ]


def _arranged(files: list[JournalFile]) -> list[JournalFile]:
    """The files of one generation in order, each id once, with their problems."""
    found: list[JournalFile] = []
    for file in sorted(files, key=lambda file: (file.file_id, len(file.name), file.name)):
        if found and found[-1].file_id == file.file_id:
            found[-1] = replace(found[-1], others=(*found[-1].others, file.name))
            continue
        missing = file.file_id - found[-1].file_id - 1 if found else 0
        found.append(replace(file, missing=missing) if missing else file)
    if found:
        found[-1] = replace(found[-1], ends_generation=True)
    for row, (file, after) in enumerate(pairwise(found)):
        found[row] = replace(file, following=after.path)
    return found


def wrong_names(file: JournalFile) -> Iterator[tuple[str, str]]:
    """The problems with the ids of a file and its neighbours, each a kind and a message."""
    for missing, place in zip(file.missing_ids, ("before", "after"), strict=True):
        if missing:
            first, last = missing[0], missing[-1]
            names = f"file {first} is" if first == last else f"the files {first} to {last} are"
            yield "gap", f"{names} missing {place} this one"
    for lost in file.lost_generations:
        yield "gap", lost.reason
    if file.lost_before is not None:
        first, last = file.lost_before
        segments = f"segment {first}, which is" if first == last else f"the segments {first} to {last}, which are"
        yield "gap", f"files before this one are missing: they held {segments} not checked"
    if file.others:
        yield "doubled_id", f"its id {file.file_id} is also that of {', '.join(file.others)}"
