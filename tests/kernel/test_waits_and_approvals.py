"""Conditions on state, decisions that come too late, and a turn that never came."""

from __future__ import annotations

from typing import Any

from flowengine.flow.compile import compile_text
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.kernel import Graph
from tests.rows import each_row
from tests.simulation.simulator import Fails, Simulator
from tests.testing.graphs import graph, step, v, x


def begin(flow: Graph, script: Any = None) -> Simulator:
    return Simulator(flow, script, order="first").start()


def test_only_the_conditions_that_name_what_has_changed_are_looked_at() -> None:
    looked: list[str] = []

    def waiting(name: str, key: str) -> Any:
        def holds(n: Any) -> bool:
            looked.append(name)
            return bool(n["state"][key])

        alternative = {"id": "ok", "when": x(holds), "watches": [key]}
        wait = {"mode": "first", "alternatives": [alternative]}
        return step(name, action="wait", wait=wait, next="end")

    flow = graph(
        step("s", action="none", next={"all": ["a", "b", "t"]}),
        waiting("a", "one"), waiting("b", "two"),
        step("t", set=[["two", v(True)]], next="u"), step("u", set=[["one", v(True)]]),
        state={"one": {"default": False}, "two": {"default": False}},
    )  # fmt: skip

    assert begin(flow).run().status == "succeeded"
    assert looked == ["a", "b", "b", "a"]


SIDES = """
flowengine: 1
id: sides
steps:
  - id: g
    group:
      - {id: begin, output: 1, next: {all: [a, b]}}
      - {id: a, python: "os:getpid", effect: once, compensate: {python: "os:getppid"}, next: end}
      - {id: b, python: "os:getcwd", effect: once, next: end}
    on_error: [{compensate: true, next: end}]
"""


@each_row("failing", [False, True])
def test_an_attempt_that_never_began_answers_the_question_about_it(failing: bool) -> None:
    flow = compile_text(SIDES).flow
    sides = Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))
    played = begin(sides, {"g/b": Fails("Broken") if failing else 1})
    first, second = played.running.values()
    cut: Any = {"type": "cut", "at": played.now, "unit": first.unit, "attempt": first.attempt}
    if failing:  # its compensation asks
        played.finish(second.address)
    else:
        played.running.pop((first.unit, first.attempt))
        played.apply(cut)
    assert [wait["ran"] for wait in played.waits()] == ["maybe"]

    late: Any = {**cut, "began": False}
    played.apply(late)
    played.apply(late)

    assert played.waits() == []
    if not failing:
        assert [run.attempt for run in played.running.values() if run.unit == first.unit] == [2]
    assert played.run().status == "succeeded"
    assert not any("compensate" in line for line in played.story())


def test_a_handler_leads_back_into_a_flow_whose_turn_never_came() -> None:
    flow = graph(
        step("a", next="end"),
        step("after", next="end"),
        concurrency={"max": 1, "then": "queue"},
        limits={"duration": "1h"},
        on_error=[{"types": ["LimitExceeded"], "do": "next", "to": "after"}],
    )
    played = Simulator(flow, {"a": 1, "after": 2}).start()
    played.pass_time()
    assert played.started == ["after"]
    assert played.run().status == "succeeded"
    assert played.started == ["after"]
