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
from flowengine.kernel.notation.addresses import is_round

NOT_MADE = {
    "Rejected": "rejected",
    "Expired": "expired",
    "Refused": "refused",
    "BudgetExceeded": "refused",
    "ToolChanged": "refused",
}
"""Type of the error of a call that was not made → the status to show."""


def only_connects(seen: Observation, step: Mapping[str, Any]) -> bool:
    """Return whether what a step has done is not displayed unless there is a problem.

    Args:
        seen: The observation of the step.
        step: The step, compiled. The rounds of an agent show what it has done, except those
            without a reply.
    """
    if "exchange" not in step:
        return bool(step.get("plumbing"))
    if seen.status != "succeeded":
        return False
    told = registry.summary(step.get("teller", ""), step.get("kind", ""), seen.output)
    return not is_round(seen.address) or told is None


def shown_status(seen: Observation, step: Mapping[str, Any]) -> str:
    """Return the status of a step as shown to users.

    Args:
        seen: The observation of the step.
        step: The step, compiled.
    """
    if seen.status not in ("succeeded", "failed") or "caller" not in step:
        return seen.status
    if seen.error is None:
        return "failed" if failure_told(seen, step) is not None else seen.status

    if is_over_call_limit(seen.error):
        return "refused"
    return NOT_MADE.get(seen.error["type"], "failed")


def failure_told(seen: Observation, step: Mapping[str, Any]) -> str | None:
    """Return why a call has failed whose step succeeded without an error, or None.

    Args:
        seen: The observation of the step.
        step: The step, compiled.
    """
    if seen.output is None or "teller" not in step:
        return None

    return registry.failure_of(step["teller"], step.get("kind", ""), seen.output)
