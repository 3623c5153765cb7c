"""The interface of observers of a run: it begins, publishes batches, and ends or fails.

An observer never fails a run: what it cannot write or send is a note of the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..report.figures import ExpectationFigures
from ..state import Totals
from ..task import Found


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """A batch that was published, or a look that found nothing new.

    `tables` and `journals` describe the whole tables, `new` only what this batch has read, and `locations` has the
    places of its journals. `looked_at` is when the journals were looked at, in seconds since 1970; with `has_all`, all
    that was found then is in the tables. All that was complete at the time `complete_at` is in the tables; None if that
    is not known yet. `seconds` is None for a look that found nothing.
    """

    number: int
    looked_at: float
    published_at: float
    has_all: bool
    complete_at: float | None
    seconds: float | None
    tables: Mapping[str, Totals] = field(default_factory=dict)
    journals: Mapping[str, Found] = field(default_factory=dict)
    new: Mapping[str, Found] = field(default_factory=dict)
    locations: Mapping[str, str] = field(default_factory=dict)
    expectations: Sequence[ExpectationFigures] = ()


class Observer(ABC):
    """Called as a run makes progress. `problem` says what could not be written or sent, if anything."""

    problem: str | None = None

    @abstractmethod
    def begin(self) -> None:
        """The run has begun."""

    @abstractmethod
    def batch(self, figures: BatchFigures) -> None:
        """A batch was published, or nothing new was found."""

    @abstractmethod
    def end(self, error: BaseException | None) -> None:
        """The run has ended, or failed."""
