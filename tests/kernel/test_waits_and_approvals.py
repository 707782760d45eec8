"""Conditions on state that are evaluated, and decisions that come too late."""

from __future__ import annotations

from typing import Any

from flowengine.kernel import Graph
from tests.simulation.simulator import Simulator
from tests.testing.graphs import graph, step, v, x

APPROVE = {"id": "approve", "counts_as": "approve"}
REJECT = {"id": "reject", "counts_as": "reject"}


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


def test_late_decision_changes_nothing() -> None:
    given = {"title": "t", "choices": [APPROVE, REJECT]}
    played = begin(graph(step("ask", action="approval", input=v(given))))
    wait = played.waits()[0]["id"]
    played.decide("ask", "approve")
    before = played.state.copy()

    played.apply({"type": "decided", "at": played.now, "wait": wait, "choice": "reject"})

    before["events"] += 1
    assert played.state == before
