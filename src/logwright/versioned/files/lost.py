"""The times of a store of which something is lost, by its account of losses (see `core/repair/losses.py`).

A loss of a store has these fields:

    store       its name
    from, to    nanoseconds: changes with from <= t <= to may be missing, and the state at from <= t < to is not known

Any key may have changed then. `to` is None in a plan if only its repair will end the loss: what is lost at the end of
the active journal may be of any time until then. The account has that time (`settled`).
From `to` on the state is known again: a later journal begins with it, or the store has continued from what is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...core.io.disk import Disk
from ...core.repair.losses import Loss, read_losses
from ..bytes.layout import MAX_TIMESTAMP

NEVER: Final = MAX_TIMESTAMP + 1
"""`to` of a loss after which the state is not known again."""


class LostRange(NamedTuple):
    """One line of the account, as far as it is about times."""

    start: int
    stop: int
    loss: Loss


def loss_fields(store: str, start: int, stop: int | None) -> dict[str, Any]:
    """The fields of a loss."""
    return {"store": store, "from": start, "to": stop}


def settled(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Losses as they are written to the account now: each has an end."""
    return tuple(
        replace(loss, fields={**loss.fields, "to": max(time.time_ns(), loss.fields["from"]) + 1})
        if "to" in loss.fields and loss.fields["to"] is None
        else loss
        for loss in losses
    )


class LostTimes:
    """What the account of one store says about times."""

    def __init__(self, losses: Iterable[Loss] = ()) -> None:
        found = (_range_of(loss) for loss in losses)
        self._ranges = sorted((lost for lost in found if lost is not None), key=lambda lost: (lost.start, lost.stop))

    @classmethod
    def of(cls, disk: Disk, directory: Path, store: str) -> LostTimes:
        """The account of a store."""
        return cls(read_losses(disk, directory, store))

    def at(self, time: int) -> LostRange | None:
        """Why the state at a time is not known."""
        return self.between(time, time)

    def between(self, start: int, stop: int) -> LostRange | None:
        """What is lost of the changes after `start`, up to and with `stop`."""
        return next((found for found in self._ranges if found.start <= stop and start < found.stop), None)

    def covers(self, ended: int, begun: int) -> bool:
        """Whether all that is missing between the end of a journal and the beginning of the next is in the account."""
        for found in self._ranges:
            if found.start <= ended < found.stop:
                ended = found.stop
        return ended >= begun


def _range_of(loss: Loss) -> LostRange | None:
    fields = loss.fields.get("source", loss.fields)  # a copy of the store has them there
    if not isinstance(fields, Mapping) or "store" not in fields:
        return None
    start, stop = fields.get("from"), fields.get("to")
    if loss.kind != "lost" or not isinstance(start, int) or not isinstance(stop, int):
        return None
    return LostRange(start, stop, loss)
