"""The function that random flows call."""

from __future__ import annotations


def act(value: object = None) -> object:
    """Return the argument."""
    return value
