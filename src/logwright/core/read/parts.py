"""PartsReader: several journals under one path, read as one.

The parts are the shards of a root, or the queues or stores of a directory. They are read one after the other, in the
order of their names. Each part numbers its records: a bound is one number for all parts, or one for each by its name,
as `find_time` returns them. The file of a record, damage or problem is relative to the path.

`SideBySideReader` is for parts without directories of their own: the name of a file says which part it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Self, TypeVar

from ...errors import WrongUse, renaming_damage
from ..bytes.outcome import Damage, Mode, check_mode
from ..format import Located, concerns, find_half_done
from ..repair.losses import Loss, read_losses
from .chunk import Bound, Choice
from .chunk_reader import FilesReader, RecordsReader
from .report import SOUND_SO_FAR, Progress, Report, Summary

Record = TypeVar("Record")
Part = TypeVar("Part", bound=FilesReader[Any, Any, Any])


class PartsReader(RecordsReader[Record]):
    """The journals under one path. A subclass lists them in `parts`, and says in `part_name` what a part is called."""

    def __init__(self) -> None:
        self.torn_tails: list[Damage] = []

    def parts(self) -> list[tuple[str, Any]]:
        """The existing parts, each with its reader."""
        raise NotImplementedError

    def within(self, part: str, file: str) -> str:
        """The name of a file of a part, relative to the path."""
        return f"{part}/{file}" if part else file

    @property
    def torn_tail(self) -> Damage | None:
        """The first of the torn tails that the last pass met; `torn_tails` has all of them."""
        return self.torn_tails[0] if self.torn_tails else None

    def all_torn_tails(self) -> list[Damage]:
        return self.torn_tails

    @property
    def has_parts(self) -> bool:
        return True

    @property
    def end(self) -> dict[str, int]:
        return {name: part.end for name, part in self.parts()}

    # --- going through them -----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        self.refuse_missing()
        for part, reader in self._each():
            with self._naming(part):
                yield from reader

    def _records(self, start: Bound, stop: Bound, mode: Mode) -> Iterator[Record | Damage]:
        for part, reader in self._each():
            with self._naming(part):
                found = reader.records(bound_of(part, start), bound_of(part, stop), mode=mode)
                if mode == "permissive":
                    found = (self._seen(part, item) if isinstance(item, Damage) else item for item in found)
                yield from found

    def refuse_missing(self) -> None:
        """Raise `DamagedJournal` if an interrupted repair has moved all files of a part away."""
        half_done = find_half_done(self.path, disk=self.disk, format=self.format)
        if half_done is not None and not any(concerns(half_done, part) for part, _ in self.parts()):
            raise half_done.with_file_away()

    def _scan(
        self, start: Bound, stop: Bound, mode: Mode, progress: Progress | None, choice: Choice | None
    ) -> Iterator[Located | Damage]:
        check_mode(mode)
        self.refuse_missing()
        share = self._shares(progress)
        for part, reader in self._each():
            with self._naming(part):
                low, high = bound_of(part, start), bound_of(part, stop)
                own = None if choice is None else choice.within(part)
                for item in reader.scan(low, high, mode=mode, progress=share(part), choice=own):
                    yield self._seen(part, item)

    def _each(self) -> Iterator[tuple[str, Any]]:
        """The parts one by one; records the torn tail of each when the next one is requested."""
        self.torn_tails = []
        for part, reader in self.parts():
            yield part, reader
            if reader.torn_tail is not None:
                self.torn_tails.append(self._seen(part, reader.torn_tail))

    def _seen(self, part: str, item: Any) -> Any:
        """A `Located`, `Damage` or `Problem` of a part, with its file relative to the path."""
        file = self.within(part, item.file)
        return item if file == item.file else replace(item, file=file)

    def _naming(self, part: str) -> AbstractContextManager[None]:
        """Add the name of the part to the file in a `DamagedJournal`."""
        return renaming_damage(lambda file: self.within(part, file))

    def _shares(self, progress: Progress | None) -> Callable[[str], Progress | None]:
        """The progress callback of each part; together they count from 0 to all bytes once."""
        if progress is None:
            return lambda part: None
        before: dict[str, int] = {}
        total = 0
        for part, reader in self.parts():
            before[part] = total
            total += reader.total_bytes()
        return lambda part: lambda done, _: progress(before.get(part, total) + done, total)

    def total_bytes(self) -> int:
        total: int = sum(reader.total_bytes() for _, reader in self.parts())
        return total

    def count(
        self,
        start: Bound = None,
        stop: Bound = None,
        *,
        progress: Progress | None = None,
        on_damage: Callable[[Damage], None] | None = None,
        choice: Choice | None = None,
    ) -> int:
        share = self._shares(progress)
        records = 0
        for part, reader in self._each():
            on_part_damage = None if on_damage is None else partial(self._report_damage, part, on_damage)
            first, end = bound_of(part, start), bound_of(part, stop)
            own = None if choice is None else choice.within(part)
            records += reader.count(first, end, progress=share(part), on_damage=on_part_damage, choice=own)
        return records

    def _report_damage(self, part: str, on_damage: Callable[[Damage], None], damage: Damage) -> None:
        on_damage(self._seen(part, damage))

    def find_time(self, timestamp: int) -> dict[str, int]:
        return {part: reader.find_time(timestamp) for part, reader in self._each()}

    # --- what they are ----------------------------------------------------------------------------------------------

    def summary(self) -> Summary:
        """What this is, quickly, with an entry for each part."""
        found = [(part, reader.summary()) for part, reader in self._each()]
        counts = [summary.records for _, summary in found]
        lines = {
            part: {"records": summary.records, "bytes": summary.bytes, "health": summary.health}
            for part, summary in found
        }
        return Summary(
            format=self.format,
            path=str(self.path),
            files=sum(summary.files for _, summary in found),
            bytes=sum(summary.bytes for _, summary in found),
            records=None if None in counts else sum(count or 0 for count in counts),
            first=self.outermost([self._shown(part, summary.first) for part, summary in found], min),
            last=self.outermost([self._shown(part, summary.last) for part, summary in found], max),
            health=worst_health([(part, summary.health) for part, summary in found]),
            damaged=any(summary.damaged for _, summary in found),
            losses=self._together((part, summary.losses) for part, summary in found),
            details={f"{self.part_name}s": lines},
        )

    def _shown(self, part: str, record: dict[str, Any] | None) -> dict[str, Any] | None:
        """A record of a part as its summary has it, with the part's name."""
        return None if record is None else {**record, "file": self.within(part, record["file"]), self.part_name: part}

    def outermost(self, records: list[dict[str, Any] | None], choose: Callable[..., Any]) -> dict[str, Any] | None:
        """The first of the first records of all parts (`choose` is min), or the last of the last ones (max)."""
        there = [record for record in records if record is not None]
        return None if not there else there[0] if choose is min else there[-1]

    def verify(self, *, progress: Progress | None = None) -> Report:
        share = self._shares(progress)
        whole = Report(self.format)
        losses: list[tuple[str, list[Loss]]] = []
        for part, reader in self._each():
            report = reader.verify(progress=share(part))
            whole.records += report.records
            whole.bytes += report.bytes
            whole.problems += [self._seen(part, problem) for problem in report.problems]
            whole.anomalies += [self._seen(part, anomaly) for anomaly in report.anomalies]
            losses.append((part, report.losses))
        whole.losses = self._together(losses)
        return whole

    def losses(self) -> list[Loss]:
        return self._together((part, reader.losses()) for part, reader in self._each())

    def _together(self, losses: Iterable[tuple[str, list[Loss]]]) -> list[Loss]:
        """The losses of all parts; one that concerns a whole directory of them is listed once."""
        found: list[Loss] = []
        for part, ours in losses:
            seen = [self._seen(part, loss) for loss in ours]
            found += [loss for loss in seen if loss not in found]
        return found

    def state(self, at: int | None = None) -> dict[str, Any]:
        """The state of each part under its name."""
        return {f"{self.part_name}s": {part: reader.state(at) for part, reader in self._each()}}


