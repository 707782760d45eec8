"""What an execution did, read from its journal by replaying it.

Nothing about steps is stored beside the journal. Replaying tells each activation's attempts,
inputs, outputs and errors; it takes a few microseconds an event.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from flowengine.engines.budgets import budget_views
from flowengine.engines.journals import Moment, read, walk
from flowengine.engines.lists import decision_view, stored_wait_view
from flowengine.engines.outgoing import view as undelivered
from flowengine.engines.results import AttemptInfo, ExecutionInfo, StepInfo
from flowengine.engines.views import entry_view, execution_view
from flowengine.errors import NotFound
from flowengine.journal.format import unpack
from flowengine.journal.records import WaitFilter
from flowengine.kernel.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.engines.host import Host
    from flowengine.engines.programs import Programs
    from flowengine.kernel import Graph
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event, Warned

FOLLOW_SECONDS = 0.2
"""How often a journal that is followed is looked at."""
_OVER = frozenset({"succeeded", "skipped", "failed", "cancelled"})


def show(host: Host, execution: str, step: str | None) -> ExecutionInfo:
    """Return all about an execution.

    Args:
        host: The engine's.
        execution: Full id.
        step: Address of the only step wanted, in full; None: all.

    Returns:
        See `ExecutionInfo`.

    Raises:
        NotFound: The execution has no such step.
    """
    record = host.store.execution(execution)
    journal = read(host.store, execution)
    steps, last = _told(host.programs, record.hash, journal)
    if step is not None:
        steps = [found for found in steps if found["address"] == step]
        if not steps:
            raise NotFound(
                f"execution {execution} has no step '{step}'",
                hint=f"its steps are shown by: flowengine show {execution}",
            )
    for found in steps if step is None else ():
        for key in ("input", "tries"):
            found.pop(key, None)  # type: ignore[misc]
    first: Any = journal[0] if journal else {"inputs": {}}
    return {
        **execution_view(record),
        "durability": host.store.durability,
        **_budgets(host, execution, last),
        "inputs": first["inputs"],
        "steps": steps,
        "waits": [
            stored_wait_view(wait)
            for wait in host.store.waits(WaitFilter(execution=execution), None, 1000).items
        ],
        "undelivered": [undelivered(sent) for sent in host.store.undelivered(execution)],
        "warnings": [_warning(event) for event in journal if event["type"] == "warning"],
        "outputs": None if record.outputs is None else unpack(record.outputs),
        "error": None if record.error is None else unpack(record.error),
    }


def steps_of(programs: Programs, hash: str, journal: list[Event]) -> list[StepInfo]:
    """Return every activation of a journal with its attempts, in order of beginning.

    Args:
        programs: The flows that it was written under.
        hash: Of the flow that the execution runs now.
        journal: All events.
    """
    return _told(programs, hash, journal)[0]


def _told(
    programs: Programs, hash: str, journal: list[Event]
) -> tuple[list[StepInfo], Moment | None]:
    """Return every activation of a journal, and the last moment of it."""
    steps: dict[str, StepInfo] = {}
    seen: list[Observation] = []
    moment: Moment | None = None
    for moment in walk(programs, hash, journal, seen):
        for observation in seen:
            _fold(moment.graph, steps, observation)
        seen.clear()
        event = moment.event
        if event["type"] == "decided" and moment.address in steps:
            steps[moment.address]["decision"] = decision_view(dict(event))
        if "evidence" in event and moment.address in steps:
            _add_evidence(steps[moment.address], dict(event))
    return list(steps.values()), moment


def _budgets(host: Host, execution: str, last: Moment | None) -> ExecutionInfo:
    """Return the budgets of an execution, as part of what `show` tells."""
    if last is None:
        return {}
    at_work = host.keeper.holder(execution) is not None
    now = host.clock.now() if at_work else last.state["now"]
    found = budget_views(last.graph, last.state, now)
    return {"budgets": found} if found else {}


def entries(host: Host, execution: str, since: int, *, follow: bool) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal from a number on.

    Args:
        host: The engine's.
        execution: Full id.
        since: The first number wanted.
        follow: Wait for more until the execution has ended.

    Yields:
        See `entry_view`.
    """
    store = host.store
    hash = store.execution(execution).hash
    journal = read(store, execution)
    while follow and not journal:  # it is recorded and has not begun
        time.sleep(FOLLOW_SECONDS)
        journal = read(store, execution)
    ended = False
    for moment in walk(host.programs, hash, journal):
        if moment.number >= since:
            yield entry_view(moment.number, moment.event, moment.address)
        ended = moment.state["status"] in _OVER
        while follow and not ended and moment.number + 1 == len(journal):
            time.sleep(FOLLOW_SECONDS)
            more = store.events(execution, len(journal))
            journal.extend([unpack(entry.payload) for entry in more])


def _warning(event: Warned) -> dict[str, Any]:
    return {"at": format_time(event["at"]), "about": event["about"], "message": event["message"]}


def _fold(graph: Graph, steps: dict[str, StepInfo], seen: Observation) -> None:
    """Note what was observed of an activation."""
    at = format_time(seen.at)
    step = steps.get(seen.address)
    if step is not None and "ended_at" in step and seen.status in _OVER:
        return  # a step that failed is withdrawn with its scope
    if step is None or "ended_at" in step:
        node = graph.node(seen.step)
        step = steps[seen.address] = {
            "address": seen.address,
            "step": node.id,
            "kind": node.kind,
            "status": seen.status,
            "outcome": None,
            "attempts": 0,
            "started_at": at,
            "output": None,
            "error": None,
            "tries": [] if step is None else step["tries"],
        }
    step["status"] = seen.status
    if seen.input is not None:
        step["input"] = seen.input
    if seen.status == "running":
        step["tries"].append(_attempt(seen, at))
    if seen.attempt:
        step["attempts"] = seen.attempt
    if seen.status in _OVER or seen.status == "retrying":
        _end_attempt(step, seen, at)
    if seen.status in _OVER:
        step["ended_at"] = at
        step["outcome"], step["output"], step["error"] = seen.outcome, seen.output, seen.error


def _add_evidence(step: StepInfo, event: dict[str, Any]) -> None:
    """Note what shows why an attempt failed."""
    for attempt in reversed(step["tries"]):
        if attempt["attempt"] == event.get("attempt", attempt["attempt"]):
            attempt["evidence"] = event["evidence"]
            return


def _attempt(seen: Observation, at: str) -> AttemptInfo:
    return {
        "attempt": seen.attempt,
        "status": "running",
        "started_at": at,
        "input": seen.input,
    }


def _end_attempt(step: StepInfo, seen: Observation, at: str) -> None:
    tries = step["tries"]
    if not tries or "ended_at" in tries[-1]:
        return
    last = tries[-1]
    last["status"] = "failed" if seen.status == "retrying" else seen.status
    last["ended_at"] = at
    if seen.error is not None:
        last["error"] = seen.error
    else:
        last["output"] = seen.output
