"""The limits of the queue server, and of its queues: common ones, and those of single queues from a TOML file.

The file has a table for each queue, with the names of the limits of `Queue`. Sizes may have units; `false` turns off a
limit that all queues have.

    [orders]
    max_attempts = 3
    park = "orders_failed"

    [offers]
    max_age = 604800
    expire_to = "missed"

    ["news+archive"]
    max_bytes = "1GiB"

A fan-out queue without a table has the limits of its parent. In a queue that receives moved items, nothing expires by
age or moves on unless its own table says so.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from ...core.options import NamedOptions
from ...errors import WrongUse
from ...kestrel.model.limits import Limits, check_targets, is_named_like_park, park_of, targets_of
from ...kestrel.model.open_queues import can_open
from ..security import check_limits, read_bounded

logger = logging.getLogger("logwright.servers.queue")
Named: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Limits of single queues, by name: fields of `Limits`."""
_DEFAULTS: Final = {field.name: field.default for field in fields(Limits) if field.name != "sweep_seconds"}
"""The possible keys; all queues share one sweep."""


# --- the server -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits(NamedOptions):
    """Sizes, numbers and times; printed at the start of a server, and in `stats settings`."""

    max_connections: Annotated[int, "Clients at the same time; others get an error and are disconnected."] = 1024
    max_queues: Annotated[int, "Queues in the directory; clients cannot create more."] = 1000
    max_line_bytes: Annotated[int, "The longest command, without its data; a longer one ends the connection."] = 2048
    max_key_bytes: Annotated[int, "The longest name of a queue with its options."] = 250
    max_item_bytes: Annotated[int, "The largest item."] = 1 << 20
    max_arriving_bytes: Annotated[int, "Data of partly received items, of all clients together."] = 256 << 20
    max_open_reads: Annotated[int, "Items of a queue that a client may reserve by /open."] = 1
    max_monitored_items: Annotated[int, "Items of a queue that a client may reserve by monitor."] = 1000
    max_wait_seconds: Annotated[float, "The longest wait of a get or monitor."] = 3600.0
    input_buffer_bytes: Annotated[int, "Commands that are buffered for a client that waits."] = 1 << 18
    output_buffer_bytes: Annotated[int, "Answers that are buffered for a client that does not read them."] = 4 << 20
    handshake_seconds: Annotated[float, "Time limit for the TLS handshake and the token."] = 10.0
    command_seconds: Annotated[float, "Time limit for receiving a command."] = 60.0
    answer_seconds: Annotated[float, "Time limit for a client that does not read its answers."] = 60.0
    idle_seconds: Annotated[float, "Time limit for an idle client."] = 7200.0
    stop_seconds: Annotated[float, "Time limit for sending the last answers when the server stops."] = 10.0
    keep_free_bytes: Annotated[
        int, "Free disk space below which no items are accepted, at most a sixteenth of the free space."
    ] = 16 << 20
    """Removing items needs this space. The sixteenth is that of the most that was free since the start."""
    retry_seconds: Annotated[float, "How long a queue accepts nothing after its disk has failed."] = 1.0
    sweep_seconds: Annotated[float, "How often expired items are removed from idle queues."] = 1.0

    def __post_init__(self) -> None:
        check_limits(self)


# --- queues ---------------------------------------------------------------------------------------------------------


class QueueLimits:
    """The limits of every queue of a directory, by its name."""

    def __init__(self, directory: Path, common: Limits, named: Named) -> None:
        self._common, self._named = common, named
        self._logged: set[str] = set()
        """Queues that were logged already."""
        self._targets = {common.expire_to, common.park}
        for name in named:
            limits = self._chosen(name, common)
            self._targets.update(targets_of(name, limits))
        for name in named:
            check_targets(directory / name, self.of(name))
        self._check_cycles()

    def _check_cycles(self) -> None:
        """Raise `WrongUse` if items would move in a cycle of queues."""
        sources: dict[str, list[str]] = {}
        names = list(self._named)
        for name in names:  # grows in the loop
            for target in targets_of(name, self.of(name)):
                if target not in sources and target not in self._named:
                    names.append(target)
                sources.setdefault(target, []).append(name)
        try:
            TopologicalSorter(sources).prepare()
        except CycleError as error:
            raise WrongUse(f"items would move in a cycle: {' to '.join(error.args[1])}") from None

    def of(self, name: str) -> Limits:
        """The limits of one queue. If its name is too long to add `_parked`, items are not parked."""
        is_target = name in self._targets or (self._common.max_attempts is not None and is_named_like_park(name))
        limits = self._chosen(name, _without_moves(self._common) if is_target else self._common)
        if limits.max_attempts is None or can_open(park_of(name, limits)) or self._asks_to_park(name):
            return limits
        if name not in self._logged:
            self._logged.add(name)
            logger.warning("%s: items are not parked: %s would be too long a name", name, park_of(name, limits))
        return replace(limits, max_attempts=None, park=None)

    def _asks_to_park(self, name: str) -> bool:
        """Whether a queue's own table asks for parking: then it is an error if that is impossible."""
        return self._named.get(name, {}).get("max_attempts") is not None

    def _chosen(self, name: str, limits: Limits) -> Limits:
        own = self._named.get(name)
        if own is None:
            own = self._named.get(name.partition("+")[0], {})
        try:
            return replace(limits, **own)
        except WrongUse as error:
            raise WrongUse(f"{name}: {error}") from None


def _without_moves(limits: Limits) -> Limits:
    """The same limits without expiry and parking."""
    return replace(limits, max_age=None, expire_to=None, max_attempts=None, park=None)


def load_named(path: Path, parse_size: Callable[[str], int], common: Limits, directory: Path) -> Named:
    """Read the limits of single queues from a file, in addition to the common ones.

    Raises `WrongUse` for unknown keys, so that misspelt ones are not ignored.
    """
    try:
        given = tomllib.loads(read_bounded(path).decode())
        found = {name: _limits_of(name, table, parse_size) for name, table in given.items()}
        QueueLimits(directory, common, found)  # so that errors have the name of the file
        return found
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, WrongUse) as error:
        raise WrongUse(f"{path}: {error}") from None


def _limits_of(name: str, table: object, parse_size: Callable[[str], int]) -> dict[str, Any]:
    if not can_open(name):
        raise WrongUse(f"{name!r} is not a valid queue name")
    if not isinstance(table, dict):
        raise WrongUse(f"{name} must be a table: [{name}]")
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _DEFAULTS:
            raise WrongUse(f"{name}: there is no option {key!r}; the options are {', '.join(_DEFAULTS)}")
        if value is False:
            found[key] = _DEFAULTS[key]
        elif key == "discard_old_when_full" and value is not True:
            raise WrongUse(f"{name}: {key} must be true or false, not {value!r}")
        elif isinstance(value, str) and key.endswith("_bytes"):
            found[key] = parse_size(value)
        else:
            found[key] = value
    return found
