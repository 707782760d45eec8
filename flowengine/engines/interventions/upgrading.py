"""Upgrades: moving open executions to another version of their flow (docs/upgrading.md).

Each execution is checked under its lease: everything that its state refers to needs a counterpart,
or an entry in the mapping. Then an `upgraded` event is committed in one transaction, with the new
hash in the index and a snapshot. The execution runs the old version before this commit, and the new
one after it. An execution held by a living process cannot be moved, which is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from flowengine.engines.actors import Actor
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.linked_flows import LinkedFlow, read, walk
from flowengine.engines.flows import LoadedFlow, as_loaded
from flowengine.engines.host import Host
from flowengine.engines.infos import UpgradeInfo, Verdict
from flowengine.engines.interventions.fork_points import last_point
from flowengine.engines.interventions.lost_results import later, lost_results
from flowengine.engines.interventions.obstacles import Obstacle, obstacles
from flowengine.engines.running.recovery import recover
from flowengine.errors import Conflict, UsageError
from flowengine.flow.building.flow import Flow
from flowengine.journal.records import ENDED, ExecutionFilter, ExecutionRecord
from flowengine.journal.store import every_execution
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.graph.linked import GraphFlow as Linked
from flowengine.kernel.moving.counterparts import Pairing
from flowengine.kernel.state.records import Scope, State
from flowengine.kernel.view import View, waiting_arrivals
from flowengine.sdk import ValidationError
from flowengine.sdk.values.plain_values import to_plain


def order_obstacles(p: Pairing, state: State, ran: Collection[str]) -> list[Obstacle]:
    """Return the steps that a mapping puts back, and the joins with a missing token.

    Args:
        p: The two graphs. Everything that the state refers to has a counterpart.
        state: State of an open execution.
        ran: Names of the steps that have ended.
    """
    found: list[tuple[str, str]] = []
    acts = state["acts"]
    for scope in state["scopes"].values():
        body = p.bodies.get(scope["body"])
        if body is not None:
            live = [step for act, step in scope["live"].items() if not acts[act].get("left_early")]
            found += _put_back(p, scope, body, live, ran)
            found += _starving(p, scope, body, live)
    return [Obstacle("step", name, why, None, []) for name, why in dict(found).items()]


def _put_back(
    p: Pairing, scope: Scope, body: int, live: list[int], ran: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield running steps that are renamed to one before an ended step, which would run again."""
    ended = [step for step in p.old.body(scope["body"]).steps if p.step_name(step) in ran]
    over = [p.steps[step] for step in ended if step in p.steps]
    for old in live:
        new = p.steps.get(old, -1)
        if new < 0 or p.old.node(old).id == p.new_name(new):
            continue
        ahead = later(p.new, body, [new])
        again = (step for step in over if step in ahead and step != new)
        for step in again:
            if new not in later(p.new, body, [step]):
                why = f"'{p.new_name(step)}' has ended, and would run again after"
                yield p.step_name(old), f"{why} '{p.new_name(new)}'"
                break


def _starving(p: Pairing, scope: Scope, body: int, live: list[int]) -> Iterator[tuple[str, str]]:
    """Yield joins that wait for all their edges, and for one over which no token can come.

    An edge over which none can come in the old flow either changes nothing.
    """
    before = set(_missing(p.old, scope["body"], {*live}, _held(scope)))
    held = {
        p.steps.get(at, -1): [p.steps.get(n, n) for n in came] for at, came in _held(scope).items()
    }
    places = {p.steps[step] for step in live if step in p.steps}
    for join, source in _missing(p.new, body, places, held):
        olds = [old for old, new in p.steps.items() if new == join]
        if any((old, n) in before for old in olds for n, new in p.steps.items() if new == source):
            continue
        name = p.step_name(olds[0]) if olds else p.new_name(join)
        yield name, f"its join waits for '{p.new_name(source)}', which does not run any more"


def _held(scope: Scope) -> dict[int, list[int]]:
    """Return the joins that hold tokens, with the steps from which these came."""
    waiting = {number: waiting_arrivals(join) for number, join in scope["joins"].items()}
    return {at: [token["source"] for token in held] for at, held in waiting.items() if held}


