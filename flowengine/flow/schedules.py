"""Times of schedules: five-field cron expressions in a time zone.

The rule is that of Debian's cron, as written down in docs/language/signals.md:

- If the minute and the hour are fixed, a time that occurs twice because clocks are set back counts
  once, the first time, and one that does not occur because clocks are set forward counts at the
  moment of the change.
- If the minute or the hour begins with `*`, the schedule follows real time.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from itertools import islice

from flowengine.flow.expressions.clock import zone_of
from flowengine.flow.expressions.paths import NoValue

_FIELDS = "minute, hour, day of month, month, day of week"
_RANGES = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day-of-month", "1 to 31, L for the last"),
    ("month", "1 to 12, JAN to DEC"),
    ("day-of-week", "0 to 7, SUN to SAT"),
)
"""The fields as an error of the library names them, and their values."""
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_VALUES = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 6, _DAYS))
"""First value, last value and names of each field."""
_SPAN = re.compile(r"(\w+)-(\w+)(?:/([0-9]+))?", re.ASCII)
_TRIES = 200
"""Times to pass over. Two hours of minutes are the most that a change of clocks can repeat."""
_SECOND = 1000
_WINDOWS = (3_600_000, 86_400_000, 40 * 86_400_000, 400 * 86_400_000)
"""How far back the latest time is looked for (ms), before the search begins at the first one."""


class NoSchedule(ValueError):
    """Text that is not a schedule. The message contains the reason."""


class Schedule:
    """A cron expression in a time zone.

    Args:
        expression: Five fields: minute, hour, day of month, month, day of week.
        timezone: `UTC`, an offset such as `+02:00`, or a name such as `Europe/Berlin`.

    Raises:
        NoSchedule: The expression is not valid or has no time, or the zone does not exist.
    """

    def __init__(self, expression: str, timezone: str) -> None:
        from cronsim import CronSim, CronSimError

        self._expression = _plain_fields(expression)
        self._at = CronSim
        try:
            self._zone = zone_of(timezone)
        except NoValue as error:
            raise NoSchedule(str(error)) from None
        try:
            next(CronSim(self._expression, datetime.datetime(2024, 1, 1, tzinfo=self._zone)))
        except CronSimError as error:
            raise NoSchedule(_fault(str(error).lower(), expression.upper().split())) from None
        except StopIteration:
            raise NoSchedule(f"the schedule {expression!r} has no time") from None

    def after(self, time: int) -> int:
        """Return the first time after another one, in milliseconds since 1970.

        Raises:
            NoSchedule: There is none.
        """
        start = datetime.datetime.fromtimestamp(time // _SECOND, self._zone)
        # A time that clocks repeat counts where it occurs first, which may lie before the start.
        for found in islice(self._at(self._expression, start), _TRIES):
            moment = round(found.timestamp()) * _SECOND
            if moment > time:
                return moment
        raise NoSchedule(f"the schedule {self._expression!r} has no time after {start}")

    def latest(self, first: int, now: int) -> int:
        """Return the last of its times that is not after a moment.

        Args:
            first: One of its times, not after `now`.
            now: The moment.
        """
        for window in _WINDOWS:
            if now - window <= first:
                break
            time = self.after(now - window)
            if time <= now:
                first = time
                break
        while (time := self.after(first)) <= now:
            first = time
        return first


def _fault(error: str, fields: list[str]) -> str:
    """Return which field of an expression is wrong, and its valid values."""
    at = next((at for at, (name, _) in enumerate(_RANGES) if error.endswith(name)), None)
    if at is None:
        return f"{error} in the schedule {' '.join(fields)!r}"
    days = re.split("[,-]", fields[at])
    are_days = all(day.isascii() and day.isdigit() and 1 <= int(day) <= 31 for day in days)
    if _RANGES[at][0] == "day-of-month" and are_days:
        return f"month {fields[at + 1]} has no day {fields[at]}"
    name, values = _RANGES[at]
    named = name.replace("-", " ")
    return f"the {named} {fields[at]!r} is not valid: write {values}, *, a range, a list or a step"


def _plain_fields(expression: str) -> str:
    """Return the five fields of an expression, without a nickname and without ranges that wrap.

    Raises:
        NoSchedule: The nickname is unknown, or there are more or fewer fields.
    """
    fields = expression.upper().split()
    if fields and fields[0].startswith("@"):
        plain = _NICKNAMES.get(" ".join(fields).lower())
        if plain is None:
            raise NoSchedule(
                f"{expression!r} is not one of {', '.join(_NICKNAMES)}. Write the fields of other "
                "schedules, such as */5 * * * * for every five minutes"
            )
        return plain
    if len(fields) != 5:
        raise NoSchedule(f"a schedule has five fields ({_FIELDS}), not {len(fields)}")
    return " ".join(
        ",".join(_without_wrap(term, *values) for term in field.split(","))
        for field, values in zip(fields, _VALUES, strict=True)
    )


def _without_wrap(term: str, first: int, last: int, names: tuple[str, ...]) -> str:
    """Return a term of a field. A range, which may wrap, such as `22-2`, becomes a list."""
    span = _SPAN.fullmatch(term)
    if span is None:
        return term
    begin, end = (
        names.index(value) + first if value in names else int(value) if value.isdecimal() else -1
        for value in span.groups()[:2]
    )
    if names is _DAYS and begin == 7:
        begin = 0
    step = int(span[3] or 1)
    if not first <= end <= last or not first <= begin <= last or not step:
        return term
    wraps = [*range(begin, last + 1), *range(first, end + 1)]
    values = range(begin, end + 1) if begin <= end else wraps
    return ",".join(map(str, values[::step]))


def name_of(expression: str, timezone: str) -> str:
    """Return the name of a schedule, by which a store knows it: the expression and the zone."""
    return f"{' '.join(expression.split())} {timezone}"


def execution_of(flow: str, schedule: str, time: int) -> str:
    """Return the id of the execution that a schedule starts at one of its times.

    Args:
        flow: Id of the flow.
        schedule: As returned by `name_of`. A flow may have several.
        time: The time.
    """
    at = datetime.datetime.fromtimestamp(time / _SECOND, datetime.UTC)
    return f"{flow[:80]}-{at:%Y%m%dT%H%M%SZ}-{_digest(flow, schedule).hex()[:8]}"


def delay_of(flow: str, schedule: str, time: int, jitter: int) -> int:
    """Return by how much an execution starts later than its time: the same for all workers.

    Args:
        flow: Id of the flow.
        schedule: As returned by `name_of`.
        time: The time.
        jitter: The delay is less than this (ms). 0: no delay.
    """
    number = int.from_bytes(_digest(flow, schedule, str(time)))
    return number % jitter if jitter else 0


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\n".join(parts).encode()).digest()[:8]
