"""Times, durations and sizes, as they are typed and as they are shown."""

from __future__ import annotations

import time

import pytest

from logwright.cli.output import format_duration, format_size, parse_size
from logwright.core.times import format_time, parse_duration, parse_time, shown_time
from logwright.errors import WrongUse

SECOND = 1_000_000_000
TEN_O_CLOCK = 1_768_471_200 * SECOND
"""2026-01-15T10:00:00Z"""


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("0", 0),
        ("-1", -1),
        ("1768471200000000001", TEN_O_CLOCK + 1),
        ("2026-01-15T10:00:00Z", TEN_O_CLOCK),
        ("2026-01-15T10:00Z", TEN_O_CLOCK),
        ("2026-01-15 10:00:00", TEN_O_CLOCK),
        ("2026-01-15T11:00:00+01:00", TEN_O_CLOCK),
        ("2026-01-15T10:00:00.000000001Z", TEN_O_CLOCK + 1),
        ("2026-01-15T10:00:00.5", TEN_O_CLOCK + SECOND // 2),
        ("2026-01-15T10:00:00,25+00:00", TEN_O_CLOCK + SECOND // 4),
        ("2026-01-15", TEN_O_CLOCK - 36_000 * SECOND),
        ("1969-12-31T23:59:59.75Z", -SECOND // 4),
    ],
)
def test_time_is_nanoseconds_or_iso_8601(text: str, timestamp: int) -> None:
    assert parse_time(text) == timestamp


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("now", 0),
        ("2 hours ago", 7200 * SECOND),
        ("1h30m ago", 5400 * SECOND),
        ("1 day, 2 minutes ago", 86_520 * SECOND),
        ("250ms ago", SECOND // 4),
    ],
)
def test_time_can_be_relative_to_now(text: str, ago: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: TEN_O_CLOCK)
    assert parse_time(text) == TEN_O_CLOCK - ago


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ago",
        "soon",
        "hours ago",
        "2 moons ago",
        "2026-13-01",
        "2026-01-15T10:00:00.1234567891Z",
        "10:00",
        "1e9",
        "２",
    ],
)
def test_text_that_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="is no"):
        parse_time(text)


@pytest.mark.parametrize(
    "text", ["0001-01-01", "9999-12-31", "9223372036854775808", "-9223372036854775808", "90000 weeks ago"]
)
def test_time_that_does_not_fit_64_bits_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="64 bits"):
        parse_time(text)


def test_time_without_a_zone_is_local_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-3")  # three hours east of Greenwich
    time.tzset()
    try:
        assert parse_time("2026-01-15T13:00", local=True) == TEN_O_CLOCK
        assert parse_time("2026-01-15T10:00Z", local=True) == TEN_O_CLOCK
        assert format_time(TEN_O_CLOCK, local=True) == "2026-01-15T13:00:00+03:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (None, "-"),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (TEN_O_CLOCK + 120_000_000, "2026-01-15T10:00:00.120Z"),
        (TEN_O_CLOCK + 1_000, "2026-01-15T10:00:00.000001Z"),
        (2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
        (-(2**63) + 1, "1677-09-21T00:12:43.145224193Z"),
    ],
)
def test_time_is_shown_to_the_nanosecond_and_can_be_typed_again(timestamp: int | None, text: str) -> None:
    assert format_time(timestamp) == text
    if timestamp is not None:
        assert parse_time(text) == timestamp


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (2**63 - 1, "+292278994-08-17T07:12:55.807Z"),  # as in Java
        (-(2**63), "-292275055-05-16T16:47:04.192Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00Z"),
        (-62_135_596_800_001, "+0000-12-31T23:59:59.999Z"),
        (-62_167_219_200_001, "-0001-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_time_beyond_the_calendar_is_shown_with_a_sign_before_its_year(milliseconds: int, text: str) -> None:
    assert shown_time(milliseconds * 1_000_000) == text


def test_zone_may_be_lower_case() -> None:
    assert parse_time("2026-01-15T10:00:00.120z") == parse_time("2026-01-15T10:00:00.120Z") == TEN_O_CLOCK + 120_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("7 days", 604_800), ("1w 1d", 691_200), ("0s", 0), ("2min", 120)],
)
def test_duration_is_numbers_with_units(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "7", "d", "7 parsecs", "-7d", "1.5h", "7d!"])
def test_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("64k", 65_536),
        ("10 MiB", 10 << 20),
        ("2GB", 2 * 10**9),
        ("1T", 1 << 40),
        ("7b", 7),
        ("1KB", 1000),
    ],
)
def test_size_counts_by_1024_unless_it_is_in_kilobytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5G", "10 XB"])
def test_text_that_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (24_000_000, "22.9 MiB"),
        (1000 << 20, "0.98 GiB"),
        (7 << 60, "7168 PiB"),
    ],
)
def test_size_is_shown_in_its_unit(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (5, "5ns"),
        (1_500_000, "1ms 500us"),
        (11_520 * SECOND, "3h 12m"),
        (86_400 * SECOND, "1d"),
        (-90 * SECOND, "-1m 30s"),
    ],
)
def test_duration_is_shown_in_its_two_largest_units(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text
