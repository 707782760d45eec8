"""Executions, waits and events as shown to users and programs: the documented JSON."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from flowengine.engines.executions.execution import Execution
from flowengine.engines.results import ExecutionResult, WaitInfo
from flowengine.kernel.events import Event
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.state.records import State

_TIMES = ("since", "due")
_OF_APPROVALS = {"remind": "reminder", "escalate": "escalation", "expire": "expiry"}
"""Reason of an approval's timer → the action when it fires."""


def wait_view(
    execution: str, flow: str, record: Mapping[str, Any], how: str | None = None
) -> WaitInfo:
    """Return a wait as the API and `--json` return it.

    Args:
        execution: Full id.
        flow: Id of the flow.
        record: The kernel's record of it.
        how: How it was closed, if it is.
    """
    view: dict[str, Any] = {
        **{key: value for key, value in record.items() if value is not None},
        "id": wait_id(execution, record["id"]),
        "execution": execution,
        "flow": flow,
        "status": "pending" if how is None else "closed",
    }
    for key in _TIMES:
        if key in view:
            view[key] = format_time(view[key])
    if how is not None:
        view["how"] = how
    return view  # type: ignore[return-value]


def entry_view(
    seq: int, event: Event, address: str | None, why: str | None = None
) -> dict[str, Any]:
    """Return an entry of a journal: `{seq, at, type, address?, why?, ...}`.

    Args:
        seq: Its number.
        event: The event.
        address: Address of its subject.
        why: The reason of its timer.

    Returns:
        The entry as documented.
    """
    view: dict[str, Any] = {"seq": seq, "at": format_time(event["at"]), "type": event["type"]}
    if address is not None:
        view["address"] = address
    if why is not None:
        view["why"] = why
    for key, value in event.items():
        if key == "sent":
            view["sent"] = format_time(value)  # type: ignore[arg-type]
        elif key == "opened":
            openings: Any = value
            view[key] = [
                {**one, "asked": format_time(one["asked"]), "ready": format_time(one["ready"])}
                for one in openings
            ]
        elif key == "execution":
            view[key] = {name: part for name, part in value.items() if name != "identity"}  # type: ignore[attr-defined]
        elif key not in view:
            view[key] = value
    return view


def result_of(execution: Execution) -> ExecutionResult:
    """Return the state of an execution."""
    state, flow = execution.state, execution.context.flow
    waits = [wait_view(execution.id, flow, record) for record in execution.waits.values()]
    return ExecutionResult(
        execution.id,
        flow,
        state["status"],  # type: ignore[arg-type]
        state["outputs"],
        waits,
        state["error"],
        execution.timers.next(),
    )


def timers_of(state: State, wait: int) -> list[dict[str, str]]:
    """Return the next timer of each kind for a wait, as `{what, due}`, soonest first.

    Timers that would fire after the expiry are left out.
    """
    numbers: dict[str, int] = {}
    for timer in state["timers"].values():
        if timer["ref"] == wait and timer["why"] in _OF_APPROVALS:
            what = _OF_APPROVALS[timer["why"]]
            numbers[what] = min(timer["due"], numbers.get(what, timer["due"]))
    ordered = sorted(numbers.items(), key=lambda pair: pair[1])
    last = numbers.get("expiry", inf)  # what would come later never does
    return [{"what": what, "due": format_time(due)} for what, due in ordered if due <= last]
