"""Looks for runs of a flow that come to a stand: nothing can ever move again.

Everything that the flow does not determine is open: a condition may be true or false each time it
is evaluated, a task may succeed or fail with any type of error that a handler names, decisions are
arbitrary, messages arrive at any moment, and the order is arbitrary. The checker makes the same
assumptions when it reports that a join can wait forever (`E207`). Here the kernel plays the flow,
so the result is a run that can be replayed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.kernel import Graph
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from tests.simulation.explorer import anything, choosers
from tests.simulation.invariants import is_stuck
from tests.simulation.simulator import Fails, OneOf, Simulator

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import ReadableNames
    from flowengine.kernel.graph.specs import CompiledFlow

TRIES = 400
"""Default number of runs."""
LONGEST = 300
"""Maximum number of happenings of one run."""

Choose = Callable[[int], int]
"""Takes a number of ways and returns the chosen one."""


class Stall(NamedTuple):
    """The result of a search."""

    run: Simulator | None
    """A run that stalled. None: none was found."""
    conditions: list[bool]
    """The values of the conditions in it, in the order of their evaluation."""
    complete: bool
    """Whether all runs were played."""

    def told(self) -> str:
        """Return the happenings of the run in readable form."""
        if self.run is None:
            return "no run that stalls" + ("" if self.complete else " was found")
        asked = " ".join("yes" if holds else "no" for holds in self.conditions)
        happened = "; ".join(self.run.schedule) or "nothing"
        return f"stalled after: {happened}" + (f"\nconditions: {asked}" if asked else "")


class Open:
    """An evaluator with arbitrary values of conditions.

    Args:
        inner: Evaluates all else.
        conditions: Numbers of the expressions that are conditions.
        choose: Returns the value of a condition.

    Attributes:
        given: The values of the conditions so far.
    """

    version = "open"

    def __init__(self, inner: Any, conditions: frozenset[int], choose: Choose) -> None:
        self._inner = inner
        self._conditions = conditions
        self._choose = choose
        self.given: list[bool] = []

    def evaluate(self, expression: int, names: ReadableNames) -> Plain:
        """Return the value of an expression, or null if it has none."""
        if expression in self._conditions:
            self.given.append(not self._choose(2))
            return self.given[-1]
        try:
            return self._inner.evaluate(expression, names)
        except EvaluationError:
            return None

    def text(self, value: Plain, expression: int) -> str:
        """Return a value as text."""
        return str(value)

    def composed(self, value: Plain, tree: Plain) -> Plain:
        """Return a list, a map or a text with values of expressions."""
        return value


def find_stall(flow: CompiledFlow, *, limit: int = TRIES, seed: int = 0) -> Stall:
    """Look for a run that stalls: in all runs if they are few, else in as many as `limit`.

    Half of them are those that come first when the choices are counted up, half are drawn.

    Args:
        flow: A flow, which the checker may refuse.
        limit: Runs that are played at most.
        seed: For drawing.

    Returns:
        The first run found, and whether all runs were played.
    """
    play = _player(flow)
    for number, chooser in enumerate(choosers()):
        if number == limit // 2:
            break
        stall = play(chooser.choose)
        if stall is not None:
            return Stall(*stall, complete=False)
    else:
        return Stall(None, [], complete=True)
    for number in range(limit - limit // 2):
        stall = play(random.Random(f"{seed}/{number}").randrange)
        if stall is not None:
            return Stall(*stall, complete=False)
    return Stall(None, [], complete=False)


def play_stall(flow: CompiledFlow, stall: Stall) -> Simulator:
    """Play the run of a stall again.

    Args:
        flow: The flow.
        stall: The result of `find_stall`.

    Returns:
        The simulator, at the end of the run.
    """
    assert stall.run is not None
    answers = iter(stall.conditions)
    simulator, _ = _simulator(flow, lambda _: 0 if next(answers, True) else 1)
    return simulator.start().follow(stall.run.schedule)


def play_example(flow: CompiledFlow, example: str, *, limit: int = 4000) -> Simulator | None:
    """Play the example of an error about a join that waits for ever.

    Args:
        flow: The flow.
        example: Moves, such as `a → b, c; b → end; c → d`, of one scope.
        limit: Runs that are tried at most.

    Returns:
        A run that stalls after exactly these moves, or None.
    """
    wanted = Counter(_edges(example))
    steps = {edge[0] for edge in wanted}
    for number, chooser in enumerate(choosers()):
        if number == limit:
            return None
        simulator, _ = _simulator(flow, chooser.choose)
        simulator.start()
        while (made := _made(simulator, steps)) <= wanted:
            if made == wanted and is_stuck(simulator):
                return simulator
            can = simulator.possible()
            if not can:
                break
            simulator.let(can[chooser.choose(len(can))])
    return None


def _edges(example: str) -> Iterator[tuple[str, str]]:
    for move in example.split("; "):
        step, _, targets = move.partition(" → ")
        yield from ((step, target) for target in targets.split(", ") if target != "end")


def _made(simulator: Simulator, steps: set[str]) -> Counter[tuple[str, str]]:
    """Return how often tokens went along each edge that leaves one of some steps."""
    nodes = simulator.graph.flow["steps"]
    return Counter(
        (nodes[seen.step]["id"], nodes[target]["id"])
        for seen in simulator.observations
        if nodes[seen.step]["id"] in steps
        for target in seen.to
        if target >= 0
    )


def _player(flow: CompiledFlow) -> Callable[[Choose], tuple[Simulator, list[bool]] | None]:
    def play(choose: Choose) -> tuple[Simulator, list[bool]] | None:
        simulator, evaluator = _simulator(flow, choose)
        simulator.start()
        for _ in range(LONGEST):
            if is_stuck(simulator):
                return simulator, evaluator.given
            can = simulator.possible()
            if not can:
                break
            simulator.let(can[choose(len(can))])
        return None

    return play


def _simulator(flow: CompiledFlow, choose: Choose) -> tuple[Simulator, Open]:
    from flowengine.flow.expressions.evaluator import CelEvaluator

    records = flow["expressions"]
    conditions = frozenset(number for number, record in enumerate(records) if record.get("bool"))
    evaluator = Open(CelEvaluator(records, flow["id"]), conditions, choose)
    ways = [None, *(Fails(type, retryable=False) for type in _types(flow))]
    script = {step["id"]: OneOf(ways) for step in flow["steps"]}
    return Simulator(Graph(flow, evaluator), script, outside=[anything()]), evaluator


def _types(flow: CompiledFlow) -> list[str]:
    """Return the types of errors with which a task may fail: those of handlers, and another one."""
    names = {"Odd"}
    for step in flow["steps"]:
        for handler in step.get("on_error", ()):
            names.update(type for type in handler.get("types", ()) if "*" not in type)
    engine = {"TooFew", "MapFailed", "Cancelled", "Deadline", "NoBranch", "LoopLimit"}
    return sorted(names - engine)


def refused(text: str) -> tuple[CompiledFlow | None, Sequence[str]]:
    """Compile a flow although the checker refuses it.

    Args:
        text: The flow file.

    Returns:
        The compiled flow (None if it cannot be compiled), and the codes of its errors.
    """
    from flowengine.flow.compile.compilation import Compilation
    from flowengine.flow.loading.files import FlowFiles
    from flowengine.flow.source.diagnostics import Diagnostics
    from flowengine.flow.source.yaml_source import read_text

    files = FlowFiles(Diagnostics())
    first = files.first(read_text(text), ".", None)
    if first is None:
        return None, [error.code for error in files.diagnostics.errors]
    compilation = Compilation(files, first)
    compilation.check()
    return compilation.link(), [error.code for error in files.diagnostics.errors]
