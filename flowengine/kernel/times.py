"""Durations and points in time as the language writes them (language reference, §3).

Inside the kernel a time is an int: milliseconds since 1970-01-01T00:00Z; a duration is an int of
milliseconds.
"""

from __future__ import annotations

import re

UNITS = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
DURATION = re.compile(
    r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?\Z", re.ASCII
)
LONGEST = 100 * 366 * UNITS["d"]
"""A hundred years: what is longer is a mistake, and would leave the range of `datetime`."""


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration such as `1h30m`.

    Args:
        text: Whole numbers with units `w d h m s ms` in falling order, no spaces.

    Returns:
        Milliseconds, 0 or more.

    Raises:
        ValueError: `text` is no duration, or longer than a hundred years.
    """
    match = DURATION.match(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is no duration; write for example 90s, 15m or 1h30m")
    total = sum(int(n) * unit for n, unit in zip(match.groups(), UNITS.values(), strict=True) if n)
    if total > LONGEST:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return total


def parse_time(text: str) -> int:
    """Return the milliseconds since 1970 of an RFC 3339 time with offset.

    Args:
        text: For example `2026-11-25T09:14:02Z`.

    Returns:
        Milliseconds since 1970-01-01T00:00Z.

    Raises:
        ValueError: `text` is no such time.
    """
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r} is no time; write for example 2026-11-25T09:14:02Z")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def format_time(at: int) -> str:
    """Return a point in time as RFC 3339 text in UTC, with milliseconds only where there are some.

    Args:
        at: Milliseconds since 1970.

    Returns:
        For example `2026-11-25T09:14:02Z`.
    """
    seconds, ms = divmod(at, 1000)
    days, second = divmod(seconds, 86_400)
    year, month, day = civil(days)
    hour, rest = divmod(second, 3600)
    text = f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{rest // 60:02d}:{rest % 60:02d}"
    return f"{text}.{ms:03d}Z" if ms else f"{text}Z"


def civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970-01-01.

    Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`: years begin in
    March, so that the leap day is the last one. Here because `datetime` takes longer to load than
    a small flow to run.
    """
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, day


def format_duration(ms: int) -> str:
    """Return a duration in the notation of the language.

    Args:
        ms: Milliseconds, 0 or more.

    Returns:
        For example `1h30m`; `0s` for none.
    """
    parts = []
    for name, size in UNITS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"
