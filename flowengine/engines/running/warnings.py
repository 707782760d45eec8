"""Problems that do not affect the outcome of an execution, recorded in its journal.

A failure to close an environment is detected when a step, a region or the execution is over. By
then the execution may run here, may be released, or may have ended.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowengine.errors import Conflict
from flowengine.journal.encoding import pack
from flowengine.kernel.notation.addresses import steps_in
from flowengine.kernel.view import View, budgets_around

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.execution_environment import NotReleased
    from flowengine.kernel.events import Event, Measured


def concerns_others(warning: Mapping[str, Any]) -> bool:
    """Return whether a warning is shown, and not only kept in the journal.

    A refused decision is kept for an audit: the user who tried to decide received it.

    Args:
        warning: The event, or a view of it.
    """
    return bool(warning["about"] != "decision")


def not_released(failed: Sequence[NotReleased], now: int) -> list[Event]:
    """Return the warnings about environments that could not be closed, without internals.

    Args:
        failed: The failures, as reported by the manager.
        now: The time (ms).
    """
    return [
        {
            "type": "warning",
            "at": now,
            "about": "environment",
            "message": f"environment '{error.resource_key}' could not be closed ({error.error}); "
            "closing it is retried; to end what is left after that: flowengine envs reap",
        }
        for error in failed
    ]


def uncounted(execution: Execution, measured: Measured) -> Event | None:
    """Return the warning that an attempt's use of an enclosing budget cannot be predicted.

    It is recorded once for each step of an execution, regardless of the process.

    Args:
        execution: In the state before the measurement.
        measured: The event of the measurement.
    """
    state = execution.state
    unit = state["units"].get(measured["unit"])
    if unit is None or "cost_usd" in measured["needs"]:
        return None
    view = View(execution.linked.graph, state)
    around = budgets_around(view, view.frame_of(view.act_of(unit)))
    if not any("cost_usd" in budget["limits"] for _, budget in around):
        return None
    message = (
        f"{'/'.join(steps_in(view.address(unit)))}: the cost of its calls is not known in advance, "
        "because the price of its model is unknown. 'cost_usd' of the budget counts only what the "
        "provider reports afterwards, which may be nothing; 'tokens' bounds any model"
    )
    warning: Event = {
        "type": "warning", "at": measured["at"], "about": "budget", "message": message
    }  # fmt: skip
    posted = any(
        event["type"] == "warning" and event["message"] == message for event in execution.queue
    )
    return None if posted or message in state.get("warned", {}) else warning


def warn(
    host: Host, execution: str, warnings: Sequence[Event], commit: Callable[[Execution], None]
) -> None:
    """Record warnings in the journal of an execution that is not driven here.

    Args:
        host: Provides the store.
        execution: Full id.
        warnings: The events.
        commit: Commits the queue of an execution.
    """
    try:
        epoch = host.keeper.acquire(execution)
    except Conflict:
        with suppress(Conflict):  # it has ended in another process
            for event in warnings:
                host.store.send(execution, pack(event), event["at"], host.ids.message())
        return
    try:
        stored = host.stored(execution, epoch)
        stored.queue.extend(warnings)
        commit(stored)
    finally:
        host.keeper.release([(execution, epoch)])
