"""The history of an execution, read from its journal by replay.

Replay yields each activation's attempts, inputs, outputs and errors. For executions with agents, an
index of the steps is stored beside the snapshots. To show all their steps, only the events since
the last snapshot are replayed.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine import registry
from flowengine.engines.executions.replay import Moment, read, unpacked, walk, walk_on
from flowengine.engines.executions.subjects import wholes
from flowengine.engines.executions.views import entry_view
from flowengine.engines.inspection.budgets import budget_views
from flowengine.engines.inspection.call_endings import shown_status
from flowengine.engines.inspection.indexed import Indexed, read_index
from flowengine.engines.inspection.unattended import standing_view
from flowengine.engines.interventions.retrying import again
from flowengine.engines.messages.delivery import view as undelivered
from flowengine.engines.people.waits import decision_view, stored_wait_view
from flowengine.engines.running.warnings import concerns_others
from flowengine.errors import Hint, NotFound
from flowengine.garbage import CollectedLater
from flowengine.journal.records import WaitFilter
from flowengine.journal.shapes import Sound, unpack_error, unpack_outputs
from flowengine.kernel.commands import Observation
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flowengine.engines.executions.linked_flows import LinkedFlows
    from flowengine.engines.host import Host
    from flowengine.engines.infos import AttemptInfo, ExecutionInfo, StepInfo
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel import Graph
    from flowengine.kernel.events import Event, Warned
    from flowengine.kernel.state.records import State

FOLLOW_SECONDS = 0.2
"""Seconds between two polls of a followed journal."""
_DONE = frozenset({"succeeded", "skipped", "cancelled"})
_OVER = frozenset({"succeeded", "skipped", "failed", "cancelled"})


class Last(NamedTuple):
    """An execution after its last event."""

    graph: Graph
    state: State


class _Shown(NamedTuple):
    """The displayed parts of an execution besides its record."""

    steps: list[StepInfo]
    last: Last | None
    """None: it has not begun."""
    warnings: list[Warned]


def show(host: Host, execution: str, step: str | None, *, plumbing: bool = False) -> ExecutionInfo:
    """Return all details of an execution.

    Args:
        host: Provides the store.
        execution: Full id.
        step: Full address of the only step to show. None: all.
        plumbing: Whether to include the connecting steps of a generated flow.

    Returns:
        See `ExecutionInfo`.

    Raises:
        NotFound: The execution has no such step.
    """
    record = host.store.execution(execution)
    with Sound(f"the journal of execution {execution}"):
        shown = None
        if step is None and not plumbing:
            with CollectedLater():  # everything read here stays referenced until it is shown
                shown = _by_index(host, record)
        steps, last, warnings = shown or _by_replay(host, record)
    _wait_with_what_is_inside(steps)
    if step is not None:
        steps = [found for found in steps if found["address"] == step]
        if not steps:
            raise NotFound(
                f"execution {execution} has no step '{step}'",
                hint=Hint(
                    f"see its steps: flowengine show {execution}",
                    http=f"see its steps: GET /v1/executions/{execution}",
                ),
            )
    elif not plumbing:
        steps = [step for step in steps if "plumbing" not in step or _needs_a_look(step, steps)]
    standing = standing_view(host, record)
    if standing["status"] in ("interrupted", "quarantined"):
        _stop(steps, "interrupted")
    elif standing["status"] == "waiting":
        _stop(steps, "waiting")
    for found in steps if step is None else ():
        for key in ("input", "tries", "subject"):
            found.pop(key, None)  # type: ignore[misc]
    error = unpack_error(record.error, f"execution {record.id}")
    return {
        **standing,
        **(again(host, record, read(host.store, record.id)) if record.status == "failed" else {}),
        "durability": host.store.durability,
        **_budgets(host, execution, last),
        "inputs": {} if last is None else last.state["inputs"],
        "steps": steps,
        "waits": [
            stored_wait_view(wait, None if last is None else last.state)
            for wait in host.store.waits(WaitFilter(execution=execution), None, 1000).items
        ],
        "undelivered": [undelivered(sent) for sent in host.store.undelivered(execution)],
        "warnings": [_warning(event) for event in warnings],
        "outputs": unpack_outputs(record.outputs, f"execution {record.id}"),
        "error": error,
    }


def _needs_a_look(step: StepInfo, steps: list[StepInfo]) -> bool:
    """Return whether to show a connecting step to users."""
    if step["status"] != "waiting":
        return step["status"] in ("failed", "refused", "uncertain", "retrying")
    inside = (f"{step['address']}/", f"{step['address']}[")
    return not any(step["address"].startswith(inside) for step in steps)


def _wait_with_what_is_inside(steps: list[StepInfo]) -> None:
    """Mark steps as waiting if something in them waits and nothing in them runs."""
    inside: dict[str, set[str]] = defaultdict(set)
    open_steps = [step for step in steps if "ended_at" not in step]
    for step in sorted(open_steps, key=lambda candidate: len(candidate["address"]), reverse=True):
        address = step["address"]
        if step["status"] == "running" and inside[address] == {"waiting"}:
            step["status"] = "waiting"
        for sign in re.finditer(r"[/[@]", address):
            inside[address[: sign.start()]].add(step["status"])


def _stop(steps: list[StepInfo], status: str) -> None:
    """Give running steps another status, because their process is gone."""
    for step in steps:
        for each in (step, *step["tries"]):
            if each["status"] == "running":
                each["status"] = status


def _by_replay(host: Host, record: ExecutionRecord) -> _Shown:
    """Return the steps of an execution, its last moment, and its warnings, from its journal."""
    journal = read(host.store, record.id)
    steps, last = _steps_of(host.flows, record.hash, journal)
    now = None if last is None else Last(last.graph, last.state)
    return _Shown(steps, now, _warnings(journal))


def _by_index(host: Host, record: ExecutionRecord) -> _Shown | None:
    """Return the same from the index of the steps and later events. None: it has no index."""
    found = read_index(host, record)
    if found is None:
        return None
    log = _StepLog()
    done = _done_plumbing(found)
    for entry in found.records:
        if isinstance(entry, Observation):
            log.pass_over(entry) if entry.address in done else log.fold(found.graph, entry)
        else:
            log.add(*entry)
    seen: list[Observation] = []
    for moment in walk_on(host.flows, *found[:3], found.tail, seen):
        log.take(moment, seen)
    events = [
        *(entry[1] for entry in found.records if not isinstance(entry, Observation)),
        *found.tail,
    ]
    return _Shown([*log.steps.values()], Last(found.graph, found.state), _warnings(events))


def _done_plumbing(found: Indexed) -> set[str]:
    """Return the addresses of connecting steps that are never shown."""
    node, steps = found.graph.node, found.graph.flow["steps"]
    statuses = {
        record.address: shown_status(record, steps[record.step])
        for record in found.records
        if isinstance(record, Observation) and node(record.step).plumbing
    }
    return {address for address, status in statuses.items() if status in _DONE}


def steps_of(flows: LinkedFlows, hash: str, journal: list[Event]) -> list[StepInfo]:
    """Return every activation of a journal with its attempts, in order of beginning.

    Args:
        flows: The flows under which it was written.
        hash: Hash of the flow that the execution runs now.
        journal: All events.
    """
    return _steps_of(flows, hash, journal)[0]


def _steps_of(
    flows: LinkedFlows, hash: str, journal: list[Event]
) -> tuple[list[StepInfo], Moment | None]:
    """Return every activation of a journal, and its last moment."""
    log = _StepLog()
    seen: list[Observation] = []
    moment: Moment | None = None
    for moment in walk(flows, hash, journal, seen):
        log.take(moment, seen)
    return list(log.steps.values()), moment


def _reopen(moment: Moment, steps: dict[str, StepInfo]) -> None:
    """Mark the steps as running again that had ended with the failure before a retry."""
    view = View(moment.graph, moment.state)
    acts = [other for other in moment.state["acts"].values() if not other.get("left_early")]
    at_work = [(view.step_address(act), "running") for act in acts]
    for unit in moment.state["units"].values():
        status = "waiting" if unit["phase"] in ("wait", "asked", "lock") else "running"
        at_work.append((view.address(unit), status))
    for address, status in at_work:
        step = steps.get(address)
        if step is not None and "ended_at" in step:
            del step["ended_at"]
            step["status"] = status
            step["outcome"] = step["output"] = step["error"] = None


def _budgets(host: Host, execution: str, last: Last | None) -> ExecutionInfo:
    """Return the budgets of an execution, as part of the result of `show`."""
    if last is None:
        return {}
    at_work = host.holder(execution) is not None
    now = host.clock.now() if at_work else last.state["now"]
    found = budget_views(last.graph, last.state, now)
    return {"budgets": found} if found else {}


def entries(host: Host, execution: str, since: int, *, follow: bool) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal, starting at a number.

    Args:
        host: Provides the store.
        execution: Full id.
        since: Number of the first entry.
        follow: Wait for further entries until the execution has ended.

    Yields:
        See `entry_view`.
    """
    for entry in feed(host, execution, since):
        if entry is not None:
            yield entry
        elif not follow:
            return
        else:
            time.sleep(FOLLOW_SECONDS)


