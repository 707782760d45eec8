"""Times in expressions: parsing, formatting, zones.

Zones come from the `tzdata` package, so that they are the same on every machine.
"""

from __future__ import annotations

import datetime
import functools
import re

from flowengine.flow.expressions.paths import NoValue, name_of
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.notation.times import (
    LONGEST,
    UNITS,
    TooLong,
    format_duration,
    parse_duration,
    parse_microseconds,
)
from flowengine.sdk.texts.near_words import nearest

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)")
_CEL_PART = re.compile(r"(?=\.?[0-9])([0-9]{0,20})\.?([0-9]{0,20})(ns|us|\u00b5s|ms|s|m|h|d|w)")
_CEL_DURATION = re.compile(rf"([+-]?)(?:((?:{_CEL_PART.pattern})+)|0)")
_FINER = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")
_NANOSECONDS = {unit: ms * 1_000_000 for unit, ms in UNITS.items()}
_NANOSECONDS |= {"us": 1000, "\u00b5s": 1000, "ns": 1}
_LETTERS = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+|'")
_MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
]  # fmt: skip
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def moment(value: Plain) -> datetime.datetime:
    """Return the time that a value stands for.

    Args:
        value: A time of CEL, or RFC 3339 text.

    Returns:
        The time, in UTC.

    Raises:
        NoValue: It is not a time.
    """
    if isinstance(value, datetime.datetime):
        return value
    if not isinstance(value, str):
        raise NoValue(f"a time is needed here, not {name_of(value)}")
    try:
        time = _EPOCH + datetime.timedelta(microseconds=parse_microseconds(value))
    except ValueError as error:
        raise NoValue(str(error)) from None
    if _FINER.search(value):
        raise NoValue(f"{value!r} has digits below microseconds: cut them off")
    return time


def of_seconds(seconds: int) -> datetime.datetime:
    """Return the time a number of seconds after 1970.

    Raises:
        NoValue: It is out of range.
    """
    try:
        return _EPOCH + datetime.timedelta(seconds=seconds)
    except OverflowError:
        raise NoValue("the time is out of range") from None


def time_text(value: datetime.datetime) -> str:
    """Return a time as RFC 3339 text in UTC.

    Args:
        value: The time.

    Returns:
        The text, with fractions of a second only if there are any.
    """
    utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
    whole, _, fraction = utc.isoformat(timespec="microseconds").partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"


def duration_of(value: Plain) -> datetime.timedelta:
    """Return the duration that a value stands for.

    Args:
        value: A duration of CEL, or text in the notation of the flow language, or in that of CEL,
            which has signs, fractions and smaller units: `-1.5h`, `20us`.

    Raises:
        NoValue: It is not a duration, has digits below microseconds, or is longer than a hundred
            years.
    """
    if isinstance(value, datetime.timedelta):
        return value
    if not isinstance(value, str):
        raise NoValue(f"a duration is needed here, not {name_of(value)}")
    try:
        return datetime.timedelta(milliseconds=parse_duration(value))
    except TooLong as error:
        raise NoValue(str(error)) from None
    except ValueError as error:
        microseconds = _cel_duration(value)
        if microseconds is None:
            raise NoValue(str(error)) from None
    if abs(microseconds) > LONGEST * 1000:
        raise NoValue(f"{value!r} is longer than a hundred years")
    return datetime.timedelta(microseconds=microseconds)


def _cel_duration(text: str) -> int | None:
    """Return the microseconds of a duration in the notation of CEL, or None if it is none."""
    match = _CEL_DURATION.fullmatch(text)
    if match is None:
        return None
    total = finer = 0
    for whole, fraction, unit in _CEL_PART.findall(match[2] or ""):
        count, rest = divmod(int(fraction or 0) * _NANOSECONDS[unit], 10 ** len(fraction))
        total += int(whole or 0) * _NANOSECONDS[unit] + count
        finer += rest
    if finer or total % 1000:
        raise NoValue(f"{text!r} has digits below microseconds: cut them off")
    return (-total if match[1] == "-" else total) // 1000


def duration_text(value: datetime.timedelta) -> str:
    """Return a duration in the notation of the flow language: `1h30m`.

    Args:
        value: The duration.

    Returns:
        The text.

    Raises:
        NoValue: It is negative, or not a whole number of milliseconds.
    """
    ms, rest = divmod(value, datetime.timedelta(milliseconds=1))
    if ms < 0 or rest:
        raise NoValue("a duration is a whole number of milliseconds and not negative")
    return format_duration(ms)


def plain_time(value: datetime.datetime | datetime.timedelta) -> str:
    """Return a time or duration of CEL as text, in the notation of the flow language."""
    return duration_text(value) if isinstance(value, datetime.timedelta) else time_text(value)


