"""What one `advance` of the kernel costs beside many open waits, and in a large flow."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.engines.flows import LANGUAGE
from flowengine.flow.compile import compile_text
from flowengine.kernel import Graph, advance, new_state
from flowengine.kernel.commands import Run
from flowengine.kernel.events import Event
from flowengine.kernel.state.records import State

HEAD = "flowengine: 1\nid: flow\nlimits: {steps: 1000000, activations: 1000000}\n"
WAITS = {
    "items at approvals": "steps: [{id: a, map: '${{ inputs.n }}', approval: Ok?}]",
    "items in groups, each at an approval": "steps: [{id: g, map: '${{ inputs.n }}', "
    "group: [{id: a, approval: Ok?}, {id: b, output: 1}]}]",
    "items at signals, each with its key": "signals: {x: {}}\n"
    "steps: [{id: a, map: '${{ inputs.n }}', wait: {signal: x, key: '${{ string(item) }}'}}]",
    "tokens before a join of those that come": "steps: [{id: a, approval: Ok?, next: b, "
    "map: {over: '${{ inputs.n }}', join: none}}, {id: b, join: active}]",
}
TASK = "call: std.print, with: {text: x}"


class Cost(NamedTuple):
    """Seconds."""

    one: float
    """One event, the median of several."""
    compiling: float
    starting: float


def among(body: str, waiting: int) -> Cost:
    """Answer one of so many open waits.

    Args:
        body: Of a flow with an input `n`, the number of waits.
        waiting: How many are open.
    """
    graph, state, _commands, compiling, starting = begun(
        f"{HEAD}inputs: {{n: {{type: integer}}}}\n{body}\n", n=waiting
    )
    assert len(state["waits"]) == waiting
    took = []
    for number in list(state["waits"])[:: max(1, waiting // 9)][:9]:
        record = cast(Any, state["waits"][number]["record"])
        event: dict[str, Any] = {"at": 2, "by": "user:ada"}
        if record["kind"] == "approval":
            event |= {"type": "decided", "wait": number, "choice": "approve", "via": "test"}
        else:
            key = record["signals"][0]["key"]
            event |= {"type": "message", "signal": "x", "key": key, "data": 1, "id": str(number)}
        took.append(timed(graph, state, event)[0])
    return Cost(statistics.median(took), compiling, starting)


def within(steps: int, join: str = "") -> Cost:
    """End a task of a flow of so many steps: a chain, or diamonds one after the other.

    Args:
        steps: How many there are.
        join: The kind of the diamonds' joins; empty: a chain.
    """
    lines = list(_diamonds(steps // 3, join)) if join else [f"{{id: s{n}, {TASK}}}"
                                                            for n in range(steps)]  # fmt: skip
    graph, state, commands, compiling, starting = begun(
        HEAD + "steps:\n" + "".join(f"  - {line}\n" for line in lines)
    )
    running, took = [c for c in commands if isinstance(c, Run)], []
    for _ in range(10):
        run = running.pop(0)
        event = {"type": "succeeded", "at": 2, "unit": run.unit, "attempt": run.attempt,
                 "value": None}  # fmt: skip
        seconds, commands = timed(graph, state, event)
        took.append(seconds)
        running += [c for c in commands if isinstance(c, Run)]
    return Cost(statistics.median(took), compiling, starting)


def _diamonds(count: int, join: str) -> Iterator[str]:
    for n in range(count):
        joined = f"join: {join}, " if n else ""
        yield f"{{id: a{n}, {TASK}, {joined}next: {{all: [b{n}, c{n}]}}}}"
        yield f"{{id: b{n}, {TASK}, next: a{n + 1}}}"
        yield f"{{id: c{n}, {TASK}, next: a{n + 1}}}"
    yield f"{{id: a{count}, join: {join}}}"


def begun(text: str, **inputs: Any) -> tuple[Graph, State, list[Any], float, float]:
    """Compile a flow and start it; return how long each took, too."""
    before = time.perf_counter()
    compiled = compile_text(text)
    compiling = time.perf_counter() - before
    graph, state = LinkedFlow(compiled.flow, compiled.hash, LANGUAGE).graph, new_state()
    execution: dict[str, Any] = {
        "id": "it", "flow": "flow", "version": "0", "started_at": "1970-01-01T00:00:01Z",
        "scheduled_at": None, "started_by": "user:ada", "parent": None, "labels": {},
        "identity": "it",
    }  # fmt: skip
    event = {"type": "started", "at": 1, "inputs": inputs, "execution": execution}
    starting, commands = timed(graph, state, event)
    return graph, state, commands, compiling, starting


def timed(graph: Graph, state: State, event: dict[str, Any]) -> tuple[float, list[Any]]:
    """Apply an event; return the seconds and the commands."""
    before = time.perf_counter()
    commands = advance(graph, state, cast(Event, event))
    return time.perf_counter() - before, cast(list[Any], commands)
