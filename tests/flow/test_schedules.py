"""The times of schedules follow the rule of Debian's cron (V11).

The rule is read here a second time: each minute of a year counts by local time.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from functools import cache
from zoneinfo import ZoneInfo

import cronsim
import pytest

from flowengine.flow.schedules import NoSchedule, Schedule
from tests.rows import each_row

MINUTE = datetime.timedelta(minutes=1)
ZONES = ("Europe/Berlin", "America/New_York")
SCHEDULES = (
    "0 0 * * *", "0 0 1 * *", "0 2 * * *", "30 2 * * *", "0 3 * * *", "30 3 * * *", "59 1 * * *",
    "0 1 * * *", "30 1 * * *", "0,30 2 * * *", "0 1-3 * * *", "15 1,2,3 * * *", "0 */2 * * *",
    "0 1-23/2 * * *", "30 */3 * * *", "0 * * * *", "30 * * * *", "*/30 2 * * *", "*/20 1-2 * * *",
    "*/15 * * * *", "* 2 * * *", "* * * * *", "0 9 * * 1-5", "0 9 * * MON-FRI", "0 2 * * 0",
    "0 2 * * 7", "0 2 * * SUN", "30 2 * 3 *", "30 2 * 10,11 *", "0 0 31 * *", "0 0 29 2 *",
    "0 12 28-31 * *", "0 0 1 1 *", "0 0 1 4 *", "0 0 13 * 5", "0 0 */2 * 1", "0 0 1 * */2",
    "0 6 1-7 * *", "45 23 * * 6", "5,10 0-4 * MAR,NOV *", "0 0 L * *",
    "0 22-2 * * *", "0 22-2/2 * * *", "0 9 * * FRI-MON", "0 9 * * 5-1", "0 0 28-3 * *",
    "0 6 1 NOV-FEB *", "50-10/5 3 * * *", "30 23-1,12 * * *",
)  # fmt: skip
NAMES = {
    name: str(number)
    for names, first in (
        ("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1),
        ("SUN MON TUE WED THU FRI SAT", 0),
    )
    for number, name in enumerate(names.split(), first)
}
DENSE = 3000
"""Schedules with more times a year are compared only around the changes of the clocks."""


def numbers(field: str, first: int, last: int) -> set[int]:
    """Return the numbers that a field of an expression stands for."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        begin, _, end = span.partition("-")
        begin, end = NAMES.get(begin, begin), NAMES.get(end, end)
        low = first if begin == "*" else int(begin)
        high = last if begin == "*" else int(end or begin)
        cycle = (
            [*range(low, last + 1), *range(first, high + 1)] if low > high else range(low, high + 1)
        )
        found.update(cycle[:: int(step or 1)])
    return found


class Wall:
    """Reads an expression against the clock on the wall."""

    def __init__(self, expression: str) -> None:
        minutes, hours, days, months, weekdays = self.fields = expression.split()
        self.follows_time = minutes.startswith("*") or hours.startswith("*")
        self.minutes, self.hours = numbers(minutes, 0, 59), numbers(hours, 0, 23)
        self.days = set() if days == "L" else numbers(days, 1, 31)
        self.months = numbers(months, 1, 12)
        self.weekdays = {number % 7 for number in numbers(weekdays, 0, 7)}

    def has_day(self, day: datetime.date) -> bool:
        _, _, days, _, weekdays = self.fields
        in_month = day.day in self.days
        if days == "L":
            in_month = (day + datetime.timedelta(1)).day == 1
        in_week = day.isoweekday() % 7 in self.weekdays
        either = not days.startswith("*") and not weekdays.startswith("*")
        fits = in_month or in_week if either else in_month and in_week
        return fits and day.month in self.months

    def has(self, at: datetime.datetime) -> bool:
        return at.minute in self.minutes and at.hour in self.hours and self.has_day(at.date())


@cache
def hours(zone: str, year: int) -> list[tuple[datetime.datetime, bool, list[datetime.datetime]]]:
    """Return each hour of a year: its start in UTC, if it is seen twice, and the skipped minutes.

    In both zones, clocks change at a full hour and by an hour.
    """
    found = []
    at = datetime.datetime(year, 1, 1, tzinfo=datetime.UTC)
    before = (at - MINUTE).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    while at.year == year:
        shown = at.astimezone(ZoneInfo(zone))
        wall = shown.replace(tzinfo=None, fold=0)
        skipped = []
        while before + MINUTE < wall:
            before += MINUTE
            skipped.append(before)
        found.append((at, shown.fold == 1, skipped))
        before = wall + 59 * MINUTE
        at += 60 * MINUTE
    return found


def read(expression: str, zone: str, year: int) -> Iterator[datetime.datetime]:
    """Yield the times of a year, minute by minute."""
    wall = Wall(expression)
    for start, is_again, skipped in hours(zone, year):
        missed = not wall.follows_time and any(wall.has(minute) for minute in skipped)
        if missed:
            yield start
        if is_again and not wall.follows_time:
            continue
        shown = start.astimezone(ZoneInfo(zone))
        if shown.hour not in wall.hours or not wall.has_day(shown.date()):
            continue
        for minute in sorted(wall.minutes):
            if minute or not missed:
                yield start + minute * MINUTE


