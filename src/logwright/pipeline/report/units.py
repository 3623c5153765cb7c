"""Human-readable numbers, sizes and times, and the ticks of axes."""

from __future__ import annotations

import datetime
import math
from typing import Final

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400
_YEAR: Final = 31_556_952
_FIRST_SECOND: Final = -62_135_596_800
"""The first second of year 1, the first year of `datetime`."""
_LAST_SECOND: Final = 253_402_300_799
"""The last second of year 9999."""
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_STEPS: Final = (
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 7, 14)),
)
_MONTH_STEPS: Final = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 12000)


# --- numbers --------------------------------------------------------------------------------------------------------


def whole(number: int) -> str:
    """A number with thousands separators: 1,234,567."""
    return f"{number:,}"


def short(number: float) -> str:
    """A number with a unit prefix: 950, 1.2 k, 35 M."""
    return _scaled(number, 1000, _DECIMAL).strip()


def size(number: float) -> str:
    """A number of bytes: 950 B, 1.2 KiB, 35 MiB."""
    return _scaled(number, 1024, _BINARY)


def _scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    power = 0
    value = float(number)
    while abs(value) >= base - 0.5 and power + 1 < len(units):
        value /= base
        power += 1
    digits = 0 if power == 0 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {units[power]}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: 1 journal, 2 journals."""
    return f"{whole(number)} {noun if number == 1 else plural or noun + 's'}"


def share(part: float, of: float) -> str:
    """A part in percent; never 0 % unless the part is zero."""
    if not of:
        return "0 %"
    percent = 100 * part / of
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def duration(seconds: float) -> str:
    """A duration in its two largest units: 0.4 s, 12 s, 3 min 20 s, 2 d 4 h."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    rest = round(seconds)
    units = (("y", 365 * _DAY), ("d", _DAY), ("h", _HOUR), ("min", _MINUTE), ("s", 1))
    for place, (unit, length) in enumerate(units):
        if rest >= length:
            text = f"{rest // length} {unit}"
            if place + 1 < len(units):
                smaller, smaller_length = units[place + 1]
                left = rest % length // smaller_length
                text += f" {left} {smaller}" if left else ""
            return text
    return "0 s"


# --- times ----------------------------------------------------------------------------------------------------------


def moment(seconds: float) -> str:
    """A time in UTC, to the minute; only its year if it is outside the range of `datetime`."""
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        return f"year {1970 + round(seconds / _YEAR)}"
    return _utc(seconds).isoformat(" ", "minutes").removesuffix("+00:00")


def _utc(seconds: float) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(seconds=seconds)


def time_ticks(start: int, end: int, most: int) -> list[tuple[int, str, bool]]:
    """Ticks of a time axis: position, label, and whether a larger unit begins there.

    Ticks are at round times, labelled with the time of day, or with the date where a day begins.
    """
    if not _FIRST_SECOND <= start < end <= _LAST_SECOND:
        return _plain_ticks(start, end, most)
    for step in _STEPS:
        if (end - start) // step <= most:
            return _ticks_of_seconds(start, end, step)
    return _ticks_of_months(start, end, most)


def _plain_ticks(start: int, end: int, most: int) -> list[tuple[int, str, bool]]:
    step = max(1, (end - start) // max(1, most))
    return [(at, f"year {1970 + round(at / _YEAR)}", False) for at in range(start, end + 1, step)]


def _ticks_of_seconds(start: int, end: int, step: int) -> list[tuple[int, str, bool]]:
    found = []
    origin = -3 * _DAY if step % (7 * _DAY) == 0 else 0  # 1970 began on a Thursday, weeks begin on Mondays
    for at in range(-(-(start - origin) // step) * step + origin, end + 1, step):
        when = _utc(at)
        begins_day = at % _DAY == 0
        begins_year = begins_day and (when.day, when.month) == (1, 1)
        day = f"{when.year}" if begins_year and step >= _DAY else f"{when.day} {_MONTHS[when.month - 1]}"
        text = day if begins_day else f"{when.hour:02}:{when.minute:02}"
        found.append((at, text, begins_year if step >= _DAY else begins_day))
    return found


def _ticks_of_months(start: int, end: int, most: int) -> list[tuple[int, str, bool]]:
    first, last = _utc(start), _utc(end)
    months = (last.year - first.year) * 12 + last.month - first.month
    step = next((step for step in _MONTH_STEPS if months // step <= most), _MONTH_STEPS[-1])
    found = []
    for number in range(-(-(first.year * 12 + first.month - 1) // step) * step, last.year * 12 + last.month, step):
        year, month = divmod(number, 12)
        if 1 <= year <= 9999:
            at = int(datetime.datetime(year, month + 1, 1, tzinfo=datetime.UTC).timestamp())
            if start <= at <= end:
                found.append((at, _MONTHS[month] if month else f"{year}", month == 0 and step < 12))
    return found


def number_ticks(highest: float, most: int, *, binary: bool = False) -> list[float]:
    """Round numbers from 0 up to the first one that is at least `highest`; for sizes, round in KiB or MiB."""
    if highest <= 0:
        return [0.0, 1.0]
    base = 1024.0 if binary else 1000.0
    unit = base ** math.floor(math.log(max(highest, 1), base))
    raw = highest / unit / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999999) * unit
    step = max(step, 1.0)  # there are no halves of records and bytes
    return [step * number for number in range(math.ceil(highest / step * 0.999999) + 1)]
