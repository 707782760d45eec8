"""Previews of a retry, a fork or a cancellation. Nothing is recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flowengine.engines.executions.linked_flows import line, read, walk
from flowengine.engines.executions.moments import Moment
from flowengine.engines.host import Host
from flowengine.engines.infos import InterventionPlan
from flowengine.engines.interventions.counterparts import running
from flowengine.engines.interventions.fork import check_not_undone
from flowengine.engines.interventions.fork_points import past_of
from flowengine.engines.interventions.repeated_calls import acts, begun_anew, effect_of, past_calls
from flowengine.engines.interventions.retracing import being_undone, event_of, within
from flowengine.engines.interventions.retrying import held_failures
from flowengine.engines.snapshots import state_at, unit_at
from flowengine.errors import Conflict
from flowengine.journal.records import ENDED
from flowengine.kernel import Graph, advance
from flowengine.kernel.commands import Observation, Run
from flowengine.kernel.notation.addresses import COMPENSATION
from flowengine.kernel.state.records import State
from flowengine.kernel.view import View

_OVER = frozenset({"succeeded", "failed", "cancelled", "skipped"})


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
    # Steps that the failure stopped run again, too.
    for address in dict.fromkeys([*held.addresses, *(address for address, _ in units.values())]):
        unit = unit_at(held.graph, held.state, address)
        step = None if unit is None else view.act_of(held.state["units"][unit])
        again[address] = "" if step is None else effect_of(view.node(step))
    past = read(host.store, execution)
    calls = past_calls(host, record.hash, past)
    again |= calls.within(begun_anew(held)).succeeded
    # Steps that succeeded after the failure, as those of `finally`, are discarded and run again.
    event = event_of(held, held.state["now"], 0, "")
    valid: list[Observation] = []
    for _ in walk(host.flows, record.hash, line([*past, event], len(past))[:-1], valid):
        pass
    done = {step.address for step in valid if step.status == "succeeded"}
    for address, effect in calls.succeeded.items():
        if address not in done and not address.endswith(COMPENSATION):
            again.setdefault(address, effect)
    return InterventionPlan(again, len(done))


def planned_fork(host: Host, execution: str, at: str) -> InterventionPlan:
    """Return what `fork` would do, except for the values and the flow that it is given.

    Raises:
        Conflict: As `fork`.
        NotFound: As `fork`.
    """
    record, journal = host.store.execution(execution), read(host.store, execution)
    check_not_undone(host, record, journal, at)
    is_undo, acted = at.endswith(COMPENSATION), dict[str, str]()

    def note(moment: Moment, seen: Sequence[Observation], is_later: bool) -> None:
        for step in seen:
            node = moment.graph.node(step.step)
            if not acts(node) or (step.address.endswith(COMPENSATION) and not is_undo):
                continue
            if is_later or within(step.address, at) or step.status not in _OVER:
                acted[step.address] = effect_of(node)
            else:
                acted.pop(step.address, None)

    past = past_of(host.flows, record.hash, journal, execution, at, note)
    kept = {*past.kept, *(past.undone if is_undo else ())}
    kept |= {address for address, _ in past.results if not within(address, at)}
    again = {address: effect for address, effect in acted.items() if address not in kept - {at}}
    outdated = () if is_undo else tuple(past.outdated)
    return InterventionPlan(again, len(past.kept), outdated=outdated, state=past.values)


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
    graph, state = state_at(host.flows, record.hash, journal, len(journal))
    stopped = tuple(address for address, _ in running(graph, state).values())
    due = [*_cleanups(graph, state)]
    now = max(host.clock.now(), state["now"])
    commands = advance(
        graph, state, {"type": "cancel", "at": now, "reason": "", "by": "", "now": False}
    )
    undone = being_undone(state)
    begun = [command.address for command in commands if isinstance(command, Run)]
    begun = [address for address in begun if not address.endswith(COMPENSATION)]
    cleanup = tuple(dict.fromkeys([*begun, *reversed(due)]))
    return InterventionPlan(stopped=stopped, undone=tuple(sorted(undone)), cleanup=cleanup)


def _cleanups(graph: Graph, state: State) -> Iterator[str]:
    """Yield the addresses of the steps of `finally` of the open scopes, outer ones first."""
    for scope in state["scopes"].values():
        final = graph.body(scope["body"]).final
        if final >= 0:
            for step in graph.body(graph.node(final).child).steps:
                yield f"{scope['path']}finally/{graph.node(step).id}"
