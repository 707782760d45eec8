"""Approval at the point of execution: the engine was about to make a call that needs a decision."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import Graph
from flowengine.kernel.commands import ClearTimer, CloseWait, Run
from flowengine.testing.explorer import deciding, explore
from flowengine.testing.invariants import check_over
from flowengine.testing.simulator import Asks, Fails, Simulator
from tests.testing.graphs import calls, graph, output_of, step, v, x

ASKS = Asks("a rule", 7)


def one(**more: Any) -> Graph:
    given = x(lambda names: {"args": {"n": names["state"]["n"]}})
    return graph(
        step("a", tool="get", input=v(given), **more),
        state={"n": {"default": 1}},
        outputs={"a": v(output_of("a"))},
    )


def asked(flow: Graph, script: Any = ASKS) -> Simulator:
    played = Simulator(flow, {"a": script}, order="first").start()
    played.step()
    return played


def inputs(played: Simulator) -> list[Any]:
    return [command.input for command in played.commands if isinstance(command, Run)]


def test_the_question_shows_what_is_about_to_run_and_why_it_is_asked() -> None:
    played = asked(one())

    [wait] = played.waits()
    assert played.status == "waiting"
    assert (wait["kind"], wait["address"], wait["rule"]) == ("approval", "a", "a rule")
    assert wait["subject"] == {"args": {"n": 1}}
    assert [choice["id"] for choice in wait["choices"]] == ["approve", "reject", "respond"]

    played.decide("a", "approve")
    assert played.run().outputs == {"a": 7}
    check_over(played)


def test_what_was_shown_runs_whatever_becomes_of_the_state_meanwhile() -> None:
    played = asked(one())
    played.apply({"type": "state", "at": played.now, "values": {"n": 9}, "by": "user:ana"})

    played.decide("a", "approve")

    assert inputs(played) == [{"args": {"n": 1}}] * 2


def test_a_rejection_fails_the_step_and_it_does_not_run() -> None:
    played = asked(one())

    played.decide("a", "reject", comment="not today", by="user:ben")

    assert played.error is not None
    assert played.error["type"] == "Rejected"
    assert played.error["message"] == "'a' was not called: rejected by user:ben: not today"
    assert len(inputs(played)) == 1


def test_somebody_may_give_the_result() -> None:
    played = asked(one())
    played.decide("a", "respond", value=3)
    assert played.outputs == {"a": 3}


def test_an_attempt_that_is_not_made_uses_up_nothing() -> None:
    flow = graph(
        step("a", tool="get", retry={"attempts": 2, "delay": "1s"}, timeout=v("1m"),
             lock={"key": v("k"), "scope": "execution"}),
        budget={"tool_calls": 2, "then": "stop"},
        outputs={"a": v(output_of("a"))},
    )  # fmt: skip
    failing = iter([Fails("Flaky", retryable=True), 4])

    def task(run: Run) -> Any:
        return next(failing)

    played = asked(flow)
    assert any(isinstance(command, ClearTimer) for command in played.commands)
    assert not played.state["timers"]
    assert "locks" not in played.state
    assert played.state["budget"]["used"] == 0

    played.script["a"] = task
    played.decide("a", "approve")
    assert played.run().outputs == {"a": 4}
    assert played.state["budget"]["used"] == 2


def test_the_approval_covers_retries_and_a_crash() -> None:
    played = asked(one(retry={"attempts": 2, "delay": "1s"}, effect="idempotent"))
    played.decide("a", "approve")
    played.crash()
    [run] = played.running.values()
    assert run.approved["approved"]
    played.script["a"] = Fails("Flaky", retryable=True)
    played.finish("a")
    played.pass_time()
    [run] = played.running.values()
    assert run.approved["approved"]


def test_each_round_of_a_loop_asks_anew() -> None:
    loop = {"max": v(3), "until": x(lambda names: names["output"] == 2)}
    played = asked(one(loop=loop))
    played.decide(str(played.waits()[0]["address"]), "approve")
    played.step()
    played.step()
    [wait] = played.waits()
    assert wait["address"] == "a@2"


def test_of_a_step_that_is_cancelled_nothing_is_left_to_decide() -> None:
    flow = graph(
        step("g", group=[step("a", tool="get")], timeout=v("1m"),
             on_error=[{"types": ["Timeout"], "do": "output", "output": v(0)}]),
        outputs={"g": v(output_of("g"))},
    )  # fmt: skip
    played = Simulator(flow, {"a": ASKS}, order="first").start()
    played.finish("g/a")
    played.pass_time()
    assert played.outputs == {"g": 0}
    assert [c.how for c in played.commands if isinstance(c, CloseWait)] == ["withdrawn"]
    check_over(played)


def test_a_call_that_was_approved_before_is_asked_about_anew_as_its_tool_says() -> None:
    given = v(x(lambda names: {"args": names["args"]}))
    flow = graph(
        step("a", **calls("send", {"n": 1}), input=given), outputs={"a": v(output_of("a"))}
    )
    played = Simulator(flow, {"a": 5}, order="first").start()
    played.decide("a", "approve", edits={"n": 2})
    [run] = played.running.values()
    assert run.approved["args"] == {"n": 2}

    played.apply(
        {"type": "asked", "at": played.now, "unit": run.unit, "attempt": run.attempt,
         "tool": "send", "version": "2", "subject": {}, "difference": "- old\n+ new"}
    )  # fmt: skip
    [wait] = played.waits()
    assert (wait["subject"], wait["difference"], wait["edit"]) == (
        {"n": 2}, "- old\n+ new", ["n"],
    )  # fmt: skip

    played.decide("a", "approve")
    assert inputs(played) == [{"args": {"n": 2}}] * 2
    assert played.run().outputs == {"a": 5}


def test_who_tries_a_failed_execution_again_is_asked_again() -> None:
    played = asked(one())
    played.decide("a", "reject")
    assert played.status == "failed"
    played.retry()
    played.run()
    [wait] = played.waits()
    assert wait["rule"] == "a rule"
    played.decide("a", "approve")
    assert played.run().outputs == {"a": 7}


def test_an_execution_that_moves_to_another_form_of_its_flow_asks_anew() -> None:
    played = asked(one())
    other = graph(
        step("a", tool="get", input=v({"args": {"n": 5}})),
        state={"n": {"default": 1}},
        outputs={"a": v(output_of("a"))},
    )
    played.upgrade(other)
    played.run()
    [wait] = played.waits()
    assert wait["subject"] == {"args": {"n": 5}}
    played.decide("a", "approve")
    assert played.run().outputs == {"a": 7}


@pytest.mark.parametrize("phase", ["approved", "running"])
def test_an_approval_from_before_a_move_does_not_count_for_what_the_step_is_now(phase: str) -> None:
    lock = {"key": v("k"), "scope": "global"}
    flow = one(lock=lock) if phase == "approved" else one()
    played = Simulator(flow, {"a": ASKS}, order="first").start()
    played.step() if phase == "approved" else None
    played.finish("a")
    played.decide("a", "approve")
    other = graph(
        step("a", tool="get", input=v({"args": {"n": 5}}), effect="idempotent", **(
            {"lock": lock} if phase == "approved" else {})),
        state={"n": {"default": 1}},
        outputs={"a": v(output_of("a"))},
    )  # fmt: skip
    played.upgrade(other)
    if phase == "running":
        played.crash()  # the attempt is over, and another one starts
    played.step()
    assert [run.approved for run in played.running.values()] in ([], [None])


def test_whatever_order_things_happen_in_each_call_runs_once_or_not_at_all() -> None:
    arms = [
        step(name, tool=name, next="end", effect="once", on_crash="fail",
             on_error=[{"types": ["Rejected"], "do": "continue"}])
        for name in "ab"
    ]  # fmt: skip
    ran: dict[int, int] = {}

    def look(played: Simulator) -> None:
        succeeded = [e["unit"] for e in played.journal if e["type"] == "succeeded"]
        assert len(succeeded) == len(set(succeeded))
        ran[len(succeeded)] = 1

    found = explore(
        graph(step("p", parallel=arms)),
        script={"a": Asks("r", 1), "b": Asks("r", 2)},
        outside=[deciding("p/a", "approve", "reject"), deciding("p/b", "approve", "reject")],
        holds=look,
    )
    assert found.complete
    assert set(ran) == {0, 1, 2}
