"""Forks: new executions that continue from a point of an existing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.attempts.failures import COMPENSATION
from flowengine.engines.attempts.runtime_resources import check_names
from flowengine.engines.executions.replay import (
    first_form,
    forms,
    line,
    read,
    running,
    state_at,
    unit_at,
    walk,
    with_holds,
)
from flowengine.engines.flows import as_loaded
from flowengine.engines.interventions.retracing import within
from flowengine.engines.interventions.retrying import fork_at
from flowengine.engines.interventions.undoing import compensations, undoing, undone_in
from flowengine.engines.starting.beginning import execution_data, new_record
from flowengine.errors import Conflict, Hint, InputError, NotFound
from flowengine.journal.shapes import Sound
from flowengine.kernel.view import View
from flowengine.validation import validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.executions.linked_flows import LinkedFlow, LinkedFlows
    from flowengine.engines.executions.replay import Moment
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.host import Host
    from flowengine.flow.building import Flow
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event

    Results = dict[tuple[str, int], Any]
    """Address and attempt → the event with its result."""


def fork(
    host: Host,
    old: str,
    at: str,
    values: Mapping[str, Any] | None,
    flow: Flow | LoadedFlow | str | PathLike[str] | None,
    id: str | None,
    labels: Mapping[str, str] | None,
    user: str,
    resources: Mapping[str, Any] | None = None,
) -> Execution:
    """Create an execution that shares the past of another one up to the start of a step.

    That step starts again, after `values` are written into the state. Other steps that were waiting
    then keep waiting. A step that was running takes its later result from the old execution.
    Without a result it counts as interrupted. A fork at a compensation undoes the steps that the
    old execution has not undone yet.

    Args:
        host: Provides the store.
        old: Its id, or an unambiguous prefix of it. It is not changed.
        at: Address of the step.
        values: State to write.
        flow: A changed flow, if any.
        id: Id of the new execution. None: a new id.
        labels: Labels to filter lists by. None: those of the old execution.
        user: The user who forks it.
        resources: Objects of the caller for it, by name.

    Returns:
        The new execution, with its lease. Its first commit creates it.
    """
    changed = None if flow is None else as_loaded(flow)
    values, old = values or {}, host.store.find_execution(old)
    record = host.store.execution(old)
    journal = read(host.store, old)
    _check_not_undone(host, record, journal, at)
    with Sound(f"what is stored of execution {old}"):
        found = _past(host.flows, record.hash, journal, old, at)
    past, results = found.events, found.results
    before = host.flows.by_hash(_form_then(journal, past, record.hash))
    linked = before if changed is None else host.flows.of(changed.compiled, changed.form)
    if linked is not before:
        _check_same_past(host.flows, before, linked, past, at)
    values = _checked_state(linked, values)
    now = host.clock.now()
    data = execution_data(host, linked.compiled, now, id, labels or record.labels, user)
    if "environments" in past[0]["execution"]:
        data["environments"] = past[0]["execution"]["environments"]
    check_names(linked.compiled, resources or {}, data.get("environments", {}))
    if brought := {*past[0]["execution"].get("resources", ()), *(resources or ())}:
        data["resources"] = sorted(brought)
    host.bring(data["id"], resources or {})
    past[0] = {**past[0], "execution": data}
    execution = host.execution(data["id"], linked, 1)
    graph, state = state_at(host.flows, linked.hash, past, len(past))
    new = new_record(linked, data, now, host.keeper.owner.id, f"{old} at {at}", files_of=old)
    host.keeper.reserve(data["id"])
    execution.begin_with(new, past, state, forms(past))
    # Written at the time of the past, because the retry extends the deadlines of steps by the time
    # since then.
    written: Any = {"type": "state", "at": state["now"], "values": dict(values), "by": user}
    again, *late = _again(View(graph, state), at, results, now, user)
    if at.endswith(COMPENSATION):
        again["undone"] = found.undone
    else:
        late += _warnings(record, found, now)
    execution.queue += [written, again, *late]
    return execution


def _form_then(journal: Sequence[Event], past: Sequence[Any], hash: str) -> str:
    """Return the hash of the flow that an execution ran at the end of a part of its journal."""
    upgrades = [event for event in past if event["type"] == "upgraded"]
    after: str = upgrades[-1]["after"] if upgrades else first_form(journal, hash)
    return after


def _again(view: View, at: str, results: Results, now: int, user: str) -> list[Any]:
    """Return the event that restarts a step, and the results that follow it."""
    late = [{**result, "at": now} for result in _came_later(view, at, results)]
    again = {"type": "retry", "at": now, "by": user, **_beginning(view, at)}
    if late:
        again["late"] = [result["unit"] for result in late]
    if anew := _whole(view):
        again["overdue"] = anew
    return [again, *late]


def _beginning(view: View, at: str) -> dict[str, Any]:
    """Return the fields of the event that identify the step to restart."""
    if view.state.get("hold", {}).get("at") == at:
        return {"unit": None, "hold": {"at": at}}
    return {"unit": unit_at(view.graph, view.state, at)}


def _came_later(view: View, at: str, results: Results) -> list[Any]:
    """Return the later results of attempts that ran beside the step of a fork, which are facts.

    If the step is not active or held, other attempts may depend on it, so nothing is returned.
    """
    state = view.state
    tables: list[Any] = [state["units"], state["acts"], state["scopes"]]
    is_held = any("then" in record for table in tables for record in table.values())
    if not is_held and unit_at(view.graph, state, at) is None:
        return []
    beside = {
        n: attempt
        for n, attempt in running(view.graph, state).items()
        if not within(attempt[0], at)
    }
    return [{**results[attempt], "unit": n} for n, attempt in beside.items() if attempt in results]


def _results(moment: Moment, journal: Sequence[Event]) -> Results:
    """Return the later results of the attempts that run at a moment.

    Results after the next retry or upgrade of the execution are ignored.
    """
    at_work = running(moment.graph, moment.state)
    found: Results = {}
    for event in journal[moment.number + 1 :]:
        if event["type"] in {"retry", "upgraded"}:
            break
        if event["type"] == "succeeded":
            attempt = at_work.get(event["unit"])
            if attempt is not None and attempt[1] == event["attempt"]:
                found.setdefault(attempt, event)
    return found


def _check_not_undone(
    host: Host, record: ExecutionRecord, journal: Sequence[Event], at: str
) -> None:
    """Check that no fork has done already what a fork at a compensation does.

    Raises:
        Conflict: One has undone it or a part of it, or is at work on it.
    """
    if not at.endswith(COMPENSATION):
        return
    found = undoing(host, record)
    step = at.removesuffix(COMPENSATION)
    if step in undone_in(host, record, journal):
        hint = Hint(f"flowengine show {host.store.short_execution(record.id)}")
        raise Conflict(f"'{step}' was undone by execution {record.id}", hint=hint)
    if not found.by:
        return
    step = step if step in found.by else next(iter(found.by))
    short = host.store.short_execution
    hint = Hint(f"see it: flowengine show {short(found.by[step])}")
    if found.left:
        command = fork_at(short(found.last), found.left[0] + COMPENSATION)
        hint = Hint(f"undo what is left: {command}")
    raise Conflict(
        f"'{step}' was undone by execution {found.by[step]}, a fork of this one", hint=hint
    )


def _warnings(record: ExecutionRecord, past: _Past, now: int) -> list[Any]:
    """Return a warning if steps that had succeeded before a fork begins were undone later."""
    undone = {address for address in past.undone if address not in past.kept}
    steps = {address.removesuffix(COMPENSATION) for address in undone} & past.kept
    message = (
        f"the fork keeps results that execution {record.id} has undone: "
        f"{', '.join(sorted(steps))}; if it compensates, they are undone again"
    )
    return [{"type": "warning", "at": now, "about": "fork", "message": message}] if steps else []


def _whole(view: View) -> list[int]:
    """Return the timer of the whole execution's limit, which starts anew in a fork."""
    root = view.root()["id"]
    timers = view.state["timers"].items()
    return [n for n, timer in timers if timer["why"] == "duration" and timer["ref"] == root]


