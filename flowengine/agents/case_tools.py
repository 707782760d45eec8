"""Functions by which an agent ends its work. They are never run."""

from __future__ import annotations


def case_resolved(result: str) -> str:
    """End the work: the case is resolved.

    Args:
        result: The result.
    """
    return result


def case_not_resolved(reason: str) -> str:
    """End the work: the case cannot be resolved.

    Args:
        reason: Why not.
    """
    return reason


def is_case_tool(function: object) -> bool:
    """Return whether a function is one of these."""
    return function is case_resolved or function is case_not_resolved