def _missing(
    graph: Graph, body: int, places: set[int], held: dict[int, list[int]]
) -> Iterator[tuple[int, int]]:
    """Yield joins that wait for all their edges, each with a step from which no token can come."""
    ahead = later(graph, body, places)
    for number in graph.body(body).steps:
        node = graph.node(number)
        if (node.join or {}).get("kind") == "all" and (number in held or number in ahead):
            come = places | ahead | {*held.get(number, ())}
            yield from ((number, n) for n in node.sources if n >= 0 and n not in come)


def move_obstacles(
    old: Graph, new: Graph, state: State, mapping: Mapping[str, Any], ran: Collection[str] = ()
) -> list[Obstacle]:
    """Return the obstacles to moving an execution to another graph.

    Args:
        old: Its graph.
        new: The other graph.
        state: Its state, which is not changed.
        mapping: See `flowengine.kernel.moving.counterparts`.
        ran: Names of the steps that have ended. The state contains only some of them.

    Returns:
        One obstacle per named thing. Empty: it can be moved. The proposals in them are not tried,
            so a mapping with one of them may have further obstacles.
    """
    found = obstacles(old, new, state, mapping)
    if any(obstacle.what in ("step", "subflow") for obstacle in found):
        return found  # some of its tokens have no place yet
    pairing = Pairing(old, new, mapping)
    return found + order_obstacles(pairing, state, ran) + lost_results(pairing, state, ran)


SECTIONS = ("steps", "state", "signals", "inputs", "values")
"""Keys of a mapping. See `flowengine.kernel.moving.counterparts`."""
OVER = frozenset({"succeeded", "skipped", "failed", "cancelled"})


class Upgrading:
    """One call that moves executions.

    Args:
        host: Provides the store.
        flow: The form to move them to, or the path of its file.
        executions: Ids, or prefixes of them. Empty: all open executions of the flow that run
            another form.
        mapping: Names that differ in the new form. See `flowengine.kernel.moving.counterparts`.
        who: The actor.
        check: Only check whether each can be moved.

    Attributes:
        infos: The outcome for each execution checked so far, oldest first.
    """

    def __init__(
        self,
        host: Host,
        flow: Flow | LoadedFlow | str | PathLike[str],
        executions: Iterable[str],
        mapping: Mapping[str, Any] | None,
        who: Actor,
        *,
        check: bool,
    ) -> None:
        ids = list(dict.fromkeys(map(host.store.find_execution, executions)))
        form = as_loaded(flow)
        self._host = host
        self._who = who
        self._check = check
        self._linked = host.flows.of(form.compiled, form.form)
        self._records = of_flow(host, form, ids)
        self._mapping = check_mapping(host, self._records, self._linked, mapping or {})
        self.infos: list[UpgradeInfo] = []

    def __iter__(self) -> Iterator[Execution]:
        """Yield each execution to be moved, with its lease, to be driven.

        If its move was not committed, it is yielded again.
        """
        for record in self._records:
            info, execution = (self.preview(record), None) if self._check else self.begin(record)
            while execution is not None:
                yield execution
                if self.finish(info):
                    break
                info, execution = self.begin(record)
            self.infos.append(info)

    def preview(self, record: ExecutionRecord) -> UpgradeInfo:
        """Return the expected outcome for an execution in its stored state."""
        host = self._host
        execution = host.stored(record.id, 0)
        info = assess(host, execution, record, self._linked, self._mapping)
        if info["verdict"] == "continues" and host.holder(record.id) is not None:
            info["verdict"] = "held"
        return info

    def begin(self, record: ExecutionRecord) -> tuple[UpgradeInfo, Execution | None]:
        """Lease an execution and queue the move, before all events since.

        Args:
            record: Its entry in lists.

        Returns:
            The report, and the execution with its lease if it is to be moved.
        """
        host = self._host
        try:
            epoch = host.keeper.acquire(record.id, is_driving=False)
        except Conflict:
            info = self.preview(record)
            if info["verdict"] == "continues":  # its holder released it just now
                info["verdict"] = "held"
            return info, None
        execution = host.execution(
            record.id, host.flows.by_hash(record.hash), epoch, record.started_by
        )
        try:
            loaded = host.store.load(record.id)
            execution.load(loaded)
            info = assess(host, execution, loaded.record, self._linked, self._mapping)
            if info["verdict"] == "continues":
                now = host.clock.now()
                event = upgraded(execution, self._linked, self._mapping, self._who, now)
                execution.queue.append(event)
                recover(host, execution)
                return info, execution
        except BaseException:
            host.keeper.release([(record.id, epoch)])
            raise
        host.keeper.release([(record.id, epoch)])
        return info, None

    def finish(self, info: UpgradeInfo) -> bool:
        """Update the report of an execution that was to be moved, and return whether it was."""
        record = self._host.store.execution(info["execution"])
        info["status"] = record.status  # type: ignore[typeddict-item]
        info["moved"] = record.hash == self._linked.hash
        return info["moved"]


