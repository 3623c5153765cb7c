"""Plan what a run of the pipeline reads: which journals, and for increments which range of each.

`JournalStream` finds new records, as for a streaming query: it knows about rotation, new shards and journals, records
that were removed before they were read, and limits on the size of a batch.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

from ..core.format import Reader, find_format
from ..core.io.file_names import as_text
from ..core.io.quarantine import DIRECTORY
from ..core.read.splits import Split
from ..core.repair.losses import ACCOUNT_NAME, Loss
from ..errors import HistoryUnavailable, LogwrightError, NotFound, StorageFailed, UnknownFormat
from ..location import is_local, locate
from ..spark import schemas
from ..spark.reader import Journal, list_journals, open_journal
from ..spark.stream import JournalStream, Offset, Place, Standing, retrying
from .parquet import COMPRESSION
from .settings import JournalRule, Settings

Unreadable: TypeAlias = tuple[str, str, str]
"""Format and name of a journal that cannot be opened, and the reason; a directory has no format."""
KnownLoss: TypeAlias = tuple[str, str, str]
"""Format and name of a journal, and a loss from its account as JSON."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read, and where to write it. It is sent to the planner and the tasks as JSON.

    Without `end` all records are read; torn tails, journals that cannot be opened and known losses are reported as
    well. With `end` the records between the stream offsets `start` and `end` are read, and `unreadable` and `losses`
    are reported.
    """

    settings: Settings
    staging: str
    start: Offset = field(default_factory=dict)
    end: Offset | None = None
    unreadable: tuple[Unreadable, ...] = ()
    losses: tuple[KnownLoss, ...] = ()
    compression: str = COMPRESSION

    def as_json(self) -> str:
        chosen = self.settings
        return json.dumps(
            {
                "settings": {
                    "journals": chosen.journals,
                    "out": chosen.out,
                    "mode": chosen.mode,
                    "split_bytes": chosen.split_bytes,
                    "fail_on_data_loss": chosen.fail_on_data_loss,
                    "journal_rules": [asdict(rule) for rule in chosen.journal_rules],
                },
                "staging": self.staging,
                "start": self.start,
                "end": self.end,
                "unreadable": self.unreadable,
                "losses": self.losses,
                "compression": self.compression,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        found = json.loads(text)
        rules = tuple(JournalRule(**rule) for rule in found["settings"].pop("journal_rules"))
        settings = Settings(**found.pop("settings"), journal_rules=rules)
        for key in ("unreadable", "losses"):
            found[key] = tuple((format, name, text) for format, name, text in found[key])
        return cls(settings, **found)


def chosen_journals(settings: Settings, unreadable: list[Unreadable] | None = None) -> list[Journal]:
    """The journals at or below the root that no rule excludes. The directory of the tables is skipped.

    A directory without read permission is added to `unreadable`, unless a rule excludes it or its mode is failfast.
    """
    disk, out = locate(settings.out)

    def refused(name: str, error: StorageFailed) -> None:
        if settings.rule_of(name).exclude or settings.rule_of(f"{name}/").exclude:
            return
        if settings.mode_of(name) == "failfast":
            raise error
        if unreadable is not None:
            unreadable.append(("", name, as_text(str(error))))

    return [
        journal
        for journal in list_journals(settings.journals, None, refused)
        if not settings.rule_of(journal.name).exclude
        and not (is_local(disk) and is_local(locate(journal.location)[0]) and is_below(Path(journal.location), out))
    ]


def is_below(path: Path, directory: Path) -> bool:
    """Whether a path is a directory or inside it, after resolving links."""
    return path.resolve().is_relative_to(directory.resolve())


def is_at_or_in(journal: str, name: str) -> bool:
    """Whether a journal has this name or is below it."""
    return journal == name or journal.startswith(f"{name}/")


def known_losses(journal: Journal, reader: Reader) -> list[KnownLoss]:
    """The account of losses of a journal. An account that cannot be read is a loss of unknown size."""
    try:
        losses = reader.losses()
    except LogwrightError as error:
        what = "unknown: the account of losses cannot be read"
        losses = [Loss(f"{DIRECTORY}/{ACCOUNT_NAME}", 0, 0, 0, None, what, as_text(str(error)))]
    return [(journal.format, journal.name, json.dumps(loss.as_json())) for loss in losses]


def everything(settings: Settings) -> tuple[list[tuple[Journal, Split]], list[Unreadable], list[KnownLoss]]:
    """All splits of all journals, the journals that cannot be opened, and the known losses."""
    unreadable: list[Unreadable] = []
    losses: list[KnownLoss] = []
    journals = chosen_journals(settings, unreadable)
    if not journals:
        raise UnknownFormat(f"{settings.journals}: no journal of any known format is at or below this path")
    parts: list[tuple[Journal, Split]] = []
    for journal in journals:
        try:
            reader = open_journal(journal)
            planned = find_format(journal.format).splits.plan(reader, settings.split_bytes)
        except LogwrightError as error:
            if settings.mode_of(journal.name) == "failfast":
                raise
            unreadable.append((journal.format, journal.name, str(error)))
        else:
            parts.extend((journal, split) for split in planned)
            losses += known_losses(journal, reader)
    return parts, unreadable, losses


class PipelineStream(JournalStream):
    """Finds new records in the chosen journals. Skips journals that cannot be opened, unless the mode is failfast.

    After each look `unreadable` has the skipped journals and `losses` the known losses of the others; `lost` has the
    records that were removed before they were read.
    """

    def __init__(self, settings: Settings) -> None:
        options = {
            "path": settings.journals,
            "splitbytes": str(settings.split_bytes),
            "failondataloss": str(settings.fail_on_data_loss).lower(),
        }
        super().__init__(schemas.spark_schema(None), options, None)
        self.settings = settings
        self.unreadable: list[Unreadable] = []
        self.losses: list[KnownLoss] = []
        self.lost: list[str] = []
        self._seen: dict[Place, Standing] | None = None

    def following(self, start: Offset) -> Offset:
        """The end of the batch that begins at `start`; equal to `start` if nothing is new.

        A journal that is excluded or cannot be opened keeps its offset, and continues from there later.
        """

        def look() -> Offset:
            self._seen = None
            self._seen = self._look()
            resting = {known for known in start for _, name, _ in self.unreadable if is_at_or_in(known, name)}
            resting |= {name for name in start if self.settings.rule_of(name).exclude}
            active = {name: parts for name, parts in start.items() if name not in resting}
            end = self._latest(active, None, self.settings.batch_bytes)
            return dict(sorted({**end, **{name: start[name] for name in resting if name in start}}.items()))

        try:
            return retrying(look)
        finally:
            self._seen = None

    def note_target(self) -> None:
        """Let all following batches end at the current ends of the journals."""
        self._note_target(retrying(self._look))

    def _look(self) -> dict[Place, Standing]:
        if self._seen is not None:
            return self._seen
        found: dict[Place, Standing] = {}
        self.unreadable, self.losses = [], []
        for journal in chosen_journals(self.settings, self.unreadable):
            try:
                reader = open_journal(journal)
                extents = find_format(journal.format).splits.extent(reader)
            except NotFound:  # removed in the meantime
                continue
            except LogwrightError as error:
                if self.settings.mode_of(journal.name) == "failfast":
                    raise
                self.unreadable.append((journal.format, journal.name, str(error)))
                continue
            self.losses += known_losses(journal, reader)
            for part, (first, following) in extents.items():
                found[journal.name, part] = Standing(journal, reader, part, first, following)
        return found

    def _lose(self, what: str) -> None:
        if self.fail_on_data_loss:
            raise HistoryUnavailable(
                f"{what}. To continue without them, set fail_on_data_loss = false in a --config file"
            )
        if what not in self.lost:
            self.lost.append(what)

    def splits_between(self, start: Offset, end: Offset) -> list[tuple[Journal, Split]]:
        """The splits to read for one batch."""
        return retrying(lambda: self._plan(start, end))
