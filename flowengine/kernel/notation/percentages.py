"""Percentages, such as the share of a map's items that may fail."""

from __future__ import annotations

import re

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
