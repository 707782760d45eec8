"""The places where a flow reads the results of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from flowengine.flow.check.net import cancellations
from flowengine.flow.check.reaching_outputs import EarlierSteps
from flowengine.flow.compile.last_readers import expressions_in
from flowengine.flow.expressions.paths import written
from flowengine.flow.expressions.step_paths import step_paths, tested_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flowengine.kernel import Graph

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
                        reader, place, keys, handled or keys[0] in known, keys[0] in tested
                    )

    def _read(
        self, reader: int, place: int | None, keys: list[Any], handled: bool, tested: bool
    ) -> Iterator[Read]:
        body = self._body(reader)
        if body < 0:
            return
        step = self.graph.step_index(keys[0], self.graph.body(body).flow)
        if step < 0:
            return
        here = self._place(reader, step) if place is None else place
        shown = written("steps", keys)
        yield Read(reader, step, here, tuple(keys[1:]), handled or len(keys) < 2, tested, shown)

    def _body(self, reader: int) -> int:
        return -1 - reader if reader < 0 else self.body_of(reader)

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
