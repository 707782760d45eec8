"""Percentages, such as the share of a map's items that may fail."""

from __future__ import annotations

import re

PERCENTAGE = r"(?:100(?:\.0{1,6})?|[0-9]{1,2}(?:\.[0-9]{1,6})?)%"
"""From 0% to 100%, such as `10%` or `0.5%`; no sign and no blank."""
_PARTS = re.compile(PERCENTAGE)


def share(percentage: str, total: int) -> int:
    """Return how many whole things a percentage of them is, rounded down.

    Args:
        percentage: For example `10%`.
        total: How many there are.

    Raises:
        ValueError: It is not a percentage.
    """
    if not _PARTS.fullmatch(percentage):
        raise ValueError(f"{percentage!r} is not a percentage from 0% to 100%")
    whole, _, part = percentage[:-1].partition(".")
    unit: int = 10 ** (len(part) + 2)
    return int(whole + part) * total // unit
