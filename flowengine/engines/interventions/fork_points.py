"""Points of an execution at which a fork can begin, each with the past that the fork shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from flowengine.engines.executions.linked_flows import (
    LinkedFlow,
    LinkedFlows,
    first_form,
    line,
    read,
    walk,
    with_holds,
)
from flowengine.engines.executions.moments import Moment
from flowengine.engines.host import Host
from flowengine.engines.interventions.counterparts import running
from flowengine.engines.snapshots import unit_at
from flowengine.errors import Conflict, FlowEngineError, Hint, NotFound
from flowengine.journal.records import ENDED, ExecutionFilter, ExecutionRecord
from flowengine.journal.shapes import Sound, unpack_error
from flowengine.journal.store import every_execution
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Ended, ErrorData, Event
from flowengine.kernel.notation.addresses import COMPENSATION
from flowengine.kernel.view import View


class Undoing(NamedTuple):
    """The state, in forks, of the steps that an execution has not undone itself."""

    by: dict[str, str]
    """Address of a step → the fork that undid it, or is at work on it."""
    left: list[str]
    """Addresses of those that no fork undid, in the order in which they are undone."""
    last: str
    """The execution to fork, to undo them: in its past, everything else is undone."""


def undoing(host: Host, record: ExecutionRecord) -> Undoing:
    """Return which steps that an execution has not undone were undone in its forks.

    Args:
        record: Of a failed execution.
    """
    return _followed(host, record, not_undone(unpack_error(record.error, f"execution {record.id}")))


def _followed(host: Host, record: ExecutionRecord, left: list[str]) -> Undoing:
    by: dict[str, str] = {}
    last = record.id
    forks = every_execution(host.store, ExecutionFilter(forked_from=record.id)) if left else ()
    for fork in forks:
        if not str(fork.forked_from).endswith(COMPENSATION):
            continue
        done = left
        if fork.status in ENDED:
            with Sound(f"the journal of execution {fork.id}"):
                undone = compensated(host.flows, fork.hash, read(host.store, fork.id))
            done = [step for step in left if f"{step}{COMPENSATION}" in undone]
        by |= dict.fromkeys(done, fork.id)
        later = _followed(host, fork, [step for step in left if step not in by])
        by |= later.by
        if done or later.by:
            last = later.last
        left = later.left
    return Undoing(by, left, last)


def undone_in(host: Host, record: ExecutionRecord) -> list[str]:
    """Return the addresses of the steps that a fork at a compensation has undone itself."""
    if not str(record.forked_from).endswith(COMPENSATION):
        return []
    seen: list[Observation] = []
    for moment in walk(host.flows, record.hash, read(host.store, record.id), seen):
        if moment.event["type"] == "retry":
            seen.clear()  # the past of the execution that was forked
    return [address.removesuffix(COMPENSATION) for address in compensations(seen)]


def compensated(flows: LinkedFlows, hash: str, journal: Sequence[Event]) -> list[str]:
    """Return the addresses of the compensations that have succeeded, or had before a fork."""
    seen: list[Observation] = []
    before: list[str] = []
    for moment in walk(flows, hash, journal, seen):
        if moment.event["type"] == "retry":
            before += moment.event.get("undone", ())
    return before + compensations(seen)


def compensations(seen: Sequence[Observation]) -> list[str]:
    """Return the addresses of the compensations among observations that have succeeded."""
    ended = (observation.address for observation in seen if observation.status == "succeeded")
    return [address for address in ended if address.endswith(COMPENSATION)]


Results = dict[tuple[str, int], Any]
"""Address and attempt → the event with its result."""
_MOST_TRIED = 20


def last_point(
    flows: LinkedFlows, hash: str, journal: Sequence[Event], new: LinkedFlow, first: Iterable[str]
) -> str | None:
    """Return the address of the last step at which a fork can begin with a changed flow.

    Args:
        flows: The flows under which the journal was written.
        hash: Hash of the flow that the execution runs now.
        journal: All its events.
        new: The changed flow.
        first: Addresses to try first.

    Returns:
        The address. None: it was not found among the last steps that began.
    """
    seen: list[Observation] = []
    begun: list[str] = []
    for _ in walk(flows, hash, journal, seen):
        begun += [step.address for step in seen if step.status != "skipped"]
        seen.clear()
    for at in list(dict.fromkeys([*first, *reversed(begun)]))[:_MOST_TRIED]:
        try:
            events = past_of(flows, hash, journal, "", at).events
            before = flows.by_hash(form_then(journal, events, hash))
            check_same_past(flows, before, new, events, at)
        except FlowEngineError:
            continue
        return at
    return None


def form_then(journal: Sequence[Event], past: Sequence[Any], hash: str) -> str:
    """Return the hash of the flow that an execution ran at the end of a part of its journal."""
    upgrades = [event for event in past if event["type"] == "upgraded"]
    after: str = upgrades[-1]["after"] if upgrades else first_form(journal, hash)
    return after


def _results(moment: Moment, journal: Sequence[Event]) -> Results:
    """Return the later results of the attempts that run at a moment.

    Results after the next retry or upgrade of the execution are ignored.
    """
    at_work = running(moment.graph, moment.state)
    results: Results = {}
    for event in journal[moment.number + 1 :]:
        if event["type"] in {"retry", "upgraded"}:
            break
        if event["type"] == "succeeded":
            attempt = at_work.get(event["unit"])
            if attempt is not None and attempt[1] == event["attempt"]:
                results.setdefault(attempt, event)
    return results


class ForkPast(NamedTuple):
    """The past of a fork, read in one walk through the journal of the execution."""

    events: list[Any]
    """The events up to the start of the step. The last of them holds the step before it begins. A
    compensation is not held but restarted. So is a step that was queued for a lock: it starts when
    it acquires the lock, after the steps queued before it."""
    results: Results
    """The later results of steps that run beside it."""
    kept: set[str]
    """Addresses of the steps that had succeeded by then."""
    undone: list[str]
    """Addresses of the compensations that have succeeded, then or later, or before a fork."""
    ended: dict[str, Ended]
    """The end of the attempt of the compensation that the fork repeats, as a field of its event."""
    values: dict[str, Any]
    """The state of the flow by then."""
    at_work: set[tuple[str, int]]
    """Address and attempt of what was running by then. Others begin because the step is held."""

    @property
    def outdated(self) -> list[str]:
        """Addresses of the steps whose results are kept although they were undone later."""
        undone = {address for address in self.undone if address not in self.kept}
        return sorted({address.removesuffix(COMPENSATION) for address in undone} & self.kept)


def past_of(
    flows: LinkedFlows,
    hash: str,
    journal: Sequence[Event],
    execution: str,
    at: str,
    note: Callable[[Moment, Sequence[Observation], bool], None] | None = None,
) -> ForkPast:
    """Return the past of a fork at a step.

    Args:
        flows: The flows under which the journal was written.
        hash: Hash of the flow that the execution runs now.
        journal: All its events.
        execution: Its id.
        at: Address of the step.
        note: Receives each moment of the whole journal with its observations, and whether it is
            after the start of the step.

    Raises:
        NotFound: No step with that address has started.
    """
    search = _Search(journal, at)
    seen: list[Observation] = []
    looked_at = until = 0
    undone: list[str] = []
    compensates = any("compensate" in step for step in flows.by_hash(hash).compiled["steps"])
    for moment in walk(flows, hash, journal, seen):
        if moment.event["type"] == "retry":
            undone += moment.event.get("undone", ())
        new, looked_at = seen[looked_at:], len(seen)
        if note is not None:
            note(moment, new, search.is_over)
        if not search.is_over:
            search.examine(moment, new)
            until = looked_at
        elif not compensates and note is None:
            break
    if search.found is None:
        raise NotFound(
            f"no step '{at}' has started in execution {execution}",
            hint=Hint(f"see its steps: flowengine show {execution}"),
        )
    events, results = search.found
    undone += compensations(seen)
    before = seen[:until]
    if undone and any("back" in event for event in journal):
        before = []  # without the results that a retry discarded
        for _ in walk(flows, hash, events, before):
            pass
    kept = {step.address for step in before if step.status == "succeeded"}
    ended = _end(seen[until:], at)
    return ForkPast(events, results, kept, undone, ended, search.values, search.at_work)


def _end(later: Sequence[Observation], at: str) -> dict[str, Ended]:
    """Return the end of the attempt that was running at the start of a fork, if it failed."""
    for step in later:
        if step.address == at and step.error is not None:
            return {"ended": {"at": step.at, "error": step.error}}
    return {}


class _Search:
    """Looks for the start of a step in a journal.

    Args:
        journal: All events.
        at: Address of the step.
    """

    def __init__(self, journal: Sequence[Event], at: str) -> None:
        self._journal = journal
        self._at = at
        self.found: tuple[list[Any], Results] | None = None
        """The past and the later results, as in `ForkPast`."""
        self.values: dict[str, Any] = {}
        self.at_work: set[tuple[str, int]] = set()
        self.is_over = False

    def examine(self, moment: Moment, seen: Sequence[Observation]) -> None:
        """Examine the next moment.

        Args:
            moment: The moment.
            seen: The observations that led to it.
        """
        at = self._at
        view, unit = View(moment.graph, moment.state), unit_at(moment.graph, moment.state, at)
        acts = moment.state["acts"].values()
        begun = {view.step_address(act) for act in acts}
        begun |= {observation.address for observation in seen}
        if unit is None and self.found is not None:
            self.is_over = True  # it was withdrawn from the queue
        if self.is_over or (unit is None and at not in begun):
            return
        if unit is not None and moment.state["units"][unit]["phase"] == "lock":
            if self.found is None:
                past = line(self._journal, moment.number)
                self._keep(moment)
                self.found = past, _results(moment, self._journal)
            return
        past = line(self._journal, moment.number)
        self._keep(moment)
        if self.found is None and not at.endswith(COMPENSATION):
            past[-1] = with_holds(past[-1], {"at": at})
        self.found, self.is_over = (past, _results(moment, self._journal)), True

    def _keep(self, moment: Moment) -> None:
        self.values = {key: cell[0] for key, cell in moment.state["vars"].items()}
        self.at_work = {*running(moment.graph, moment.state).values()}


def check_same_past(
    flows: LinkedFlows, old: LinkedFlow, new: LinkedFlow, past: Sequence[Event], at: str
) -> None:
    """Check that the events of the past lead to the same results in a changed flow.

    Raises:
        Conflict: The results differ.
    """
    if any(event["type"] == "upgraded" for event in past):
        raise Conflict(
            "it was upgraded to another version of its flow before that step",
            hint=Hint(
                "fork without a changed flow, then upgrade the fork: flowengine upgrade FILE ID"
            ),
        )
    seen: tuple[list[Observation], list[Observation]] = ([], [])
    held: list[bool] = []
    for linked, observed in zip((old, new), seen, strict=True):
        for moment in walk(flows, linked.hash, past, observed):
            acts = moment.state["acts"].values()
        held.append(any("call" in act and "then" in act for act in acts))
    if held[0] > held[1]:
        raise Conflict(f"the changed flow has no '{at}'", hint="fork at the step that calls it")
    ways = [[(o.address, o.status, o.outcome) for o in observed] for observed in seen]
    if ways[0] != ways[1]:
        where = next(
            (a[0] for a, b in zip(*ways, strict=False) if a != b), "the end of the history"
        )
        raise Conflict(
            f"the changed flow differs before '{at}': at '{where}'",
            hint="change only what comes after the step to fork at",
        )


def not_undone(error: ErrorData | None) -> list[str]:
    """Return the addresses of the steps whose compensation failed, if the error is about that."""
    return [address.removesuffix(COMPENSATION) for address in failed_compensations(error)]


def failed_compensations(error: ErrorData | None) -> list[str]:
    """Return the addresses of the compensations that failed, if the error reports that.

    The error may belong to items of a map, or be the cause of another error.
    """
    if not isinstance(error, dict):
        return []
    lines: list[str] = []
    if error.get("type") == "CompensationFailed":
        lines = [
            str(failure["step"]) for failure in _listed(error, "failures") if "step" in failure
        ]
    if error.get("type") == "MapFailed":
        for item in _listed(error, "failed"):
            lines += failed_compensations(item.get("error"))
    return list(dict.fromkeys([*lines, *failed_compensations(error.get("cause"))]))


def _listed(error: ErrorData, key: str) -> list[dict[str, Any]]:
    """Return the maps in a list of an error's data, which may have any shape if set by a tool."""
    data: Any = error.get("data")
    listed = data.get(key) if isinstance(data, dict) else None
    return (
        [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    )
