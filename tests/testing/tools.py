"""The function that random flows call."""

from __future__ import annotations


def act(value: object = None) -> object:
    """Return what it is given."""
    return value