def bound_of(part: str, bound: Bound) -> int | None:
    """The bound of one part."""
    return bound.get(part) if isinstance(bound, Mapping) else bound


def worst_health(healths: list[tuple[str, str]]) -> str:
    """The health of all parts if they agree; otherwise what is wrong with each."""
    kinds = {health for _, health in healths}
    if len(kinds) <= 1:
        return kinds.pop() if kinds else "empty"
    return "; ".join(f"{part}: {health}" for part, health in healths if health != SOUND_SO_FAR)


class SideBySideReader(PartsReader[Record], Generic[Record, Part]):
    """All journals of a directory whose files are side by side in it, read as one.

    `start` and `stop` are numbers within each part. Parts that appear later are found by the next call.
    """

    def names(self) -> list[str]:
        """The names of the existing parts."""
        raise NotImplementedError

    def open(self, part: str) -> Part:
        """The reader of one part."""
        raise NotImplementedError

    def part_of(self, file: str) -> str | None:
        """The part that a file belongs to by its name."""
        raise NotImplementedError

    def parts(self) -> list[tuple[str, Any]]:
        return [(name, self.open(name)) for name in self.names()]

    def within(self, part: str, file: str) -> str:
        """Files of all parts are in the same directory."""
        return file

    def losses(self) -> list[Loss]:
        """The losses of all parts: they share an account, so that no part is opened."""
        known = read_losses(self.disk, self.path)
        parts = self.names() if known else []
        return self._together((part, [loss for loss in known if loss.part in ("", part)]) for part in parts)

    def last(self, count: int, choice: Choice | None = None) -> list[Located]:
        """The last records of each part, at most `count` in all: there is no order between parts."""
        ends = [reader.last(count, None if choice is None else choice.within(part)) for part, reader in self._each()]
        share = [len(end) for end in ends]
        while sum(share) > count:
            share[share.index(max(share))] -= 1
        return [item for end, kept in zip(ends, share, strict=True) for item in end[len(end) - kept :]]

    def find_place(self, text: str) -> dict[str, int]:
        """The record number of `FILE@POSITION`, for the part of that file only."""
        part = self.part_of(text.rpartition("@")[0].strip())
        if part is None or part not in self.names():
            raise WrongUse(f"{text!r} is not a place in these {self.part_name}s: write FILE@POSITION")
        return {part: self.open(part).find_place(text)}

    def number_of(self, located: Located) -> tuple[str, int]:
        return self.open(self.part_of(located.file) or located.file).number_of(located)

    def one_or_all(self) -> Part | Self:
        """The reader of the only part, or this one if there are several."""
        names = self.names()
        if len(names) != 1:
            return self
        self.refuse_missing()
        return self.open(names[0])
