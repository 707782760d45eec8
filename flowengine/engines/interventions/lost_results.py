"""Results that a changed flow reads, and that an execution to be moved to it does not have.

The new flow may read a result that no earlier expression read, so it was not kept. It may read the
result of a step that would have run before the place where the execution is now. And a mapping may
give a result to another step than the one that is read. Each read ahead of the execution is
compared with the results that its tokens have, unless the step that it reads may still run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from flowengine.engines.interventions.misfits import other_type
from flowengine.engines.interventions.obstacles import Obstacle
from flowengine.flow.check import net
from flowengine.flow.check.net import cancellations
from flowengine.flow.compile.link import expressions_in
from flowengine.flow.expressions.paths import (
    Missing,
    NoValue,
    follow,
    step_paths,
    tested_steps,
    written,
)
from flowengine.kernel import Graph
from flowengine.kernel.expressions.provenance import find
from flowengine.kernel.moving.counterparts import Pairing
from flowengine.kernel.state.records import Scope, State
from flowengine.kernel.view import waiting_arrivals

FAILING = frozenset({"output", "error", "items", "agent", "started_at", "ended_at"})
"""Fields whose value is null for a step that has not run."""


class Read(NamedTuple):
    """One path to a result in an expression."""

    reader: int
    """The step with the expression, or the body of the flow as a negative number minus one."""
    step: int
    """The step whose result is read."""
    keys: tuple[Any, ...]
    """The field, and the constant keys after it. Empty: all fields."""
    needed: bool
    """Whether the expression has no value, or null, without the result."""
    followed: bool
    """Whether the keys must lead into a result that is there."""
    lenient: bool
    """The path itself may lead to nothing, but not into a value of another type."""
    shown: str


class ResultReads:
    """All reads of a flow.

    Args:
        graph: The flow, linked.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        flow: Any = graph.flow
        self.cancels = cancellations(flow)
        self._flow = flow
        self.owners = {
            spec["compensate"]: number
            for number, spec in enumerate(flow["steps"])
            if "compensate" in spec
        }
        self.cleaned = {
            flow["steps"][body["final"]]["child"]: number
            for number, body in enumerate(flow["bodies"])
            if "final" in body
        }
        self.own: list[Read] = []
        """Reads of the result of a step by its own expressions, as `result`."""
        self.all = list(dict.fromkeys(self._reads()))

    def body_of(self, step: int) -> int:
        """Return the body of a step. Hidden steps are in that of the step that they belong to."""
        owner = self.owners.get(step, step)
        return int(self._flow["steps"][owner]["body"])

    def _reads(self) -> Iterator[Read]:
        for number, spec in enumerate(self._flow["steps"]):
            yield from self._in(spec, number)
        for body in self._flow["bodies"]:
            if body.get("owner", -1) >= 0 and "output" in body:
                yield from self._in({"output": body["output"]}, body["owner"])
        flows = [(0, self._flow), *((one["body"], one) for one in self._flow.get("flows", ()))]
        for body, flow in flows:
            for section in ("outputs", "outcome", "on_error"):
                yield from self._in({section: flow.get(section)}, -1 - body)

    def _in(self, spec: Mapping[str, Any], reader: int) -> Iterator[Read]:
        body = -1 - reader if reader < 0 else self.body_of(reader)
        for number in expressions_in(spec):
            if number >= len(self._flow["expressions"]):
                return  # the flow of a test, whose expressions are functions
            node = self._flow["expressions"][number]["node"]
            paths = [(keys, lenient) for keys, lenient in step_paths(node) if keys]
            tested = {keys[0] for keys, _ in paths if keys[1:2] == ["outcome"]}
            known = {keys[0] for keys, _ in paths if keys[1:2] == ["status"]}
            known.update(tested_steps(node))
            for keys, lenient in paths:
                step = -1
                if isinstance(keys[0], str) and body >= 0:
                    step = self.graph.step_index(keys[0], self.graph.body(body).flow)
                if step >= 0:
                    path, shown = (*keys[1:],), written("steps", keys)
                    is_handled = lenient or keys[0] in known or keys[0] in tested
                    needed = not is_handled and not FAILING.isdisjoint(path[:1])
                    followed = needed or (lenient and keys[0] not in tested and len(path) > 1)
                    yield Read(reader, step, path, needed, followed, lenient, shown)
            for keys, lenient in step_paths(node, root="result"):
                path, shown = ("output", *keys), written("result", keys)
                followed = not lenient or len(path) > 1
                self.own.append(Read(reader, reader, path, not lenient, followed, lenient, shown))


_known: WeakKeyDictionary[Graph, ResultReads] = WeakKeyDictionary()


def reads_of(graph: Graph) -> ResultReads:
    """Return the reads of a flow."""
    if graph not in _known:
        _known[graph] = ResultReads(graph)
    return _known[graph]


