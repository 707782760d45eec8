"""Approval before an attempt: which steps ask, which share a decision, and its effects."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import Graph
from flowengine.kernel.commands import OpenWait
from flowengine.testing.explorer import deciding, explore
from flowengine.testing.invariants import check_over
from flowengine.testing.simulator import Fails, Simulator
from tests.testing.graphs import graph, needs, output_of, step, v, x

CHOICES = [{"id": "approve", "counts_as": "approve"}, {"id": "reject", "counts_as": "reject"}]
ASKED = {"approval": {"choices": CHOICES}}
ARMS = {"next": "end"}


def begin(flow: Graph, script: Any = None, **inputs: Any) -> Simulator:
    return Simulator(flow, script, order="first").start(inputs)


def box(scope: str = "execution", **more: Any) -> dict[str, Any]:
    return needs({"box": {"scope": scope, **ASKED, **more}}, 1)


def titles(played: Simulator) -> list[str]:
    return [str(wait["environment"]) for wait in played.waits()]


def one(**more: Any) -> Graph:
    return graph(step("a", **box(), **more), outputs={"a": v(output_of("a"))})


def test_a_rejection_stands_however_often_it_is_tried() -> None:
    retry = {"attempts": 3, "only": ["Rejected"], "delay": "1s"}
    played = begin(graph(step("a", **box(), retry=retry), step("b", **box())))

    played.decide("a", "reject")
    played.run()

    assert played.error is not None
    assert sum(isinstance(command, OpenWait) for command in played.commands) == 1


def test_time_that_runs_out_is_expired_and_the_next_one_asks_again() -> None:
    asked = needs({"box": {"approval": {"choices": CHOICES, "expires": "1h"}}})
    first = step("a", **asked, on_error=[{"types": ["Expired"], "do": "output", "output": v(0)}])
    played = begin(graph(first, step("b", **asked)))

    played.pass_time()

    assert played.status == "waiting"
    assert [wait["address"] for wait in played.waits()] == ["b"]
    played.decide("b", "approve")
    assert played.started == ["b"]


def test_expiry_may_take_a_choice() -> None:
    asked = {"choices": CHOICES, "expires": "1h", "on_expire": "approve"}
    played = begin(graph(step("a", **needs({"box": {"approval": asked}}))))

    played.pass_time()

    assert played.started == ["a"]


@pytest.mark.parametrize(
    ("scope", "questions"), [("step", 5), ("region", 3), ("execution", 1), ("session", 1)]
)
def test_what_is_shared_less_far_is_asked_about_more_often(scope: str, questions: int) -> None:
    """A map of two items with one step each, and a later step that runs twice."""
    again = {"until": x(lambda names: names["round"]["number"] == 2), "max": v(3)}
    flow = graph(
        step("m", map={"over": v(2), "names": ["item", "index", "key"], "concurrency": v(8)},
             group=[step("a", **box(scope)), step("b", **box(scope))]),
        step("c", **box(scope), loop=again),
    )  # fmt: skip
    played = begin(flow)
    asked = 0
    while played.status not in ("succeeded", "failed"):
        if played.waits():
            asked += 1
            played.decide(str(played.waits()[0]["address"]), "approve")
        else:
            played.step()

    assert (played.status, asked) == ("succeeded", questions)
    check_over(played)


def test_another_spec_is_another_question() -> None:
    arms = [step("a", **box(), **ARMS), step("b", **box(config={"path": "other"}), **ARMS)]
    played = begin(graph(step("p", parallel=arms)))

    assert [wait["address"] for wait in played.waits()] == ["p/a", "p/b"]


def test_a_step_that_needs_two_asks_for_both_at_once_and_begins_when_both_are_answered() -> None:
    played = begin(graph(step("a", **needs({"box": ASKED, "db": ASKED}))))

    assert titles(played) == ["box", "db"]
    played.decide("a", "approve")
    assert titles(played) == ["db"]
    assert not played.started
    played.decide("a", "approve")
    assert played.started == ["a"]


def test_one_rejection_withdraws_what_else_it_would_have_needed() -> None:
    played = begin(graph(step("a", **needs({"box": ASKED, "db": ASKED}))))

    played.decide("a", "reject")

    assert (played.status, played.waits()) == ("failed", [])


def test_a_question_outlives_the_step_that_asked_it_if_others_wait() -> None:
    arms = [step("a", **box(), **ARMS, deadline=v("1m")), step("b", **box(), **ARMS)]
    played = begin(graph(step("p", parallel=arms, on_error=[{"do": "continue"}])))
    [wait] = played.waits()
    alone = begin(one(deadline=v("1m")))

    played.apply({"type": "cancel", "at": 0, "reason": "r", "by": "user:test", "now": True})
    alone.pass_time()

    assert wait["id"]
    assert (played.status, played.waits()) == ("cancelled", [])
    assert (alone.status, alone.waits()) == ("failed", [])


def test_a_place_in_a_map_is_free_while_its_item_waits_for_an_answer() -> None:
    over = {"over": v(3), "names": ["item", "index", "key"], "concurrency": v(1)}
    played = begin(graph(step("m", map=over, group=[step("a", **box("region"))])))

    assert [wait["address"] for wait in played.waits()] == ["m[0]/a", "m[1]/a", "m[2]/a"]


def test_a_lock_is_free_while_its_step_waits_for_an_answer() -> None:
    lock = {"key": v("k"), "permits": 1}
    arms = [step("a", **box(), **ARMS, lock=lock), step("b", **ARMS, lock=lock)]
    played = begin(graph(step("p", parallel=arms)))

    assert played.started == ["p/b"]


def test_it_is_bounded_by_the_deadline_and_not_by_the_timeout() -> None:
    played = begin(one(timeout=v("1s")))

    assert not played.possible()
    played.decide("a", "approve")
    assert [timer["why"] for timer in played.state["timers"].values()] == ["timeout"]


def test_the_question_shows_what_it_is_and_no_secret() -> None:
    hidden = ["secret", ["Bearer ", ["TOKEN"]]]
    config = ["map", {"url": ["const", "u" * 500], "headers": hidden}]
    spec = ["map", {"kind": ["const", "toy"], "resource_key": ["const", "box"], "config": config}]
    use = {"scope": ["const", "execution"], "spec": spec, "approval": v(ASKED["approval"])}
    keys = {"environments": True, "asks": True}
    flow = graph(
        step(
            "a",
            **keys,
            input=["map", {"input": v(1), "environments": ["map", {"b": ["map", use]}]}],
        )
    )
    [wait] = begin(flow).waits()

    assert wait["subject"]["kind"] == "toy"
    assert wait["subject"]["scope"] == "execution"
    assert wait["subject"]["config"]["headers"] == "Bearer ***"
    assert len(wait["subject"]["config"]["url"]) == 200


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


def test_under_another_form_of_the_flow_the_question_stays_if_it_is_the_same() -> None:
    played = begin(graph(step("a", **box())))
    [wait] = played.waits()

    played.upgrade(graph(step("z", next="a"), step("a", **box())))

    assert [again["id"] for again in played.waits()] == [wait["id"]]
    played.decide("a", "approve")
    assert played.started == ["a"]
    check_over(played)


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


def test_under_a_form_that_asks_nobody_it_goes_on() -> None:
    played = begin(graph(step("a", **box())))

    played.upgrade(graph(step("a", **needs({"box": {"scope": "execution"}}, 1))))

    assert (played.waits(), played.started) == ([], ["a"])
    played.run()
    check_over(played)


def test_a_flow_that_is_opening_can_be_moved() -> None:
    played = begin(graph(step("a"), opens=OPENS))

    played.upgrade(graph(step("b", next="a"), step("a"), opens=OPENS))
    played.decide("environments", "approve")
    played.run()

    assert played.started == ["environments", "b", "a"]
    check_over(played)


def test_opening_at_the_start_is_no_call_that_a_budget_counts() -> None:
    budget = {"tool_calls": 1, "then": "stop"}
    played = begin(graph(step("a"), opens=OPENS, budget=budget))

    played.decide("environments", "approve")

    assert played.run().status == "succeeded"
    check_over(played)
