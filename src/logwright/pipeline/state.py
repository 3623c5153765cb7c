"""The state of the tables, which a batch saves in its checkpoint for the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ..errors import DamagedJournal, WrongUse
from .layout import Places
from .plan import Offset, PartState, Place
from .publish import Checkpoint
from .report.summary import ActivitySummary, DamageSummary
from .task import Counts, Found

LAYOUT: Final = 3
"""The version of the tables. Those of version 1 had no number."""


@dataclass(slots=True)
class Totals:
    """The size of a table."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(slots=True)
class State:
    """The contents of a checkpoint: the settings of the tables, the offsets of journals, and what is in the tables.

    `live` are the files of live rows of each table, with the parts of journals that their rows are of. `closed` are the
    counts of final rows of each journal and table, for the report. `listings` are digests of the lists of files and
    consumers, to detect changes; `losses` are digests of the known losses that are in the table `damage`.
    """

    made_with: dict[str, Any]
    incremental: bool
    offsets: Offset = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    tables: dict[str, Totals] = field(default_factory=dict)
    journals: dict[str, Found] = field(default_factory=dict)
    listings: dict[str, str] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    parts: dict[Place, PartState] = field(default_factory=dict)
    live: dict[str, dict[str, Places]] = field(default_factory=dict)
    closed: dict[str, dict[str, Counts]] = field(default_factory=dict)
    stamps: dict[str, dict[str, str]] = field(default_factory=dict)
    """The stamps of the parts of journals that were read to their end."""
    tails: dict[Place, list[str]] = field(default_factory=dict)
    """What is reported of parts that end with an incomplete record."""
    activity: ActivitySummary = field(default_factory=ActivitySummary)
    damage: DamageSummary = field(default_factory=DamageSummary)
    """What the report shows of final rows of these tables."""

    @classmethod
    def of(cls, checkpoint: Checkpoint | None, out: str) -> State | None:
        """The state in a checkpoint. `WrongUse` if it is of an earlier release."""
        if checkpoint is None:
            return None
        found = dict(checkpoint.state)
        if found.pop("layout", None) != LAYOUT:
            raise WrongUse(
                f"{out}: an earlier release has made these tables; rebuild them by a run that is not incremental"
            )
        try:
            found["tables"] = {name: Totals(**totals) for name, totals in found["tables"].items()}
            found["journals"] = {name: Found(**one) for name, one in found["journals"].items()}
            found["parts"] = {
                (journal, part): PartState(
                    final, due, {table: _parsed(each) for table, each in live.items()}, DamageSummary.of(damage or {})
                )
                for journal, part, final, due, live, damage in found["parts"]
            }
            found["live"] = {
                table: {
                    name: tuple(((journal, part), rows) for journal, part, rows in places)
                    for name, places in each.items()
                }
                for table, each in found["live"].items()
            }
            found["closed"] = {
                journal: {table: _parsed(counts) for table, counts in each.items()}
                for journal, each in found["closed"].items()
            }
            found["activity"] = ActivitySummary.of(found["activity"])
            found["damage"] = DamageSummary.of(found["damage"])
            found["tails"] = {(journal, part): list(tails) for journal, part, tails in found["tails"]}
            return cls(**found)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DamagedJournal(out, 0, f"not a checkpoint of the pipeline: {error}") from error

    def as_json(self) -> dict[str, Any]:
        """The state as `of` takes it."""
        return {
            "layout": LAYOUT,
            "made_with": self.made_with,
            "incremental": self.incremental,
            "offsets": self.offsets,
            "unreadable": self.unreadable,
            "tables": {name: asdict(totals) for name, totals in self.tables.items()},
            "journals": {name: one.as_json() for name, one in self.journals.items()},
            "listings": self.listings,
            "losses": self.losses,
            "parts": [
                [
                    *(*place, each.final, each.due_ns),
                    {table: _listed(counts) for table, counts in each.live.items()},
                    each.damage.as_json() if each.damage.kinds else None,
                ]
                for place, each in self.parts.items()
            ],
            "live": {
                table: {name: [[*place, rows] for place, rows in places] for name, places in each.items()}
                for table, each in self.live.items()
            },
            "activity": self.activity.as_json(),
            "damage": self.damage.as_json(),
            "stamps": self.stamps,
            "tails": [[*place, tails] for place, tails in self.tails.items()],
            "closed": {
                journal: {table: _listed(counts) for table, counts in each.items()}
                for journal, each in self.closed.items()
            },
        }


def _listed(counts: Mapping[tuple[str, ...], list[int]]) -> list[Any]:
    return [[list(place), numbers] for place, numbers in counts.items()]


def _parsed(listed: list[Any]) -> Counts:
    return {tuple(place): list(numbers) for place, numbers in listed}
