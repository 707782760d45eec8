"""How calls of models ended.

Whatever comes of a call is told to the model, so its step succeeds; people are shown what happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.attempts.failures import is_over_call_limit

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
"""Type of the error with which a call ended that was not made → what it is called."""


def shown_status(seen: Observation, step: Mapping[str, Any]) -> str:
    """Return the status of a step as people are shown it.

    Args:
        seen: What was observed of it.
        step: The step, compiled.
    """
    if seen.status != "succeeded" or seen.error is None or "caller" not in step:
        return seen.status
    if is_over_call_limit(seen.error):
        return "refused"
    return NOT_MADE.get(seen.error["type"], "failed")
