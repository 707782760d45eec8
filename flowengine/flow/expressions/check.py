"""Checking one expression: names, types, and the record that evaluates it."""

from __future__ import annotations

from flowengine.flow.expressions.interface import Checked, Names, Want


def check(source: str, names: Names, want: Want = "any") -> Checked:
    """Check an expression against the names of its place.

    Args:
        source: The expression, without `${{ }}`.
        names: What it sees.
        want: What its place takes.

    Returns:
        The record to evaluate it by, its type, what it names, and what is wrong with it.
    """
    raise NotImplementedError