def of_flow(host: Host, flow: LoadedFlow, ids: Sequence[str]) -> list[ExecutionRecord]:
    """Return the executions to be moved.

    Args:
        host: Provides the store.
        flow: The form to move them to.
        ids: Full ids. Empty: all open executions of the flow that run another form.

    Returns:
        Their entries in lists, oldest first.

    Raises:
        Conflict: An execution runs another flow.
    """
    records = [host.store.execution(id) for id in ids] or list(_open(host, flow.id))[::-1]
    for record in records:
        if record.flow != flow.id:
            raise Conflict(f"execution {record.id} is of the flow '{record.flow}', not '{flow.id}'")
    return records if ids else [record for record in records if record.hash != flow.form]


def _open(host: Host, flow: str) -> Iterator[ExecutionRecord]:
    records = every_execution(host.store, ExecutionFilter(flow))
    return (record for record in records if record.status not in ENDED)


def check_mapping(
    host: Host, records: Sequence[ExecutionRecord], linked: LinkedFlow, mapping: Mapping[str, Any]
) -> dict[str, Any]:
    """Check that a mapping contains only existing names.

    Args:
        host: Provides the store.
        records: The executions that it is for.
        linked: The form to move to.
        mapping: See `flowengine.kernel.moving.counterparts`.

    Returns:
        The mapping as plain data.

    Raises:
        UsageError: It contains a name that exists in no form.
    """
    try:
        plain = {
            name: target for name, target in to_plain(dict(mapping)).items() if target is not None
        }
    except ValidationError as error:
        raise UsageError(f"the mapping is not plain data: {error}") from None
    for section, names in plain.items():
        if section not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise UsageError(f"a mapping has no section '{section}'", hint=f"known: {known}")
        if not isinstance(names, dict):
            raise UsageError(f"'{section}' of a mapping maps old names to new ones")
    olds = [host.flows.by_hash(hash) for hash in dict.fromkeys(record.hash for record in records)]
    for section in SECTIONS[:-1]:
        _check_names(olds, linked, section, plain.get(section, {}))
    for section, values in plain.get("values", {}).items():
        if section not in ("inputs", "state") or not isinstance(values, dict):
            raise UsageError("'values' of a mapping has 'inputs' and 'state', each with values")
        for name in values:
            if name not in _names(linked, section):
                raise UsageError(f"values.{section}: the new flow has no '{name}'")
    return plain


def _check_names(
    olds: Sequence[LinkedFlow], linked: LinkedFlow, section: str, renamed: Mapping[str, Any]
) -> None:
    """Check that both names of each entry of a section exist.

    Raises:
        UsageError: A name does not exist.
    """
    there = _names(linked, section)
    for old, new in renamed.items():
        if olds and not any(old in _names(old_flow, section, qualified=True) for old_flow in olds):
            raise UsageError(f"{section}: no execution to be moved has '{old}'")
        dropped = new is None and section in ("state", "signals")
        if not dropped and (not isinstance(new, str) or new not in there):
            known = ", ".join(sorted(there)) or "none"
            if new is None:
                why = f"{section}: '{old}' cannot be dropped, it needs a new name"
            else:
                why = f"{section}: the new flow has no '{new}'"
            raise UsageError(why, hint=f"it has: {known}", plain=why, flow=linked.compiled["id"])


def _names(linked: LinkedFlow, section: str, *, qualified: bool = False) -> set[str]:
    """Return the names of a flow and its subflows: steps, state keys, signals or inputs."""
    addresses: set[str] = set()
    for number, flow in enumerate(linked.graph.flows):
        own = _of_flow(linked, flow, section)
        if number == 0 or not qualified:
            addresses |= own
        if number and qualified:
            addresses |= {f"{flow.id}:{name}" for name in own}
            addresses |= own if section == "signals" else set()
    return addresses


def _of_flow(linked: LinkedFlow, flow: Linked, section: str) -> set[str]:
    if section == "steps":
        steps = (linked.graph.node(number) for number in range(*flow.steps))
        return {node.id for node in steps if node.body >= 0}
    return set(getattr(flow, section))