def zone_of(name: str) -> datetime.tzinfo:
    """Return a time zone.

    Args:
        name: `UTC`, an offset such as `+02:00`, or a name such as `Europe/Paris`.

    Returns:
        The zone.

    Raises:
        NoValue: No zone has this name.
    """
    if name == "UTC":
        return datetime.UTC
    match = _OFFSET.fullmatch(name)
    if match and int(match[2]) < 24 and int(match[3]) < 60:
        offset = datetime.timedelta(hours=int(match[2]), minutes=int(match[3]))
        return datetime.timezone(-offset if match[1] == "-" else offset)
    if name not in _zone_names():
        known = "+02:00" if name[:3] in {"UTC", "GMT"} else nearest(name, _zone_names())
        such = known or "Europe/Paris"
        raise NoValue(f"there is no time zone '{name}'. Write one such as '{such}'")
    return _load_zone(name)


@functools.cache
def _zone_names() -> frozenset[str]:
    from importlib.resources import files

    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())


@functools.cache
def _load_zone(name: str) -> datetime.tzinfo:
    """Read a zone that is known to exist."""
    from importlib.resources import files
    from zoneinfo import ZoneInfo

    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, name)


def _in_zone(time: datetime.datetime, zone: str) -> datetime.datetime:
    """Return the same moment in the local time of a zone."""
    try:
        return time.astimezone(zone_of(zone))
    except OverflowError:
        raise NoValue("the time is out of range in this zone") from None


def part_of(time: datetime.datetime, part: str, zone: str) -> int:
    """Return the result of CEL's `getHours(zone)` and similar functions.

    Args:
        time: The moment.
        part: The name of the CEL function.
        zone: The zone.

    Returns:
        The number.
    """
    local = _in_zone(time, zone)
    parts = {
        "getFullYear": local.year,
        "getMonth": local.month - 1,
        "getDate": local.day,
        "getDayOfMonth": local.day - 1,
        "getDayOfWeek": local.isoweekday() % 7,
        "getDayOfYear": local.timetuple().tm_yday - 1,
        "getHours": local.hour,
        "getMinutes": local.minute,
        "getSeconds": local.second,
        "getMilliseconds": local.microsecond // 1000,
    }
    return parts[part]


def format_time(time: datetime.datetime, pattern: str, zone: str) -> str:
    """Return a time as text.

    Args:
        time: The moment.
        pattern: Letters of Unicode date patterns. Text in single quotes is literal.
        zone: The zone of the local time.

    Returns:
        The text, with words in English.

    Raises:
        NoValue: A letter has no meaning.
    """
    local = _in_zone(time, zone)
    shown = []
    for match in _LETTERS.finditer(pattern):
        piece = match.group()
        if match[1] is None:
            shown.append(_quoted(piece) if piece.startswith("'") else piece)
            continue
        fields = {
            "yyyy": f"{local.year:04d}",
            "yy": f"{local.year % 100:02d}",
            "MMMM": _MONTHS[local.month - 1],
            "MMM": _MONTHS[local.month - 1][:3],
            "MM": f"{local.month:02d}",
            "M": str(local.month),
            "dd": f"{local.day:02d}",
            "d": str(local.day),
            "EEEE": _DAYS[local.weekday()],
            "EEE": _DAYS[local.weekday()][:3],
            "HH": f"{local.hour:02d}",
            "H": str(local.hour),
            "hh": f"{(local.hour - 1) % 12 + 1:02d}",
            "h": str((local.hour - 1) % 12 + 1),
            "mm": f"{local.minute:02d}",
            "m": str(local.minute),
            "ss": f"{local.second:02d}",
            "s": str(local.second),
            "SSS": f"{local.microsecond // 1000:03d}",
            "a": "AM" if local.hour < 12 else "PM",
            "xxx": _offset_text(local),
            "ZZZZZ": "Z" if _offset_text(local) == "+00:00" else _offset_text(local),
            "VV": str(local.tzinfo),
        }
        text = fields.get(piece)
        if text is None:
            raise NoValue(
                f"format_time() does not support '{piece}'. It supports yyyy yy MMMM MMM "
                "MM M dd d EEEE EEE HH H hh h mm m ss s SSS a xxx ZZZZZ VV, and 'text' "
                "in quotes"
            )
        shown.append(text)
    return "".join(shown)


def _quoted(piece: str) -> str:
    """Return the text in quotes. `''` is a quote."""
    if piece == "'":
        raise NoValue("a quote in the pattern of format_time() is not closed")
    return "'" if piece == "''" else piece[1:-1].replace("''", "'")


def _offset_text(local: datetime.datetime) -> str:
    """Return the offset from UTC: `+02:00`."""
    minutes = round((local.utcoffset() or datetime.timedelta()).total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
