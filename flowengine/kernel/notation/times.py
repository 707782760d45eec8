"""Durations, times and percentages in the notation of the language (docs/language.md: YAML)."""

from __future__ import annotations

import re
from functools import lru_cache

# Durations and points in time in the notation of the language (docs/language.md: YAML).
#
# Inside the kernel a time is an int of milliseconds since 1970-01-01T00:00Z, and a duration is an
# int of milliseconds.

UNITS = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
# Compiled on first use: most starts of the program do not need them.
_DURATION = r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?\Z"
_RFC3339 = r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))"
_DIGITS = 20
LONGEST = 100 * 366 * UNITS["d"]
"""A hundred years. A longer duration is a mistake, and would exceed the range of `datetime`."""


class TooLong(ValueError):
    """A duration of more than a hundred years."""


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration such as `1h30m`.

    Args:
        text: Whole numbers with units `w d h m s ms` in descending order, without spaces.

    Returns:
        Milliseconds, 0 or more.

    Raises:
        ValueError: `text` is not a duration.
        TooLong: It is longer than a hundred years.
    """
    match = re.match(_DURATION, text, re.ASCII)
    if not text or match is None:
        raise ValueError(f"{text!r} is not a valid duration: write for example 90s, 15m or 1h30m")
    parts = [
        (number, unit)
        for number, unit in zip(match.groups(), UNITS.values(), strict=True)
        if number
    ]
    is_short = all(len(number) <= _DIGITS for number, _ in parts)
    total = sum(int(number) * unit for number, unit in parts) if is_short else LONGEST + 1
    if total > LONGEST:
        shown = text if len(text) <= 2 * _DIGITS else f"{text[: 2 * _DIGITS]}…"
        raise TooLong(f"{shown!r} is longer than a hundred years")
    return total


def parse_time(text: str) -> int:
    """Return the milliseconds since 1970 of an RFC 3339 time.

    Args:
        text: For example `2026-11-25T09:14:02Z`.

    Returns:
        Milliseconds since 1970-01-01T00:00Z.

    Raises:
        ValueError: `text` is not such a time.
    """
    return parse_microseconds(text) // 1000


def parse_microseconds(text: str) -> int:
    """Return the microseconds since 1970 of an RFC 3339 time. Finer digits are truncated.

    All times are parsed here: those in flow files, inputs, command-line arguments and expressions.

    Args:
        text: For example `2026-11-25T09:14:02.5+01:00`.

    Returns:
        Microseconds since 1970-01-01T00:00Z.

    Raises:
        ValueError: `text` is not such a time, or it is before the year 1 or after 9999 in UTC.
    """
    match = re.fullmatch(_RFC3339, text, re.ASCII)
    time = None if match is None else _microseconds(match)
    if time is None:
        missing = ": its offset is missing" if lacks_offset(text) else ""
        example = f"{text}Z" if missing else "2026-11-25T09:14:02Z"
        raise ValueError(f"{text!r} is not a valid time{missing}: write for example {example}")
    return time


def lacks_offset(text: str) -> bool:
    """Return whether a text would be a time, if it had an offset."""
    match = re.fullmatch(_RFC3339, f"{text}Z", re.ASCII)
    return match is not None and match[8] is None and _microseconds(match) is not None


def _microseconds(match: re.Match[str]) -> int | None:
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    ahead, away_hours, away_minutes = match[8], int(match[9] or 0), int(match[10] or 0)
    days = _days(year, month, day)
    if not 1 <= month <= 12 or civil(days) != (year, month, day):
        return None
    if hour > 23 or minute > 59 or away_hours > 23 or away_minutes > 59:
        return None
    away = (away_hours * 60 + away_minutes) * (-1 if ahead == "+" else 1)
    minutes = days * 1440 + hour * 60 + minute + away
    leap = second == 60 and minutes % 1440 == 1439  # the last minute of a UTC day may have 61
    if (second > 59 and not leap) or not _EARLIEST <= minutes < _LATEST:
        return None
    return (minutes * 60 + second) * 1_000_000 + int(f"{match[7] or '':0<6}"[:6])


def format_time(at: int) -> str:
    """Return a point in time as RFC 3339 text in UTC, with milliseconds only if they are not 0.

    Args:
        at: Milliseconds since 1970.

    Returns:
        For example `2026-11-25T09:14:02Z`.
    """
    text, ms = _second(at // 1000), at % 1000
    return f"{text}.{ms:03d}Z" if ms else f"{text}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """Return a second as text, without a zone. The events of one second follow each other."""
    days, second = divmod(seconds, 86_400)
    hour, rest = divmod(second, 3600)
    date = "{:04d}-{:02d}-{:02d}".format(*civil(days))
    return f"{date}T{hour:02d}:{rest // 60:02d}:{rest % 60:02d}"


def civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970-01-01.

    Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`: years begin in
    March, so that the leap day is the last one. It is implemented here because loading `datetime`
    takes longer than running a small flow.
    """
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, day


def _days(year: int, month: int, day: int) -> int:
    """Return the number of days since 1970-01-01, the inverse of `civil`."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468


_EARLIEST = _days(1, 1, 1) * 1440
_LATEST = _days(10_000, 1, 1) * 1440
"""In minutes since 1970: the range of `datetime`."""


def format_duration(ms: int) -> str:
    """Return a duration in the notation of the language.

    Args:
        ms: Milliseconds, 0 or more.

    Returns:
        For example `1h30m`, or `0s` for none.
    """
    parts = []
    for name, size in UNITS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"


# Percentages, such as the share of a map's items that may fail.

PERCENTAGE = r"(?:100(?:\.0{1,6})?|[0-9]{1,2}(?:\.[0-9]{1,6})?)%"
"""From 0% to 100%, such as `10%` or `0.5%`, without a sign or spaces."""


def share(percentage: str, total: int) -> int:
    """Return a percentage of a number of items, rounded down.

    Args:
        percentage: For example `10%`.
        total: The number of items.

    Raises:
        ValueError: It is not a percentage.
    """
    if not re.fullmatch(PERCENTAGE, percentage):
        raise ValueError(f"{percentage!r} is not a percentage from 0% to 100%")
    whole, _, part = percentage[:-1].partition(".")
    unit: int = 10 ** (len(part) + 2)
    return int(whole + part) * total // unit
