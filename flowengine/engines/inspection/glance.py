"""A long execution at a glance: from its last snapshot and the events since, without its past.

A state has what an execution is doing now: its open steps, and the items of its maps. It has no
steps that have ended outside of open maps, and no times of items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flowengine.engines.executions.linked_flows import unpacked
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.engines.infos import StepInfo
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import Activation

LONG = 2_000
"""Events of an execution that takes noticeably longer to replay, or the records that they began:
one event may begin thousands of steps."""
_STATUSES = {
    **dict.fromkeys(("asked", "lock", "budget", "wait"), "waiting"),
    "pause": "retrying",
    "ask": "uncertain",
}
"""Phase of a unit → the status of its step, if it does not run."""


class Glance(NamedTuple):
    """What an execution is doing."""

    execution: Execution
    steps: list[StepInfo]
    """The open activations, items and rounds."""
    items: list[StepInfo]
    """The items that have ended of maps that have not, without times."""
    tail: list[Event]
    """The events since its last snapshot."""


def read_glance(host: Host, record: ExecutionRecord) -> Glance | None:
    """Return what an execution is doing. None: it is short enough to be replayed.

    Args:
        host: Provides the store.
        record: The execution.
    """
    loaded = host.store.load(record.id)
    if loaded.snapshot is None:
        return None
    execution = host.execution(record.id, host.flows.by_hash(loaded.record.hash), 0)
    execution.load(loaded)
    if max(execution.seq, execution.state["last"]) < LONG:
        return None
    view = View(execution.linked.graph, execution.state)
    acts = execution.state["acts"].values()
    return Glance(
        execution,
        [step for act in acts for step in _open_steps(view, act)],
        [item for act in acts for item in _ended_items(view, act)],
        unpacked(record.id, loaded.tail),
    )


def _open_steps(view: View, act: Activation) -> Iterator[StepInfo]:
    """Yield the open items or rounds of an activation, or the activation itself."""
    for number in act.get("units", ()):
        unit = view.state["units"][number]
        step = _step(view, act, view.address(unit))
        step["status"] = _STATUSES.get(unit["phase"], "running")
        step["attempts"] = unit.get("attempt", 0)
        if "at" in act and unit["item"] < 0 and not unit["round"]:
            step["started_at"] = format_time(act["at"])
        yield step


def _ended_items(view: View, act: Activation) -> Iterator[StepInfo]:
    if view.graph.nodes[act["step"]].plumbing:
        return
    address = view.step_address(act)
    for key, result in zip(act.get("keys", ()), act.get("results", ()), strict=False):
        if result is not None:
            item = _step(view, act, f"{address}[{key}]")
            item["status"], item["output"], item["error"] = result
            yield item


def _step(view: View, act: Activation, address: str) -> StepInfo:
    node = view.graph.nodes[act["step"]]
    step: Any = {
        "address": address,
        "step": node.id,
        "kind": node.kind,
        "status": "running",
        "outcome": None,
        "attempts": 0,
        "output": None,
        "error": None,
        "tries": [],
    }
    if node.plumbing:
        step["plumbing"] = True
    info: StepInfo = step
    return info