def lost_results(pairing: Pairing, state: State, ran: Collection[str]) -> list[Obstacle]:
    """Return the results that the new flow reads ahead of an execution, and that it does not have.

    Args:
        pairing: The two graphs. Everything else that the state refers to has a counterpart.
        state: State of an open execution. It is not changed.
        ran: Names of the steps that have ended.

    Returns:
        One obstacle per step.
    """
    comparison = _Comparison(pairing, state, ran)
    for read in comparison.reads.all:
        comparison.compare(read)
    comparison.compare_open_approvals()
    return list(comparison.found.values())


class _RunningScope:
    """A running scope, with its tokens at steps of the new graph."""

    def __init__(self, comparison: _Comparison, scope: Scope, body: int) -> None:
        flow: Any = comparison.reads.graph.flow
        steps, at = comparison.pairing.steps, tokens_of(comparison.state, scope)
        old_places = {step for step, _ in at}
        self.body = body
        self.old_ahead = later(comparison.pairing.old, scope["body"], old_places) | old_places
        tokens = [(steps[step], past) for step, past in at if step in steps]
        if not tokens and scope["phase"] in ("queued", "held"):
            tokens = [(start, scope["past"]) for start in flow["bodies"][body]["start"]]
        self.pasts = list(dict.fromkeys(
            [past for _, past in tokens] + [past for _, past in scope["ended"]] + [scope["past"]]
        ))  # fmt: skip
        places = {step for step, _ in tokens}
        self.later = later(comparison.pairing.new, body, places)
        self.ahead = self.later | places
        again = ("map", "loop", "retry")
        self.repeating = {n for n in places if any(word in flow["steps"][n] for word in again)}


