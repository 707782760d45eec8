"""The events of an execution whose steps succeed, and their effects.

`event_effects` has all events. It imports what any event may need, so it is only imported for the
others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowengine.kernel import flows, recovery
from flowengine.kernel.ending.leftovers import apply_result
from flowengine.kernel.events import Succeeded
from flowengine.kernel.limits.budgets import settle_result
from flowengine.kernel.state.records import Unit
from flowengine.kernel.steps import attempt_outcomes
from flowengine.kernel.steps.attempts import BUDGETED
from flowengine.kernel.transition import Transition


def _succeeded(tx: Transition, event: Succeeded) -> None:
    """Apply the result of an attempt, of a unit or of a cut-off attempt that is being settled."""
    unit = tx.state["units"].get(event["unit"])
    if unit is None or unit["phase"] != "run" or unit["attempt"] != event["attempt"]:
        _late(tx, unit, event)
        return
    if BUDGETED.isdisjoint(tx.state):
        tx.state["running"] -= 1
    else:
        settle_result(tx, unit, event["value"])
    attempt_outcomes.attempt_ended(tx, unit, event["value"], "ok")


def _late(tx: Transition, unit: Unit | None, event: Succeeded) -> None:
    """Apply the result of an attempt that counts as interrupted, or is over."""
    if unit is None or not recovery.is_asked(tx, unit, event):
        apply_result(tx, event)
        return
    recovery.answer(tx, unit)
    attempt_outcomes.attempt_ended(tx, unit, event["value"], "ok")


USUAL: dict[str, Callable[[Transition, Any], None]] = {
    "started": flows.begin_execution,
    "succeeded": _succeeded,
}
"""Event type → its effect."""
