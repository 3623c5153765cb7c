"""Parsing times and durations that people type, and formatting times for them.

A time is one of
- nanoseconds since the epoch, as a plain number: `1763241600000000000`;
- ISO 8601, to the nanosecond: `2026-11-15`, `2026-11-15T22:15:00.123456789Z`, `2026-11-15 22:15+01:00`;
- `now`, or a time before now: `2 hours ago`, `1h30m ago`.

A time without a zone is UTC, or local time with `local=True`. Python's datetimes have microseconds only, so the
fraction is parsed separately.

A time outside the range of Python's datetimes is formatted as extended ISO 8601, with a sign and a longer year:
`+292278994-08-17T07:12:55.807Z`.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from ..errors import WrongUse

NANOSECONDS: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_TIMESTAMP: Final = -(2**63) + 1
_MOST_TIMESTAMP: Final = 2**63 - 1
"""The range of 64 bits of nanoseconds: the years 1677 to 2262. The smallest number means "no time"."""

UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": NANOSECONDS,
    "m": 60 * NANOSECONDS,
    "h": 3600 * NANOSECONDS,
    "d": 86400 * NANOSECONDS,
    "w": 7 * 86400 * NANOSECONDS,
}
_LONG_UNITS: Final = {
    "nanosecond": "ns",
    "microsecond": "us",
    "millisecond": "ms",
    "second": "s",
    "sec": "s",
    "minute": "m",
    "min": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}

_CYCLE_YEARS: Final = 400
_CYCLE_SECONDS: Final = 146_097 * 86_400
"""The Gregorian calendar repeats after this time."""
_PART: Final = re.compile(r"\s*(\d+)\s*([a-z]+)\s*,?", re.ASCII | re.IGNORECASE)
_NUMBER: Final = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_FRACTION: Final = re.compile(r"(?<=:\d\d:\d\d)[.,](\d{1,9})(?=$|[Zz+-])", re.ASCII)


def parse_time(text: str, *, local: bool = False) -> int:
    """Parse a time as described above into nanoseconds since the epoch; `WrongUse` names the valid forms."""
    wanted = text.strip()
    if _NUMBER.fullmatch(wanted):
        return _in_range(int(wanted), text)
    if wanted.lower() == "now":
        return time.time_ns()
    if wanted.lower().endswith("ago"):
        return _in_range(time.time_ns() - parse_duration(wanted[:-3]), text)
    wanted = f"{wanted[:-1]}Z" if wanted.endswith("z") else wanted
    fraction = _FRACTION.search(wanted)
    nanoseconds = 0
    if fraction is not None:
        nanoseconds = int(fraction[1].ljust(9, "0"))
        wanted = wanted[: fraction.start()] + wanted[fraction.end() :]
    try:
        moment = datetime.fromisoformat(wanted)
        if moment.tzinfo is None:
            moment = moment.astimezone() if local else moment.replace(tzinfo=UTC)
        if moment.microsecond:
            raise ValueError("the fraction has more than nine digits, or is not one of a second")
        seconds = round(moment.timestamp())
    except (ValueError, OverflowError, OSError):
        raise WrongUse(
            f"{text!r} is not a time: give nanoseconds since the epoch, ISO 8601 (2026-11-15T22:15:00Z), "
            f"or '2 hours ago'"
        ) from None
    return _in_range(seconds * NANOSECONDS + nanoseconds, text)


def nanoseconds_of(moment: int | datetime) -> int:
    """Nanoseconds since the epoch of a time that is given as such, or as a datetime with a time zone."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise WrongUse(f"{moment!r} is no time: give nanoseconds since the epoch, or a datetime with a time zone")
    return moment


def _in_range(timestamp: int, text: str) -> int:
    if not _LEAST_TIMESTAMP <= timestamp <= _MOST_TIMESTAMP:
        raise WrongUse(f"the time {text!r} does not fit 64 bits of nanoseconds (the years 1677 to 2262)")
    return timestamp


def parse_duration(text: str) -> int:
    """Parse a duration such as `90s`, `12h`, `1h30m`, `7 days` into nanoseconds; `WrongUse` for anything else."""
    total, position = 0, 0
    wanted = text.strip()
    while position < len(wanted):
        part = _PART.match(wanted, position)
        scale = _unit(part[2]) if part is not None else None
        if part is None or scale is None:
            break
        total += int(part[1]) * scale
        position = part.end()
    if position < len(wanted) or not wanted:
        raise WrongUse(f"{text.strip()!r} is not a duration: give a number and a unit, such as 90s, 12h, 1h30m, 7 days")
    return total


def _unit(name: str) -> int | None:
    name = name.lower()
    short = _LONG_UNITS.get(name) or _LONG_UNITS.get(name.removesuffix("s")) or name
    return UNITS.get(short)


# --- formatting -------------------------------------------------------------------------------------------------------


def format_time(timestamp: int | None, *, local: bool = False) -> str:
    """A time in ISO 8601, with a fraction if it has one, in UTC or in local time; `-` for None."""
    if timestamp is None:
        return "-"
    seconds, nanoseconds = divmod(timestamp, NANOSECONDS)
    zone: tzinfo | None = None if local else UTC
    written = datetime.fromtimestamp(seconds, UTC).astimezone(zone).isoformat()
    return written[:19] + _fraction(nanoseconds) + (written[19:] if local else "Z")


def shown_time(timestamp: int, *, local: bool = False) -> str:
    """As `format_time`; a time outside the range of Python's datetimes is in UTC, with a sign before its year."""
    try:
        return format_time(timestamp, local=local)
    except (ValueError, OverflowError, OSError):
        seconds, nanoseconds = divmod(timestamp, NANOSECONDS)
        start = datetime(2000, 1, 1, tzinfo=UTC)
        cycles, rest = divmod(seconds - round(start.timestamp()), _CYCLE_SECONDS)
        moment = start + timedelta(seconds=rest)
        year = moment.year + _CYCLE_YEARS * cycles
        return f"{'-' if year < 0 else '+'}{abs(year):04d}{moment:-%m-%dT%H:%M:%S}{_fraction(nanoseconds)}Z"


def _fraction(nanoseconds: int) -> str:
    fraction = f".{nanoseconds:09d}" if nanoseconds else ""
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return fraction
