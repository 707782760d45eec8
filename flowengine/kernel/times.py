"""Durations and points in time as the language writes them (language reference, §3).

Inside the kernel a time is an int: milliseconds since 1970-01-01T00:00Z; a duration is an int of
milliseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

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
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r} is no time; write for example 2026-11-25T09:14:02Z")
    return (moment - EPOCH) // timedelta(milliseconds=1)


def format_time(at: int) -> str:
    """Return a point in time as RFC 3339 text in UTC, with milliseconds only where there are some.

    Args:
        at: Milliseconds since 1970.

    Returns:
        For example `2026-11-25T09:14:02Z`.
    """
    moment = EPOCH + timedelta(milliseconds=at)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{at % 1000:03d}Z" if at % 1000 else f"{text}Z"


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