def assess(
    host: Host,
    execution: Execution,
    record: ExecutionRecord,
    linked: LinkedFlow,
    mapping: Mapping[str, Any],
) -> UpgradeInfo:
    """Return whether an execution can continue with another version of its flow, and why not.

    Args:
        host: Provides the store.
        execution: The execution, as stored.
        record: Its entry in lists.
        linked: The form to move it to.
        mapping: The checked mapping.
    """
    blocking: list[Obstacle] = []
    verdict: Verdict = "continues"
    fork: str | None = None
    if record.status in ENDED:
        verdict = "ended"
    elif record.hash == linked.hash:
        verdict = "current"
    elif not execution.seq:
        why = f"it has not started. Start it with: flowengine resume {record.id}"
        verdict, blocking = "cannot", [Obstacle("execution", "", why, None, [])]
    else:
        ran = steps_that_ran(host, record)
        graph = execution.linked.graph
        found = move_obstacles(graph, linked.graph, execution.state, mapping, ran)
        blocking = sorted(found, key=lambda obstacle: obstacle.write is not None)
        if any(obstacle.write is None for obstacle in blocking):
            verdict, fork = "cannot", _fork_point(host, execution, record, linked)
            blocking = [obstacle._replace(write=None, fits=[]) for obstacle in blocking]
        elif blocking:
            verdict = "mapping"
    return {
        "execution": record.id,
        "flow": record.flow,
        "version": record.version or "",
        "status": record.status,  # type: ignore[typeddict-item]
        "verdict": verdict,
        "moved": False,
        "obstacles": [
            {"what": a.what, "name": a.name, "why": a.why, "write": a.write, "fits": a.fits}
            for a in blocking
        ],
        "write": _written(blocking),
        "fork": fork,
    }


def _fork_point(
    host: Host, execution: Execution, record: ExecutionRecord, linked: LinkedFlow
) -> str | None:
    """Return where a fork with another version of the flow can start, at best where it is now."""
    view = View(execution.linked.graph, execution.state)
    acts = execution.state["acts"].values()
    # A fork at a step that runs a flow repeats what has succeeded in it, so it comes last.
    nodes = ((view.node(act), act) for act in acts)
    at_work = [view.step_address(act) for node, act in nodes if node.child < 0]
    journal = read(host.store, record.id)
    return last_point(host.flows, record.hash, journal, linked, at_work)


def _written(blocking: Sequence[Obstacle]) -> dict[str, Any]:
    """Return all entries to add to the mapping."""
    whole: dict[str, Any] = {}
    for obstacle in blocking:
        for section, names in (obstacle.write or {}).items():
            into = whole.setdefault(section, {})
            for name, value in names.items():
                if isinstance(value, dict):
                    into.setdefault(name, {}).update(value)
                else:
                    into[name] = value
    return whole


def steps_that_ran(host: Host, record: ExecutionRecord) -> set[str]:
    """Return the names of the completed steps of an execution, as in its current form."""
    ran: set[str] = set()
    seen: list[Observation] = []
    journal = read(host.store, record.id)
    for moment in walk(host.flows, record.hash, journal, seen):
        if moment.event["type"] == "upgraded":
            renamed = moment.event["mapping"].get("steps", {})
            ran = {renamed.get(name, name) for name in ran}
        for observation in seen:
            if observation.status in OVER:
                node = moment.graph.node(observation.step)
                flow = moment.graph.body(node.body).flow if node.body >= 0 else 0
                prefix = f"{moment.graph.flows[flow].id}:" if flow else ""
                ran.add(f"{prefix}{node.id}")
        seen.clear()
    return ran


def upgraded(
    execution: Execution,
    linked: LinkedFlow,
    mapping: Mapping[str, Any],
    who: Actor,
    now: int,
) -> Event:
    """Return the event that moves an execution to another version of its flow.

    Args:
        execution: The execution in its current state.
        linked: The version, already checked.
        mapping: The checked mapping.
        who: The actor.
        now: The time (ms).
    """
    event: Any = {
        "type": "upgraded",
        "at": now,
        "before": execution.linked.hash,
        "after": linked.hash,
        "mapping": dict(mapping),
        "version": linked.compiled["version"],
        **who.fields(),
    }
    return event  # type: ignore[no-any-return]