class _Past(NamedTuple):
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


def _past(
    flows: LinkedFlows, hash: str, journal: Sequence[Event], execution: str, at: str
) -> _Past:
    """Return the past of a fork at a step.

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
        if not search.is_over:
            search.look(moment, seen[looked_at:])
            looked_at = until = len(seen)
        elif not compensates:
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
    kept = {one.address for one in before if one.status == "succeeded"}
    return _Past(events, results, kept, undone)


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
        """The past and the later results, as in `_Past`."""
        self.is_over = False

    def look(self, moment: Moment, seen: Sequence[Observation]) -> None:
        """Look at the next moment.

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
                self.found = past, _results(moment, self._journal)
            return
        past = line(self._journal, moment.number)
        if self.found is None and not at.endswith(COMPENSATION):
            past[-1] = with_holds(past[-1], {"at": at})
        self.found, self.is_over = (past, _results(moment, self._journal)), True


def _check_same_past(
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
    for linked, observed in zip((old, new), seen, strict=True):
        for _ in walk(flows, linked.hash, past, observed):
            pass
    ways = [[(o.address, o.status, o.outcome) for o in observed] for observed in seen]
    if ways[0] != ways[1]:
        where = next(
            (a[0] for a, b in zip(*ways, strict=False) if a != b), "the end of what was done"
        )
        raise Conflict(
            f"the changed flow differs before '{at}': at '{where}'",
            hint="change only what comes after the step to fork at",
        )


def _checked_state(linked: LinkedFlow, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values to write into the state, checked.

    Raises:
        InputError: The flow does not declare the key, or the value does not match.
    """
    declared = linked.compiled.get("state", {})
    checked = {}
    for key, value in values.items():
        if key not in declared:
            known = ", ".join(declared) or "none"
            raise InputError(f"there is no state '{key}'", field=key, hint=f"state: {known}")
        checked[key] = validate(declared[key].get("schema", {}), value, f"state '{key}'")
    return checked
