"""The cost of an event is independent of the number of waits and the size of the flow.

Cost is counted, not timed: the lines of Python executed by one `advance`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import pytest

from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.engines.flows import LANGUAGE
from flowengine.flow.compile import compile_text
from flowengine.kernel import Graph, advance
from flowengine.kernel.commands import Run
from flowengine.kernel.events import Event
from tests.rows import each_row
from tests.simulation.simulator import Simulator

FEW, MANY = 10, 300
STATE = "state: {y: {type: integer, default: 0}, z: {type: integer, default: 0}}\n"
ITEMS = "inputs: {n: {type: integer}}\nsteps:\n"
WAITING = {
    "items at approvals": ITEMS + "  - {id: a, map: '${{ inputs.n }}', approval: Ok?}",
    "items in groups": ITEMS
    + "  - {id: g, map: '${{ inputs.n }}', group: [{id: a, approval: Ok?}, {id: b, output: 1}]}",
    "items at a lock of their own": ITEMS + "  - {id: a, map: '${{ inputs.n }}', approval: Ok?,"
    " lock: {key: '${{ string(item) }}', hold: true}}",
    "tokens before a join of those that come": ITEMS
    + "  - {id: a, map: {over: '${{ inputs.n }}', join: none}, approval: Ok?, next: b}\n"
    "  - {id: b, join: active}",
    "tokens before each": ITEMS
    + "  - {id: a, map: {over: '${{ inputs.n }}', join: none}, approval: Ok?, next: b}\n"
    "  - {id: b, join: each}",
    "waves before a join that queues": ITEMS
    + "  - {id: a, map: {over: '${{ inputs.n }}', join: none}, approval: Ok?,"
    " next: {all: [c, d]}}\n"
    "  - {id: c, join: each, next: b}\n  - {id: d, join: each, next: b}\n"
    "  - {id: b, join: {need: 2, late: queue}}",
    "items at signals of a key": "signals: {x: {}}\n"
    + ITEMS
    + "  - {id: a, map: '${{ inputs.n }}', wait: {signal: x, key: '${{ string(item) }}'}}",
    "items at another state key": STATE
    + ITEMS
    + "  - {id: a, map: '${{ inputs.n }}', wait: {when: '${{ state.y > 1 }}'}}",
    "items at timers": ITEMS + "  - {id: a, map: '${{ inputs.n }}', wait: 1h}",
}
MATCHING = (
    "signals: {x: {}}\n" + ITEMS + "  - {id: a, map: '${{ inputs.n }}',"
    " wait: {signal: x, match: '${{ signal.data == 1 && item < 0 }}'}}"
)


def graph_of(text: str) -> Graph:
    compiled = compile_text(f"flowengine: 1\nid: flow\n{text}\n")
    return LinkedFlow(compiled.flow, compiled.hash, LANGUAGE).graph


def work(call: Callable[[], object]) -> int:
    """Return the number of Python lines that a call executes."""
    lines = 0

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def one_more(played: Simulator) -> Event:
    """Return an event for the middle one of the open waits."""
    wait = played.waits()[len(played.waits()) // 2]
    event: dict[str, Any] = {"at": played.now, "by": "user:ana"}
    if wait["kind"] == "approval":
        event |= {"type": "decided", "wait": wait["id"], "choice": "approve", "via": "test"}
    elif wait["kind"] == "signal":
        key = cast(Any, wait["signals"])[0]["key"]
        event |= {"type": "message", "signal": "x", "key": key, "data": 1, "id": "m"}
    elif wait["kind"] == "state":
        event |= {"type": "state", "values": {"z": 1}}
    else:
        timer = next(iter(played.state["timers"]))
        event |= {"type": "timer", "timer": timer, "at": played.state["timers"][timer]["due"]}
    return cast(Event, event)


def cost_among(text: str, waiting: int) -> int:
    """Return the cost of one event among that many open waits, after a warm-up."""
    graph = graph_of(text)
    played = Simulator(graph).start({"n": waiting + 2})
    for _ in range(2):
        played.apply(one_more(played))
    assert len(played.waits()) in (waiting, waiting + 2)
    event = one_more(played)
    return work(lambda: advance(graph, played.state, event))


@pytest.mark.parametrize("text", WAITING.values(), ids=WAITING)
def test_one_answer_costs_the_same_however_many_wait(text: str) -> None:
    assert cost_among(text, MANY) <= cost_among(text, FEW) * 1.1 + 5


def test_the_measure_sees_a_scan() -> None:
    """Each matching condition must be evaluated until one accepts the message."""
    assert cost_among(MATCHING, MANY) > cost_among(MATCHING, FEW) * 5


def chain(size: int, join: str) -> str:
    steps = ["  - {id: s, call: std.print, with: {text: x}}"]
    for number in range(size // 3):
        joined = f", join: {join}" if number else ""
        steps.append(f"  - {{id: a{number}{joined}, next: {{all: [b{number}, c{number}]}}}}")
        steps += [
            f"  - {{id: {way}{number}, call: std.print, with: {{text: x}}, next: a{number + 1}}}"
            for way in "bc"
        ]
    steps.append(f"  - {{id: a{size // 3}, join: {join}}}")
    return "steps:\n" + "\n".join(steps)


def cost_within(text: str) -> int:
    """Return the cost of ending the sixth and seventh task of a flow."""
    graph = graph_of(text)
    played = Simulator(graph, order="first").start()
    for _ in range(5):
        played.step()

    def two() -> None:
        for _ in range(2):
            run: Run = next(iter(played.running.values()))
            event = {"at": 1, "unit": run.unit, "attempt": run.attempt, "value": None}
            commands = advance(graph, played.state, cast(Event, {"type": "succeeded", **event}))
            del played.running[run.unit, run.attempt]
            played.running |= {(c.unit, c.attempt): c for c in commands if isinstance(c, Run)}

    two()  # links everything that is reached for the first time
    return work(two)


@each_row("join", ["active", "each"])
def test_one_step_costs_the_same_however_large_the_flow(join: str) -> None:
    large, small = cost_within(chain(MANY, join)), cost_within(chain(4 * FEW, join))

    assert large <= small * 1.1 + 5