def feed(host: Host, execution: str, since: int) -> Iterator[dict[str, Any] | None]:
    """Yield the entries of a journal, and None when there is no new one, until it has ended.

    Args:
        host: Provides the store.
        execution: Full id.
        since: Number of the first entry.

    Yields:
        See `entry_view`. None: look again later.
    """
    store = host.store
    hash = store.execution(execution).hash
    journal = read(store, execution)
    while not journal:  # it is recorded and has not begun
        yield None
        journal = read(store, execution)
    ended = False
    for moment in walk(host.flows, hash, journal):
        if moment.number >= since:
            yield entry_view(moment.number, moment.event, moment.address, moment.why)
        ended = moment.state["status"] in _OVER
        while not ended and moment.number + 1 == len(journal):
            more = store.events(execution, len(journal))
            journal.extend(unpacked(execution, more))
            if not more:
                yield None


def _warnings(events: Sequence[Event]) -> list[Warned]:
    return [event for event in events if event["type"] == "warning" and concerns_others(event)]


def _warning(event: Warned) -> dict[str, Any]:
    return {"at": format_time(event["at"]), "about": event["about"], "message": event["message"]}


class _StepLog:
    """The observations of each activation.

    Attributes:
        steps: Address → activation, in order of beginning.
    """

    def __init__(self) -> None:
        self.steps: dict[str, StepInfo] = {}
        self._earlier: dict[str, int] = {}
        """Number of tries of an activation before it began anew."""
        self._begun: dict[str, str] = {}
        """When the first item or round of a running step began."""
        self._last_time = (0, "")

    def take(self, moment: Moment, seen: list[Observation]) -> None:
        """Record the effects of an event.

        Args:
            moment: The event.
            seen: The observations. Empty afterwards.
        """
        for observation in seen:
            self.fold(moment.graph, observation)
        seen.clear()
        if moment.event["type"] == "retry":
            _reopen(moment, self.steps)
        self.add(moment.address, moment.event)
        if moment.subject is not None and moment.address in self.steps:
            self.steps[moment.address]["subject"] = moment.subject

    def add(self, address: str | None, event: Event) -> None:
        """Record an event's information on a step that was not observed by the kernel."""
        step = None if address is None else self.steps.get(address)
        if step is None:
            return
        if event["type"] == "decided":
            if "decision" in step:
                step.setdefault("earlier_decisions", []).append(step["decision"])
            step["decision"] = decision_view(dict(event))
        if "evidence" in event:
            _add_evidence(step, dict(event))

    def fold(self, graph: Graph, seen: Observation) -> None:
        """Record an observation of an activation."""
        at = self._time(seen.at)
        step = self.steps.get(seen.address)
        if step is not None and "ended_at" in step and seen.status in _OVER:
            return  # a failed step is withdrawn with its scope
        if step is None or "ended_at" in step:
            step = self._begin(graph, seen, at)
        step["status"] = seen.status
        if seen.input is not None:
            step["input"] = seen.input
        if seen.status == "running" and self._begins_late(step, seen):
            step["tries"][-1]["started_at"] = at
            return
        if seen.status in ("running", "uncertain"):
            _interrupt_attempt(step, at)
        if seen.status == "running":
            step["tries"].append(_attempt(seen, at, len(step["tries"]) + 1))
        if seen.attempt:
            step["attempts"] = max(len(step["tries"]) - self._earlier[seen.address], 1)
        if seen.status in _OVER or seen.status == "retrying":
            _end_attempt(step, seen, at)
        if seen.status in _OVER:
            teller = graph.node(seen.step).teller
            if teller is not None and seen.output is not None:
                summary = registry.summary(teller, seen.output)
                step |= {} if summary is None else {"summary": summary}
            step["ended_at"] = at
            step["status"] = shown_status(seen, graph.flow["steps"][seen.step])
            step["outcome"], step["output"] = seen.outcome, seen.output
            step["error"] = None if step["status"] == "succeeded" else seen.error

    def pass_over(self, seen: Observation) -> None:
        """Record only that an item or round existed, because its step is not shown."""
        for whole in wholes(seen.address):
            self._begun.setdefault(whole, self._time(seen.at))

    def _begins_late(self, step: StepInfo, seen: Observation) -> bool:
        """Return whether an attempt begins that an earlier process left to a later one."""
        number = len(step["tries"]) - self._earlier.get(seen.address, 0)
        open_tries = [one for one in step["tries"][-1:] if "ended_at" not in one]
        return number == seen.attempt and bool(open_tries)

    def _time(self, at: int) -> str:
        if self._last_time[0] != at:  # all effects of an event have the same time
            self._last_time = at, format_time(at)
        return self._last_time[1]

    def _begin(self, graph: Graph, seen: Observation, at: str) -> StepInfo:
        """Return a new activation. A map or loop begins with its first item or round."""
        node = graph.node(seen.step)
        tries = self.steps[seen.address]["tries"] if seen.address in self.steps else []
        self._earlier[seen.address] = len(tries)
        for whole in wholes(seen.address):
            self._begun.setdefault(whole, at)
        step = self.steps[seen.address] = {
            "address": seen.address,
            "step": node.id,
            "kind": node.kind,
            "status": seen.status,
            "outcome": None,
            "attempts": 0,
            "started_at": self._begun.pop(seen.address, at),
            "output": None,
            "error": None,
            "tries": tries,
        }
        if node.plumbing:
            step["plumbing"] = True
        return step


def _add_evidence(step: StepInfo, event: dict[str, Any]) -> None:
    """Record the evidence of a failed attempt."""
    for attempt in reversed(step["tries"]):
        if "ended_at" in attempt:
            attempt["evidence"] = event["evidence"]
            return


def _attempt(seen: Observation, at: str, number: int) -> AttemptInfo:
    return {
        "attempt": number,
        "status": "running",
        "started_at": at,
        "input": seen.input,
    }


def _interrupt_attempt(step: StepInfo, at: str) -> None:
    """Note that the process of an attempt is gone: another attempt begins, or an operator is asked.

    Nobody knows when it ended. It was noticed at the time `at`.
    """
    for last in step["tries"][-1:]:
        if "ended_at" not in last:
            last["status"], last["ended_at"] = "interrupted", at


def _end_attempt(step: StepInfo, seen: Observation, at: str) -> None:
    tries = step["tries"]
    if not tries or "ended_at" in tries[-1]:
        return
    last = tries[-1]
    last["status"] = "failed" if seen.error is not None else seen.status
    last["ended_at"] = at
    if seen.error is not None:
        last["error"] = seen.error
    else:
        last["output"] = seen.output
