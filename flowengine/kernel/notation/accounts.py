"""Names of budgets that executions share: `budget PERIOD START KEY`.

The name contains the period, so nothing has to be reset when a period ends.
"""

from __future__ import annotations

from typing import NamedTuple

from flowengine.kernel.notation.times import format_time, parse_time

UNITS = {"tool_calls": "tool calls", "tokens": "tokens", "cost_usd": "USD"}
"""Meters of these budgets → their units."""
_PREFIX = "budget "
_DAY = 24 * 3600 * 1000
_LONGEST_MONTH = 31 * _DAY


class Account(NamedTuple):
    """A budget that executions share, in one period."""

    key: str
    period: str
    """`day`, `month`, or `all`."""
    start: str
    """The day or month in UTC, or `-`."""

    @property
    def name(self) -> str:
        return f"{_PREFIX}{self.period} {self.start} {self.key}"

    @property
    def resets(self) -> str | None:
        """When its period ends, or None."""
        if self.period == "day":
            return format_time(parse_time(f"{self.start}T00:00:00Z") + _DAY)
        if self.period == "month":
            within = parse_time(f"{self.start}-01T00:00:00Z") + _LONGEST_MONTH
            return f"{format_time(within)[:7]}-01T00:00:00Z"
        return None

    def is_over(self, at: int) -> bool:
        """Return whether its period has ended by a time (ms)."""
        resets = self.resets
        return resets is not None and parse_time(resets) <= at


def account_at(key: str, period: str | None, now: int) -> Account:
    """Return the budget of a key in the period of a time (ms)."""
    day = format_time(now)[:10]
    return Account(key, period or "all", {"day": day, "month": day[:7]}.get(period or "", "-"))


def is_account(name: str) -> bool:
    """Return whether a name is that of a budget, not of a lock."""
    return name.startswith(_PREFIX)


def read_account(name: str) -> Account:
    """Return the budget with a name."""
    period, start, key = name.removeprefix(_PREFIX).split(" ", 2)
    return Account(key, period, start)
