"""Parse and check the options of sources and sinks.

An unknown option is an error that names the nearest known ones, so that misspelt options are not ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from ..core.times import parse_time
from ..errors import WrongUse

OF_TABLES: Final = ("mode", "from", "to", "since", "until", "pushFilters", "splitBytes", "batchBytes")
OF_STATES: Final = ("at", "mode", "since", "until", "pushFilters", "splitBytes", "batchBytes")
OF_STREAMS: Final = (
    *("mode", "splitBytes", "batchBytes", "maxRecordsPerTrigger", "maxBytesPerTrigger"),
    *("startingOffsets", "startingTimestamp", "failOnDataLoss"),
)
OF_SINKS: Final = ("txnAppId", "txnVersion")
_OF_SPARK: Final = frozenset(("path", "paths", "checkpointlocation", "queryname"))
"""Options that Spark's own methods set: `load`, `save`, `start`, `queryName`. Names with a dot or `__` are also
Spark's."""
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)


def folded(options: Mapping[str, str]) -> dict[str, str]:
    """Options with lower-case names: on Spark case does not matter."""
    return {name.lower(): value for name, value in options.items()}


def check_names(options: Mapping[str, str], known: Iterable[str], purpose: str) -> None:
    """Raise `WrongUse` for an option that is not known for a purpose. `options` are folded."""
    names = {name.lower(): name for name in known}
    for name in options:
        if name in names or name in _OF_SPARK or "." in name or name.startswith("__"):
            continue
        near = [names[one] for one in difflib.get_close_matches(name, names, 2)]
        there = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names.values())}"
        raise WrongUse(f"option {name} is unknown for {purpose}; {there}")


def byte_size(options: Mapping[str, str], name: str, default: int) -> int:
    """A number of bytes as in Spark: 1048576, 64m, 1g. `options` are folded."""
    text = options.get(name.lower())
    if text is None:
        return default
    return parse_size(f"option {name}", text)


def parse_size(name: str, text: str) -> int:
    """Parse a number of bytes such as 1048576, 64m or 1g; `name` is for errors."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[match[2].lower()] if match else 0
    if size < 1:
        raise WrongUse(f"{name}: {text!r} is not a size; write 1048576, 64m or 1g")
    return size


def whole_number(options: Mapping[str, str], name: str) -> int | None:
    """A number of at least 1; None if the option is not set. `options` are folded."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise WrongUse(f"option {name}: {text!r} is not a number of at least 1")
    return int(text)


def any_number(options: Mapping[str, str], name: str) -> int | None:
    """A number of at least 0; None if the option is not set. `options` are folded."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal():
        raise WrongUse(f"option {name}: {text!r} is not a number of at least 0")
    return int(text)


def time_ns(options: Mapping[str, str], name: str) -> int | None:
    """A time in nanoseconds since the epoch; None if the option is not set. `options` are folded.

    The syntax is that of the command line: see `core/times.py`.
    """
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        return parse_time(text)
    except WrongUse as error:
        raise WrongUse(f"option {name}: {error}") from None


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """True or false. `options` are folded."""
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise WrongUse(f"option {name}: {text!r} is neither true nor false")
    return text == "true"
