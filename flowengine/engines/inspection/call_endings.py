"""Endings of model tool calls.

The model receives every result of a call, including errors, so the step succeeds. Users are shown
the actual ending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.commands import Observation

NOT_MADE = {
    "Rejected": "rejected",
    "Expired": "expired",
    "Refused": "refused",
    "BudgetExceeded": "refused",
    "ToolChanged": "refused",
}
"""Type of the error of a call that was not made → the status to show."""


def shown_status(seen: Observation, step: Mapping[str, Any]) -> str:
    """Return the status of a step as shown to users.

    Args:
        seen: The observation of the step.
        step: The step, compiled.
    """
    if seen.status != "succeeded" or seen.error is None or "caller" not in step:
        return seen.status
    from flowengine.engines.attempts.failures import is_over_call_limit

    if is_over_call_limit(seen.error):
        return "refused"
    return NOT_MADE.get(seen.error["type"], "failed")
