"""Reports of recorded events to the subscribers of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.executions.views import entry_view, wait_view
from flowengine.engines.results import Update

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution, Told
    from flowengine.engines.host import Host
    from flowengine.kernel.commands import Notify


def report(host: Host, execution: Execution, told: Told) -> None:
    """Report events that are recorded, the steps that they concern, and the waits."""
    tell = host.tell
    for seq, event, address, why in told.entries:
        tell(Update(execution.id, "event", entry_view(seq, event, address, why)))
    for step in told.steps:
        tell(Update(execution.id, "step", None, step))
    flow = execution.context.flow
    for record, how in told.waits:
        if how is None and record["id"] not in execution.waits:
            continue  # it was closed before it could be answered
        if how is None and _may_settle(execution, record["id"]):
            continue  # it is reported if the attempt ends without an outcome
        tell(Update(execution.id, "wait", wait_view(execution.id, flow, record, how)))


def report_notification(host: Host, execution: Execution, notify: Notify) -> None:
    """Report that users are notified of a wait."""
    told = {"wait": notify.wait, "why": notify.why, "to": notify.to}
    host.tell(Update(execution.id, "notify", told))


def _may_settle(execution: Execution, wait: int) -> bool:
    """Return whether a question is about an attempt that is still being ended here."""
    found = execution.state["waits"].get(wait)
    return found is not None and found.get("cut") in execution.work
