"""Results that a changed flow reads, and that an execution to be moved to it does not have.

The new flow may read a result that no earlier expression read, so it was not kept. It may read the
result of a step that would have run before the place where the execution is now. And a mapping may
give a result to another step than the one that is read. Each read ahead of the execution is
compared with the results that its tokens have, and with those that certainly come before the read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from flowengine.engines.interventions.misfits import other_type
from flowengine.engines.interventions.obstacles import Obstacle
from flowengine.flow.check import net
from flowengine.flow.check.net import cancellations
from flowengine.flow.check.reaching_outputs import EarlierSteps
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

AT_END = -1
"""A place: the end of a scope that has succeeded."""
CUT_SHORT = -2
"""A place: the end of a scope with any outcome."""
FAILING = frozenset({"output", "error", "items", "agent", "started_at", "ended_at"})
"""Fields whose value is null for a step that has not run."""


class Read(NamedTuple):
    """One path to a result in an expression."""

    reader: int
    """The step with the expression, or the body of the flow as a negative number minus one."""
    step: int
    """The step whose result is read."""
    place: int
    """Where the reader is in the body of that step: a step, `AT_END` or `CUT_SHORT`."""
    keys: tuple[Any, ...]
    """The field, and the constant keys after it. Empty: all fields."""
    handled: bool
    """The expression has a value without the result: `default`, `has`, or a test against null."""
    tested: bool
    """The expression reads how the step ended, beside its result."""
    lenient: bool
    """The path itself may lead to nothing, but not into a value of another type."""
    shown: str

    @property
    def needed(self) -> bool:
        """Whether the expression has no value, or null, without the result."""
        return not (self.handled or self.tested) and self.keys[0] in FAILING


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
        self._owners = {
            spec["compensate"]: number
            for number, spec in enumerate(flow["steps"])
            if "compensate" in spec
        }
        self._cleaned = {
            flow["steps"][body["final"]]["child"]: number
            for number, body in enumerate(flow["bodies"])
            if "final" in body
        }
        self._starts: dict[int, EarlierSteps] = {}
        self.own: list[Read] = []
        """Reads of the result of a step by its own expressions, as `result`."""
        self.all = list(dict.fromkeys(self._reads()))

    def from_start(self, body: int) -> EarlierSteps:
        """Return the steps before each step of a body, in scopes that run it from its start."""
        if body not in self._starts:
            self._starts[body] = EarlierSteps(self._flow, body, self.cancels)
        return self._starts[body]

    def body_of(self, step: int) -> int:
        """Return the body of a step. Hidden steps are in that of the step that they belong to."""
        owner = self._owners.get(step, step)
        return int(self._flow["steps"][owner]["body"])

    def owner(self, body: int) -> int:
        """Return the group whose body this is, or -1 for the body of a flow."""
        return int(self._flow["bodies"][body].get("owner", -1))

    def cleaned_up(self, body: int) -> int | None:
        """Return the body that the `finally` with this body cleans up. None: it is another one."""
        return self._cleaned.get(body)

    def is_compensation(self, step: int) -> bool:
        """Return whether a step is hidden and undoes another one."""
        return step in self._owners

    def _reads(self) -> Iterator[Read]:
        for number, spec in enumerate(self._flow["steps"]):
            yield from self._in(spec, number, None)
        for body in self._flow["bodies"]:
            if body.get("owner", -1) >= 0 and "output" in body:
                yield from self._in({"output": body["output"]}, body["owner"], None)
        flows = [(0, self._flow), *((one["body"], one) for one in self._flow.get("flows", ()))]
        for body, flow in flows:
            for section, place in (
                ("outputs", AT_END),
                ("outcome", AT_END),
                ("on_error", CUT_SHORT),
            ):
                yield from self._in({section: flow.get(section)}, -1 - body, place)

    def _in(self, spec: Mapping[str, Any], reader: int, place: int | None) -> Iterator[Read]:
        for number in expressions_in(spec):
            if number >= len(self._flow["expressions"]):
                return  # the flow of a test, whose expressions are functions
            node = self._flow["expressions"][number]["node"]
            paths = [(keys, handled) for keys, handled in step_paths(node) if keys]
            tested = {keys[0] for keys, _ in paths if keys[1:2] == ["outcome"]}
            known = {keys[0] for keys, _ in paths if keys[1:2] == ["status"]} | set(
                tested_steps(node)
            )
            for keys, handled in paths:
                if isinstance(keys[0], str):
                    yield from self._read(
                        reader, place, keys, handled, keys[0] in known, keys[0] in tested
                    )
            for keys, handled in step_paths(node, root="result"):
                path, shown = ("output", *keys), written("result", keys)
                self.own.append(Read(reader, reader, reader, path, handled, False, handled, shown))

    def _read(
        self,
        reader: int,
        place: int | None,
        keys: list[Any],
        lenient: bool,
        known: bool,
        tested: bool,
    ) -> Iterator[Read]:
        body = -1 - reader if reader < 0 else self.body_of(reader)
        if body < 0:
            return
        step = self.graph.step_index(keys[0], self.graph.body(body).flow)
        if step < 0:
            return
        here = self._place(reader, step) if place is None else place
        shown, handled = written("steps", keys), lenient or known or len(keys) < 2
        yield Read(reader, step, here, tuple(keys[1:]), handled, tested, lenient, shown)

    def _place(self, reader: int, step: int) -> int:
        """Return where a reader is in the body of the step that it reads."""
        target, here = self.body_of(step), self._owners.get(reader, reader)
        body = self.body_of(here)
        while body != target:
            owner = self.owner(body)
            if body in self._cleaned:
                body, here = self._cleaned[body], CUT_SHORT
            elif owner < 0:
                return AT_END  # a group that reads the results of steps inside it
            else:
                body, here = self.body_of(owner), self._owners.get(owner, owner)
        return here


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
        steps, cancels = comparison.pairing.steps, comparison.reads.cancels
        at = tokens_of(comparison.state, scope)
        old_places = [step for step, _ in at]
        self.old_ahead = later(comparison.pairing.old, scope["body"], old_places) | {*old_places}
        tokens = [(steps[step], past) for step, past in at if step in steps]
        spec = flow["bodies"][body]
        if not tokens and scope["phase"] in ("queued", "held"):
            tokens = [(start, scope["past"]) for start in spec["start"]]
        self.body = body
        self.pasts = list(dict.fromkeys(
            [past for _, past in tokens] + [past for _, past in scope["ended"]] + [scope["past"]]
        ))  # fmt: skip
        known: dict[int, set[int]] = {}
        for place, past in tokens:
            has = comparison.kept(body, past)
            known[place] = known[place] & has if place in known else has
        self.kept = set().union(*(comparison.kept(body, past) for past in self.pasts))
        self.known = EarlierSteps(flow, body, cancels, known)
        """The steps with a result at each place: kept ones, and those that certainly run first."""
        self.coming = EarlierSteps(flow, body, cancels, dict.fromkeys(known, ()))
        """Only those that certainly run first."""
        self.places = known.keys()
        self.later = later(comparison.pairing.new, body, known)
        again = ("map", "loop", "retry")
        self.repeating = {n for n in known if any(word in flow["steps"][n] for word in again)}

    def has(self, read: Read, earlier: EarlierSteps, otherwise: bool) -> bool:
        """Return whether a result is certainly there when it is read."""
        if read.place == AT_END:
            return earlier.surely_at_end(read.step) or otherwise
        if read.place in earlier.place:
            return earlier.surely_behind(read.step, read.place)
        return otherwise


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
        for running in self._running.get(self.reads.body_of(read.step), ()):
            if not self._is_ahead(read.reader):
                continue
            ended = [old for old in self._olds.get(read.step, ()) if self._has_ended(old, running)]
            if len(ended) > 1:
                first, second = (self.pairing.step_name(old) for old in ended[:2])
                self._add(read, f"'{first}' and '{second}' have the same counterpart")
                continue
            if running.has(read, running.known, read.step in running.kept):
                self._compare_values(read, running)
            else:
                self._look_for(read, running)

    def kept(self, body: int, past: int) -> set[int]:
        """Return the steps of a body that have all fields in a past that the new flow reads."""
        kept = set()
        for number in self.pairing.new.body(body).steps:
            named = set(self.pairing.new.node(number).named or ()) - {"activations"}
            records = self._records(number, [past])
            if named and records and all(named <= record.keys() for record in records):
                kept.add(number)
        return kept

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
        if self.reads.is_compensation(reader):
            return True
        body = self.reads.body_of(reader)
        for running in self._running.get(body, ()):
            here = running.repeating if inside else running.places
            if reader in running.later or reader in here:
                return True
        cleaned = self.reads.cleaned_up(body)
        if cleaned is not None:
            return cleaned in self._running or self._begins(cleaned)
        return self._begins(body)

    def _begins(self, body: int) -> bool:
        owner = self.reads.owner(body)
        return owner >= 0 and self._is_ahead(owner, inside=True)

    def _compare_values(self, read: Read, running: _RunningScope) -> None:
        """Compare kept results with the path into them, and with the type of their new step."""
        if running.has(read, running.coming, False):
            return
        records, new = self._records(read.step, running.pasts), self.pairing.new.node(read.step)
        old = self.pairing.old.node(self._olds[read.step][0])
        if fault := other_type(old, new):
            self._add(read, f"{fault}, and {self._name(read)} reads '{read.shown}'")
        for record in records:
            self._compare_value(read, record, new.id)

    def _compare_value(self, read: Read, record: Mapping[str, Any], name: str) -> None:
        """Compare the fields that a step has with a path into them."""
        is_followed = read.needed or (read.lenient and not read.tested and len(read.keys) > 1)
        if not is_followed or read in self._old_reads:
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

    def _look_for(self, read: Read, running: _RunningScope) -> None:
        """Add an obstacle if a missing result is one that the new flow relies on."""
        records = self._records(read.step, running.pasts)
        olds = self._olds.get(read.step, [])
        field = read.keys[0] if read.keys else "output"
        names = {self.pairing.step_name(old) for old in olds}
        unread = all(field not in (self.pairing.old.node(old).named or ()) for old in olds)
        lost = bool(records) and all(field not in record for record in records)
        if field != "activations" and (lost or (not records and unread and names & set(self._ran))):
            why = "which was not kept: nothing ahead in the old flow read it"
            self._add(read, f"it is over, and {self._name(read)} reads '{read.shown}', {why}")
            return
        if (other := self._given_to(read.step)) is not None:
            why = f"the mapping gives its result to '{other}', and {self._name(read)}"
            self._add(read, f"{why} reads '{read.shown}'")
            return
        promised = self._is_promised(read)
        passed = olds and not any(old in running.old_ahead for old in olds)
        if passed and (not promised or read in self._old_reads):
            return  # it was skipped, and the old flow continues without it as well
        may_run = read.step in running.later or read.step in running.places
        if (promised and not read.handled) or (read.needed and not may_run):
            self._add_unrun(read, running)

    def _is_promised(self, read: Read) -> bool:
        """Return whether a result is always there in executions that start with the new flow."""
        if read.place == CUT_SHORT or not read.keys or read.keys[0] == "activations":
            return False
        start = self.reads.from_start(self.reads.body_of(read.step))
        if read.place == AT_END:
            return start.surely_at_end(read.step)
        may = start.may_be_behind(read.step, read.place)
        return may and start.surely_behind(read.step, read.place)

    def _given_to(self, number: int) -> str | None:
        """Return the step to which a mapping gives the result of the step with the same name."""
        if number in self._olds:
            return None
        name = self.pairing.new_name(number)
        for old, new in self.pairing.steps.items():
            same = self.pairing.old.node(old).id == name
            if same and self.pairing.new.node(new).body == self.pairing.new.node(number).body:
                ran = self.pairing.step_name(old) in self._ran
                return self.pairing.new_name(new) if ran else None
        return None

    def _add_unrun(self, read: Read, running: _RunningScope) -> None:
        """Add an obstacle about a step that does not run before its result is read.

        An ended step without a counterpart may be the same one under its old name. Among several,
        it is the one at the same position among such steps.
        """
        p = self.pairing
        new = p.new.node(read.step)
        old_body = next(old for old, body in p.bodies.items() if body == running.body)
        why = f"{self._name(read)} reads '{read.shown}'"
        renamed = [
            number
            for number in p.old.body(old_body).steps
            if number not in p.steps
            and self._has_ended(number, running)
            and not other_type(p.old.node(number), new)
        ]
        if renamed:
            added = [step for step in p.new.body(running.body).steps if step not in self._olds]
            position = sum(
                not other_type(p.new.node(step), new) for step in added if step < read.step
            )
            name = p.step_name(renamed[min(position, len(renamed) - 1)])
            why = f"it is over, the new flow has no such step, and {why}, which has not run"
            self.found.setdefault(
                name, Obstacle("step", name, why, {"steps": {name: "NEW"}}, [new.id])
            )
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

    def _reads_of_old(self) -> set[Read]:
        """Return the reads of the old flow, with the numbers of the new one."""
        p = self.pairing
        moved = set()
        for read in [*reads_of(p.old).all, *reads_of(p.old).own]:
            at = read.reader
            reader = p.steps.get(at) if at >= 0 else p.bodies.get(-1 - at)
            place = p.steps.get(read.place) if read.place >= 0 else read.place
            number = p.steps.get(read.step)
            if reader is not None and number is not None and place is not None:
                reader = reader if at >= 0 else -1 - reader
                shown = read.shown
                if not shown.startswith("result"):
                    shown = written("steps", [p.new_name(number), *read.keys])
                moved.add(read._replace(reader=reader, step=number, place=place, shown=shown))
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