def computed(expression: str, zone: str, start: float, end: float) -> Iterator[int]:
    """Yield the times as the product computes them, in milliseconds."""
    schedule = Schedule(expression, zone)
    at = int(start) * 1000 - 1
    while (at := schedule.after(at)) < end * 1000:
        yield at


def check(expression: str, zone: str, year: int) -> int:
    """Compare the two, and return the number of times."""
    expected = [int(time.timestamp()) for time in read(expression, zone, year)]
    start, end = (datetime.datetime(one, 1, 1, tzinfo=datetime.UTC) for one in (year, year + 1))
    spans = [(start.timestamp(), end.timestamp())]
    if len(expected) > DENSE:
        all_hours = hours(zone, year)
        changes = [at.timestamp() for at, is_again, skipped in all_hours if is_again or skipped]
        assert len(changes) == 2
        spans = [(change - 2 * 86_400, change + 86_400) for change in changes]
    for low, high in spans:
        found = [at / 1000 for at in computed(expression, zone, low, high)]
        assert found == [at for at in expected if low <= at < high], (expression, zone, year)
    return len(expected)


@pytest.mark.endurance
@pytest.mark.parametrize("year", range(2026, 2031))
@pytest.mark.parametrize("zone", ZONES)
# Shows V11
def test_all_times_are_those_of_the_rule(zone: str, year: int, tenth: int | None) -> None:
    these = SCHEDULES if tenth is None else SCHEDULES[tenth::10]
    leap = year == 2028
    known = dict.fromkeys(("0 2 * * *", "30 2 * * *", "0 0 * * *"), 365 + leap)
    known |= {"0 0 1 * *": 12, "0 0 29 2 *": int(leap)}
    for expression in these:
        count = check(expression, zone, year)
        assert count == known.get(expression, count), expression


@each_row(
    ("expression", "zone", "after", "times"),
    [
        ("30 2 * * *", "Europe/Berlin", "2027-03-27", "27T01:30 28T01:00 29T00:30"),
        ("0 2 * * *", "Europe/Berlin", "2027-03-27", "27T01:00 28T01:00 29T00:00"),
        ("30 2 * * *", "Europe/Berlin", "2027-10-30", "30T00:30 31T00:30 01T01:30"),
        ("0 */2 * * *", "Europe/Berlin", "2027-03-28", "28T02:00 28T04:00 28T06:00"),
        ("0 0 * * *", "Europe/Berlin", "2027-03-28", "28T22:00 29T22:00 30T22:00"),
        ("30 1 * * *", "America/New_York", "2027-11-07", "07T05:30 08T06:30 09T06:30"),
        ("30 * * * *", "America/New_York", "2027-11-07T05:00", "07T05:30 07T06:30 07T07:30"),
    ],
)
# Shows V11
def test_changes_of_clocks(expression: str, zone: str, after: str, times: str) -> None:
    """A fixed time runs once a day, and `*` in minutes or hours follows real time."""
    at = datetime.datetime.fromisoformat(after).replace(tzinfo=datetime.UTC)
    schedule, ms, found = Schedule(expression, zone), int(at.timestamp() * 1000), []
    for _ in times.split():
        ms = schedule.after(ms)
        found.append(datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%dT%H:%M"))
    assert " ".join(found) == times


@each_row(
    ("written", "plain"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@weekly", "0 0 * * 0"),
        (" @Midnight ", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("0 9 * * fri-sun", "0 9 * * 5-7"),
        ("0 9 * * 7-2", "0 9 * * 0,1,2"),
        ("0 9 * * sun-6/3", "0 9 * * 0,3,6"),
        ("0 0 1 dec-dec *", "0 0 1 12 *"),
    ],
)
def test_other_spellings_of_a_schedule(written: str, plain: str) -> None:
    at = same = 1_790_000_000_000
    for _ in range(20):
        at, same = Schedule(written, "UTC").after(at), Schedule(plain, "UTC").after(same)
        assert at == same


@each_row(
    ("expression", "zone", "error"),
    [
        ("@reboot", "UTC", "'@reboot' is not one of @yearly, .*, @hourly. Write the fields"),
        ("@every 5m", "UTC", "such as [*]/5 [*] [*] [*] [*] for every five minutes"),
        ("0 22-2/0 * * *", "UTC", "the hour '22-2/0' is not valid: write 0 to 23, "),
        ("0 0 9 * * 1", "UTC", "five fields .*, not 6"),
        ("0 9 * *", "UTC", "five fields .*, not 4"),
        ("0 24 * * *", "UTC", "the hour '24' is not valid"),
        ("0 9 * * monday", "UTC", "the day of week 'MONDAY' is not valid: write 0 to 7, SUN to"),
        ("0 9 * * *", "europe/berlin", "no time zone .*such as 'Europe/Berlin'"),
        ("0 0 30 2 *", "UTC", "month 2 has no day 30"),
        ("0 9 * * *", "Europe/Nowhere", "Nowhere"),
    ],
)
def test_what_is_no_schedule(expression: str, zone: str, error: str) -> None:
    with pytest.raises(NoSchedule, match=error):
        Schedule(expression, zone)


def test_a_time_that_is_not_later_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Schedule("0 9 * * *", "UTC")
    monkeypatch.setattr(cronsim.CronSim, "__next__", lambda self: self.dt)
    with pytest.raises(NoSchedule, match="no time after"):
        schedule.after(1_800_000_000_000)
