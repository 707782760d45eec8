"""Numbers of sheets in their formats: dates, times and durations are numbers of days."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import Any

from flowengine_envs.documents.sheet_values import text_of

_LITERALS = re.compile(r'"[^"]*"?|\\.|\[[^\]]*\]|[_*].')
_LONGEST_DURATION = 366
"""Days. A larger value is a point in time, even if its format shows only the time of day."""


ERRORS = {
    **{0x00: "#NULL!", 0x07: "#DIV/0!", 0x0F: "#VALUE!", 0x17: "#REF!", 0x1D: "#NAME?"},
    **{0x24: "#NUM!", 0x2A: "#N/A"},
}
"""Code of an error in binary workbooks → the error."""


def built_in(number: int) -> str:
    """Return a number format that workbooks do not define themselves."""
    from openpyxl.styles.numbers import BUILTIN_FORMATS

    return str(BUILTIN_FORMATS.get(number, ""))


@lru_cache(1_000)
def is_clock(format: str) -> bool:
    """Return whether a format shows the time of day, without a date."""
    signs = set(_LITERALS.sub("", format).lower())
    return not signs.isdisjoint("hs") and signs.isdisjoint("dy")


def elapsed(days: str | float | None, value: Any) -> Any:
    """Return a duration for more than a day or a negative number, and other values unchanged.

    Args:
        days: The number of days.
        value: The point in time for which a library takes it.
    """
    try:
        number = float(days or "")
    except ValueError:
        return value
    is_duration = number < 0 or 1 <= number < _LONGEST_DURATION
    return datetime.timedelta(days=number) if is_duration else value


class NumberFormats:
    """Shows numbers in their formats.

    Args:
        begins_1904: Whether days are counted from 1904.
    """

    def __init__(self, begins_1904: bool) -> None:
        from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH

        self._epoch = MAC_EPOCH if begins_1904 else WINDOWS_EPOCH

    def text(self, number: float, format: str) -> str:
        """Return a number as a user would type it, with its unit."""
        is_date, is_duration = _kind(format)
        if not is_date:
            return text_of(number, format)
        from openpyxl.utils.datetime import from_excel

        try:
            value = from_excel(number, self._epoch, timedelta=is_duration)
            return text_of(elapsed(number, value) if is_clock(format) else value, format)
        except (OverflowError, ValueError):
            return text_of(number)


@lru_cache(1_000)
def _kind(format: str) -> tuple[bool, bool]:
    from openpyxl.styles.numbers import is_date_format, is_timedelta_format

    return is_date_format(format), is_timedelta_format(format)