class _Comparison:
    """Compares the reads of a new flow with the results of an execution.

    Attributes:
        found: The first obstacle for each step.
    """

    def __init__(self, pairing: Pairing, state: State, ran: Collection[str]) -> None:
        self.pairing = pairing
        self.state = state
        self.found: dict[str, Obstacle] = {}
        self.reads = reads_of(pairing.new)
        self._ran = ran
        self._olds: dict[int, list[int]] = {}
        for old, new in pairing.steps.items():
            self._olds.setdefault(new, []).append(old)
        self._old_reads = self._reads_of_old()
        self._running: dict[int, list[_RunningScope]] = {}
        for scope in state["scopes"].values():
            body = pairing.bodies.get(scope["body"])
            if body is not None:
                running = _RunningScope(self, scope, body)
                self._running.setdefault(body, []).append(running)

    def compare(self, read: Read) -> None:
        """Look for a result that a read ahead does not find."""
        field = read.keys[0] if read.keys else "output"
        if field == "activations" or not self._is_ahead(read.reader):
            return
        olds = self._olds.get(read.step, [])
        named = [self.pairing.old.node(old).named or () for old in olds]
        ran = any(self.pairing.step_name(old) in self._ran for old in olds)
        for running in self._running.get(self.reads.body_of(read.step), ()):
            ended = [old for old in olds if self._has_ended(old, running)]
            records = self._records(read.step, running.pasts)
            if len(ended) > 1:
                first, second = (self.pairing.step_name(old) for old in ended[:2])
                self._add(read, f"'{first}' and '{second}' have the same counterpart")
            elif read.step in running.ahead:
                continue
            elif any(field in record for record in records):
                self._compare_values(read, records)
            elif records or (ran and all(field not in names for names in named)):
                why = "which was not kept: nothing ahead in the old flow read it"
                self._add(read, f"it is over, and {self._name(read)} reads '{read.shown}', {why}")
            elif read.needed and (not olds or not running.old_ahead.isdisjoint(olds)):
                self._add_unrun(read, running)  # otherwise, it was skipped in the old flow, too

    def _records(self, number: int, pasts: Iterable[int]) -> list[dict[str, Any]]:
        """Return the records of a step of the new graph in pasts of the old one."""
        olds = self._olds.get(number, ())
        found = [find(self.state, past, old) for past in pasts for old in olds]
        return [record for record in found if record is not None]

    def _has_ended(self, old: int, running: _RunningScope) -> bool:
        if self.pairing.step_name(old) in self._ran:
            return True
        return any(find(self.state, past, old) for past in running.pasts)

    def _is_ahead(self, reader: int, *, inside: bool = False) -> bool:
        """Return whether a reader may still be evaluated.

        Args:
            inside: Something inside it reads, so it counts only if it begins again.
        """
        if reader < 0:
            return -1 - reader in self._running
        if reader in self.reads.owners:
            return True
        body = self.reads.body_of(reader)
        for running in self._running.get(body, ()):
            if reader in (running.later | running.repeating if inside else running.ahead):
                return True
        cleaned = self.reads.cleaned.get(body)
        if cleaned in self._running:
            return True
        owner = self.reads.graph.flow["bodies"][body if cleaned is None else cleaned].get(
            "owner", -1
        )
        return owner >= 0 and self._is_ahead(owner, inside=True)

    def _compare_values(self, read: Read, records: Iterable[Mapping[str, Any]]) -> None:
        """Compare kept results with the path into them, and with the type of their new step."""
        new = self.pairing.new.node(read.step)
        old = self.pairing.old.node(self._olds[read.step][0])
        if fault := other_type(old, new):
            self._add(read, f"{fault}, and {self._name(read)} reads '{read.shown}'")
        for record in records:
            self._compare_value(read, record, new.id)

    def _compare_value(self, read: Read, record: Mapping[str, Any], name: str) -> None:
        """Compare the fields that a step has with a path into them."""
        if not read.followed or read[:-1] in self._old_reads:
            return
        fault = _fault(record, read, name)
        if fault is not None:
            self._add(read, f"{self._name(read)} reads '{read.shown}', but here {fault}")

    def compare_open_approvals(self) -> None:
        """Compare what open approvals show and ask for, which a move does not change."""
        for wait in self.state["waits"].values():
            unit = self.state["units"].get(wait.get("unit", 0))
            act = self.state["acts"].get(unit["act"]) if unit is not None else None
            number = self.pairing.steps.get(act["step"]) if act is not None else None
            if wait["kind"] != "approval" or number is None:
                continue
            node, spec = self.pairing.new.node(number), self.reads.graph.flow["steps"][number]
            if node.action != "approval":
                continue  # a call that waits for approval
            reads = [read for read in self.reads.own if read.step == number]
            if not {"output", "map", "loop"} & spec.keys():
                ahead = (read for read in self.reads.all if read.step == number)
                reads += [read for read in ahead if self._is_ahead(read.reader)]
            output = {"subject": wait["record"].get("subject")}
            for read in reads:
                if read.keys[:2] == ("output", "subject"):
                    self._compare_value(read, {"output": output}, node.id)

    def _add_unrun(self, read: Read, running: _RunningScope) -> None:
        """Add an obstacle about a step without a result, which does not run before it is read.

        An ended step without a counterpart may be the same one under its old name.
        """
        p = self.pairing
        new = p.new.node(read.step)
        why = f"{self._name(read)} reads '{read.shown}'"
        old_body = next(old for old, body in p.bodies.items() if body == running.body)
        for number in p.old.body(old_body).steps:
            is_free = number not in p.steps and self._has_ended(number, running)
            if is_free and not other_type(p.old.node(number), new):
                name, write = p.step_name(number), {"steps": {p.step_name(number): "NEW"}}
                why = f"it is over, the new flow has no such step, and {why}, which has not run"
                self.found.setdefault(name, Obstacle("step", name, why, write, [new.id]))
                return
        self._add(read, f"{why}, and '{new.id}' has not run and does not run before that")

    def _add(self, read: Read, why: str) -> None:
        olds = self._olds.get(read.step)
        name = self.pairing.step_name(olds[0]) if olds else self.pairing.new_name(read.step)
        self.found.setdefault(name, Obstacle("step", name, why, None, []))

    def _name(self, read: Read) -> str:
        if read.reader < 0:
            return "the new flow"
        name = self.pairing.new_name(read.reader)
        return f"'{name}' of the new flow"

    def _reads_of_old(self) -> set[tuple[Any, ...]]:
        """Return the reads of the old flow with the numbers of the new one, without their texts."""
        p = self.pairing
        moved = set()
        for read in [*reads_of(p.old).all, *reads_of(p.old).own]:
            if read.reader >= 0:
                reader = p.steps.get(read.reader)
            else:
                reader = -1 - p.bodies.get(-1 - read.reader, -1)
            moved.add((reader, p.steps.get(read.step), *read[2:-1]))
        return moved


def tokens_of(state: State, scope: Scope) -> list[tuple[int, int]]:
    """Return the step and the past of each token of a scope."""
    acts = [state["acts"][act] for act in scope["live"]]
    held = [token for join in scope["joins"].values() for token in waiting_arrivals(join)]
    at = [(act["step"], act["past"]) for act in acts if not act.get("left_early")]
    return at + [(token["step"], token["past"]) for token in held]


def later(graph: Graph, body: int, places: Iterable[int]) -> set[int]:
    """Return the steps of a body that tokens at some of its steps may reach, or triggers start."""
    steps = graph.flow["steps"]
    begun = [target for place in places for target in net.targets(steps[place]) if target >= 0]
    return set(net.reachable(graph.flow, body, reads_of(graph).cancels, begun))


def _fault(record: Mapping[str, Any], read: Read, name: str) -> str | None:
    """Return the reason why a path into a kept result leads to nothing."""
    try:
        value = follow({"steps": {name: record}}, "steps", [name, *read.keys])
    except NoValue as error:
        return None if read.lenient and isinstance(error, Missing) else str(error)
    return f"{read.shown} is null" if value is None and not read.lenient else None
