"""What each queue of the server may be told: the same for all of them, and what is different for some.

A file says the latter, in TOML: a table for each queue, with the names that `Queue` has for its limits. Sizes may have
units; `false` is for what all queues have, and this one has not.

    [orders]
    max_attempts = 3
    park = "orders_failed"

    [offers]
    max_age = 604800
    expire_to = "missed"

    ["news+archive"]
    max_bytes = "1GiB"

A fan-out queue that has no table is like its parent. In a queue that items of others move to, nothing expires by age or
moves on, unless its own table says so: what has come there is to stay.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final, TypeAlias

from ...errors import WrongUse
from ...kestrel.model.hub import can_open
from ...kestrel.model.limits import Limits, check_targets, is_like_park, park_of, targets_of
from ..safety import read_bounded

logger = logging.getLogger("logwright.servers.kestrel")
Named: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What is different for a queue, by its name: fields of `Limits`."""
_DEFAULTS: Final = {field.name: field.default for field in fields(Limits) if field.name != "sweep_seconds"}
"""What can be said; all queues are swept at the same time."""


class QueueLimits:
    """The limits of every queue of a directory, by its name."""

    def __init__(self, directory: Path, common: Limits, named: Named) -> None:
        self._common, self._named = common, named
        self._told: set[str] = set()
        """Queues that the log has told of."""
        self._targets = {common.expire_to, common.park}
        for name in named:
            limits = self._chosen(name, common)
            self._targets.update(targets_of(name, limits))
        for name in named:
            check_targets(directory / name, self.of(name))
        self._check_rounds()

    def _check_rounds(self) -> None:
        """Raise `WrongUse` where items would go from queue to queue for ever."""
        sources: dict[str, list[str]] = {}
        names = list(self._named)
        for name in names:  # which grows meanwhile
            for target in targets_of(name, self.of(name)):
                if target not in sources and target not in self._named:
                    names.append(target)
                sources.setdefault(target, []).append(name)
        try:
            TopologicalSorter(sources).prepare()
        except CycleError as error:
            raise WrongUse(f"items would go round: {' to '.join(error.args[1])}") from None

    def of(self, name: str) -> Limits:
        """Those of one queue. One whose name is so long that there is none for its parked items does not park any."""
        is_target = name in self._targets or (self._common.max_attempts is not None and is_like_park(name))
        limits = self._chosen(name, _lasting(self._common) if is_target else self._common)
        if limits.max_attempts is None or can_open(park_of(name, limits)) or self._asks_to_park(name):
            return limits
        if name not in self._told:
            self._told.add(name)
            logger.warning("%s: items are not parked: %s would be too long a name", name, park_of(name, limits))
        return replace(limits, max_attempts=None, park=None)

    def _asks_to_park(self, name: str) -> bool:
        """Whether a queue has a table that says that its items are parked: then it is an error if they cannot be."""
        return self._named.get(name, {}).get("max_attempts") is not None

    def _chosen(self, name: str, limits: Limits) -> Limits:
        own = self._named.get(name)
        if own is None:
            own = self._named.get(name.partition("+")[0], {})
        try:
            return replace(limits, **own)
        except WrongUse as error:
            raise WrongUse(f"{name}: {error}") from None


def _lasting(limits: Limits) -> Limits:
    """The same for a queue that nothing leaves by itself."""
    return replace(limits, max_age=None, expire_to=None, max_attempts=None, park=None)


def load_named(path: Path, parse_size: Callable[[str], int], common: Limits, directory: Path) -> Named:
    """What a file says of some queues of a directory, beside what all have in common.

    `WrongUse` for what it should not say: a misspelt name must not be ignored.
    """
    try:
        given = tomllib.loads(read_bounded(path).decode())
        found = {name: _limits_of(name, table, parse_size) for name, table in given.items()}
        QueueLimits(directory, common, found)  # so that what makes no sense is told with the name of the file
        return found
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, WrongUse) as error:
        raise WrongUse(f"{path}: {error}") from None


def _limits_of(name: str, table: object, parse_size: Callable[[str], int]) -> dict[str, Any]:
    if not can_open(name):
        raise WrongUse(f"{name!r} cannot be the name of a queue")
    if not isinstance(table, dict):
        raise WrongUse(f"{name} is to be a queue, and is written in brackets: [{name}]")
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _DEFAULTS:
            raise WrongUse(f"{name}: {key!r} is none of {', '.join(_DEFAULTS)}")
        if value is False:
            found[key] = _DEFAULTS[key]
        elif key == "discard_old_when_full" and value is not True:
            raise WrongUse(f"{name}: {key} is true or false, and not {value!r}")
        elif isinstance(value, str) and key.endswith("_bytes"):
            found[key] = parse_size(value)
        else:
            found[key] = value
    return found
