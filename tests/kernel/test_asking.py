"""Approval before an attempt: which steps ask, which share a decision, and its effects."""

from __future__ import annotations

from typing import Any

from flowengine.kernel import Graph
from tests.simulation.explorer import deciding, explore
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Fails, Simulator
from tests.testing.graphs import graph, needs, step, v

CHOICES = [{"id": "approve", "counts_as": "approve"}, {"id": "reject", "counts_as": "reject"}]
ASKED = {"approval": {"choices": CHOICES}}
ARMS = {"next": "end"}


def begin(flow: Graph, script: Any = None, **inputs: Any) -> Simulator:
    return Simulator(flow, script, order="first").start(inputs)


def box(scope: str = "execution", **more: Any) -> dict[str, Any]:
    return needs({"box": {"scope": scope, **ASKED, **more}}, 1)


def test_every_order_of_answers_crashes_and_results_holds_what_always_holds() -> None:
    arms = [
        step("a", **box("region"), **ARMS),
        step("b", **needs({"box": {"scope": "region", **ASKED}, "db": ASKED}), **ARMS),
        step("c", **needs({"db": ASKED}), **ARMS, on_error=[{"do": "output", "output": v(0)}]),
    ]
    found = explore(
        graph(step("p", parallel=arms, on_error=[{"do": "continue"}])),
        {"a": 1, "b": Fails("Odd"), "c": 3},
        outside=[deciding(at, "approve", "reject") for at in ("p/a", "p/b", "p/c")],
        limit=400,
    )

    assert {played.status for played in found.runs} == {"succeeded"}
    for played in found.runs:
        assert sum("asks" in wait for wait in played.state["waits"].values()) == 0


OPENS = {"box": {"scope": "execution", **ASKED}}


def test_cancelled_while_it_opens_leaves_nothing() -> None:
    played = begin(graph(step("a"), opens={"box": {"scope": "execution"}}))

    played.apply({"type": "cancel", "at": 0, "reason": "r", "by": "user:test", "now": False})

    assert played.status == "cancelled"
    check_over(played)


def test_messages_that_come_while_it_opens_begin_their_steps_then() -> None:
    triggered = step("t", trigger={"signals": ["s"]}, next="end")
    flow = graph(step("a", next="end"), triggered, opens=OPENS, signals={"s": {}})
    played = begin(flow)

    played.send("s", 1)
    assert not played.started
    played.decide("environments", "approve")
    played.run()

    assert sorted(played.started) == ["a", "environments", "t"]


def test_under_a_form_that_opens_something_else_it_is_asked_anew() -> None:
    played = begin(graph(step("a", **box())))
    [wait] = played.waits()

    played.upgrade(graph(step("a", **box(config={"path": "other"}))))

    [again] = played.waits()
    assert again["id"] != wait["id"]
    assert again["subject"]["config"] == {"path": "other"}
    played.decide("a", "approve")
    assert played.started == ["a"]
    check_over(played)
