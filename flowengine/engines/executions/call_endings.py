"""Endings of model tool calls.

The model receives every result of a call, including errors, so the step succeeds. Users are shown
the actual ending.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine import registry
from flowengine.engines.attempts.failures import is_over_call_limit
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
    if seen.status not in ("succeeded", "failed") or "caller" not in step:
        return seen.status
    if seen.error is None:
        return "failed" if failure_told(seen.output, step) is not None else seen.status

    if is_over_call_limit(seen.error):
        return "refused"
    return NOT_MADE.get(seen.error["type"], "failed")


def failure_told(output: Any, step: Mapping[str, Any]) -> str | None:
    """Return why a call has failed whose step succeeded without an error, or None.

    Args:
        output: The output of the step.
        step: The step, compiled.
    """
    if output is None or "teller" not in step:
        return None

    return registry.failure_of(step["teller"], step.get("kind", ""), output)
