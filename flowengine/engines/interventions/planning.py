"""What a retry, a fork or a cancellation would do. Nothing is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.attempts.failures import COMPENSATION
from flowengine.engines.executions.linked_flows import read, running, state_at, unit_at, walk
from flowengine.engines.interventions.fork import check_not_undone
from flowengine.engines.interventions.fork_points import past_of
from flowengine.engines.interventions.retracing import being_undone, within
from flowengine.engines.interventions.retrying import held_failures
from flowengine.engines.results import InterventionPlan
from flowengine.errors import Conflict
from flowengine.journal.records import ENDED
from flowengine.kernel import advance
from flowengine.kernel.commands import Run
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.engines.executions.linked_flows import Moment
    from flowengine.engines.host import Host
    from flowengine.kernel import Graph
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.graph.linked import Node
    from flowengine.kernel.state.records import State


def planned_retry(host: Host, execution: str, steps: Sequence[str]) -> InterventionPlan:
    """Return what `retry` would do.

    Raises:
        Conflict: As `retry`.
        NotFound: As `retry`.
    """
    record = host.store.execution(execution)
    held = held_failures(host, execution, record.status, record.hash, steps)
    view, again = View(held.graph, held.state), {}
    late: list[Any] = held.late
    units = running(held.graph, held.state)
    for result in late:
        units.pop(result["unit"], None)
    # What the failure stopped runs again, too.
    for address in dict.fromkeys([*held.addresses, *(address for address, _ in units.values())]):
        unit = unit_at(held.graph, held.state, address)
        step = None if unit is None else view.act_of(held.state["units"][unit])
        again[address] = "" if step is None else _effect(view.node(step))
    seen: list[Observation] = []
    for _ in walk(host.flows, record.hash, read(host.store, execution), seen):
        pass
    done = {step.address for step in seen if step.status == "succeeded"}
    return InterventionPlan(again, len(done))


def planned_fork(host: Host, execution: str, at: str) -> InterventionPlan:
    """Return what `fork` would do, except for the values and the flow that it is given.

    Raises:
        Conflict: As `fork`.
        NotFound: As `fork`.
    """
    record, journal = host.store.execution(execution), read(host.store, execution)
    check_not_undone(host, record, journal, at)
    acted: dict[str, str] = {}

    def note(moment: Moment, seen: Sequence[Observation]) -> None:
        for step in seen:
            node = moment.graph.node(step.step)
            if _acts(node):
                acted[step.address] = _effect(node)

    past = past_of(host.flows, record.hash, journal, execution, at, note)
    if at.endswith(COMPENSATION):
        return InterventionPlan({at: ""}, len(past.kept), state=past.values)
    kept = past.kept | {address for address, _ in past.results if not within(address, at)}
    again = {address: effect for address, effect in acted.items() if address not in kept}
    return InterventionPlan(again, len(past.kept), state=past.values)


def planned_cancellation(host: Host, execution: str) -> InterventionPlan:
    """Return what `cancel` would do.

    Raises:
        Conflict: The execution has ended.
    """
    record, journal = host.store.execution(execution), read(host.store, execution)
    if record.status in ENDED:
        raise Conflict(f"execution {execution} has {record.status}")
    if not journal:
        return InterventionPlan()
    graph, state = _state_at(host, record.hash, journal)
    stopped = tuple(address for address, _ in running(graph, state).values())
    now = max(host.clock.now(), state["now"])
    commands = advance(
        graph, state, {"type": "cancel", "at": now, "reason": "", "by": "", "now": False}
    )
    undone = being_undone(state)
    begun = (command.address for command in commands if isinstance(command, Run))
    cleanup = tuple(address for address in begun if not address.endswith(COMPENSATION))
    return InterventionPlan(stopped=stopped, undone=tuple(sorted(undone)), cleanup=cleanup)


def _state_at(host: Host, hash: str, journal: Sequence[Any]) -> tuple[Graph, State]:
    return state_at(host.flows, hash, journal, len(journal))


def _acts(node: Node) -> bool:
    return not node.plumbing and node.action in ("task", "approval", "wait")


def _effect(node: Node) -> str:
    return node.effect if node.action == "task" else ""
