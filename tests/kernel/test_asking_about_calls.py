"""Approval before a call is made: exactly the approved call runs, once."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import Graph
from flowengine.kernel.commands import OpenWait, Run
from flowengine.kernel.graph.compiled import SecretText, digest
from flowengine.testing.explorer import deciding, explore
from flowengine.testing.invariants import check_over
from flowengine.testing.simulator import Fails, Simulator
from tests.testing.graphs import calls, graph, needs, output_of, step, v, x

ARGS = {"n": 1}
INPUT = v(x(lambda names: {"args": names["args"]}))
CHOICES = [{"id": "approve", "counts_as": "approve"}, {"id": "reject", "counts_as": "reject"}]


def begin(flow: Graph, script: Any = None, **inputs: Any) -> Simulator:
    return Simulator(flow, script, order="first").start(inputs)


def one(args: Any = ARGS, fields: Any = None, **more: Any) -> Graph:
    asked = calls("send", args, **(fields or {}))
    return graph(step("a", **asked, input=INPUT, **more), outputs={"a": v(output_of("a"))})


def in_order(*answers: Any) -> Any:
    left = iter(answers)

    def task(run: Run) -> Any:
        answer = next(left)
        if isinstance(answer, Fails):
            raise answer
        return answer

    return {"a": task}


def runs(played: Simulator) -> list[Run]:
    return [command for command in played.commands if isinstance(command, Run)]


def asked(played: Simulator) -> int:
    return len({c.record["id"] for c in played.commands if isinstance(c, OpenWait)})


def test_what_was_shown_runs_whatever_becomes_of_the_state_meanwhile() -> None:
    args = x(lambda names: {"n": names["state"]["k"]})
    write = step("b", action="none", set=[["k", v(9)]], join="each", next="end")
    flow = graph(
        step("p", parallel=[step("a", **calls("send", args), input=INPUT, next="end"), write]),
        state={"k": {"default": 1}},
    )
    played = begin(flow)
    assert played.state["vars"]["k"][0] == 9

    played.decide("p/a", "approve")

    assert runs(played)[0].args == {"n": 1}


def test_a_response_that_looks_like_a_refusal_of_a_policy_is_a_result() -> None:
    played = begin(one())

    played.decide("a", "respond", value={"refused": True})

    assert played.outputs == {"a": {"refused": True}}


def test_time_that_runs_out_is_expired_or_takes_a_choice() -> None:
    fields = {"expires": "1h"}
    played = begin(one(fields=fields))
    played.pass_time()
    assert played.error is not None
    assert played.error["type"] == "Expired"

    played = begin(one(fields={**fields, "on_expire": "approve"}))
    played.pass_time()
    assert len(runs(played)) == 1


def test_an_approval_covers_the_retries_of_the_call() -> None:
    script = in_order(Fails("Flaky", retryable=True), 3)
    played = begin(one(retry={"attempts": 2, "delay": "1s"}), script)

    played.decide("a", "approve", edits={"n": 5})
    played.run()

    assert asked(played) == 1
    assert [run.args for run in runs(played)] == [{"n": 5}, {"n": 5}]
    assert played.outputs == {"a": 3}


def test_each_round_of_a_loop_is_a_call_of_its_own() -> None:
    loop = {"max": v(3), "until": x(lambda names: names["output"] == 2)}
    played = begin(one(loop=loop), in_order(1, 2))

    for _ in range(2):
        [wait] = played.waits()
        played.decide(str(wait["address"]), "approve")
        played.run()

    assert played.outputs == {"a": 2}
    assert asked(played) == 2


def test_who_tries_a_failed_execution_again_is_asked_again() -> None:
    played = begin(one(), in_order(Fails("Broken"), 4))
    played.decide("a", "approve")
    played.run()
    assert played.status == "failed"

    played.retry()

    assert played.status == "waiting"
    played.decide("a", "approve")
    assert played.run().outputs == {"a": 4}


def test_of_a_call_that_is_cancelled_nothing_is_left_to_decide() -> None:
    flow = graph(
        step("g", group=[step("a", **calls("send", ARGS))], timeout=v("1m"), on_error=[
            {"types": ["Timeout"], "do": "output", "output": v(0)}]),
        outputs={"g": v(output_of("g"))},
    )  # fmt: skip
    played = begin(flow)
    [wait] = played.waits()

    played.pass_time()

    assert played.outputs == {"g": 0}
    late: Any = {"type": "decided", "at": played.now, "wait": wait["id"], "choice": "approve"}
    late["by"] = "user:ana"
    played.apply(late)
    assert not played.started
    check_over(played)


def test_its_environments_are_asked_about_once_it_is_approved() -> None:
    box = needs({"box": {"approval": {"choices": CHOICES}}}, 1)
    played = begin(graph(step("a", **calls("send", ARGS), **box)))
    assert [wait.get("tool") for wait in played.waits()] == ["send"]

    played.decide("a", "approve")

    assert [wait.get("environment") for wait in played.waits()] == ["box"]
    assert not played.started
    played.decide("a", "approve")
    assert played.started == ["a"]


def test_of_a_rejected_call_no_environment_is_asked_about() -> None:
    box = needs({"box": {"approval": {"choices": CHOICES}}}, 1)
    played = begin(graph(step("a", **calls("send", ARGS), **box)))

    played.decide("a", "reject")

    assert asked(played) == 1


def test_the_timeout_begins_with_the_attempt() -> None:
    played = begin(one(timeout=v("1s")), {"a": 1})
    assert not played.state["timers"]

    played.decide("a", "approve")

    assert [timer["why"] for timer in played.state["timers"].values()] == ["timeout"]


def test_nobody_has_the_lock_while_people_think() -> None:
    lock = {"key": v("k"), "scope": "execution"}
    arms = [
        step("a", **calls("send", ARGS), lock=lock, next="end"),
        step("b", lock=lock, next="end"),
    ]
    played = begin(graph(step("p", parallel=arms)))

    assert played.started == ["p/b"]


def test_a_subflow_begins_with_the_edited_inputs() -> None:
    inner = {
        "steps": [step("s", input=v(x(lambda names: names["inputs"]["n"])))],
        "inputs": {"n": {"type": "integer"}},
    }
    flow = graph(step("a", action="flow", flow="f", **calls("f", ARGS)), flows={"f": inner})
    played = begin(flow)

    played.decide("a", "approve", edits={"n": 8})

    assert runs(played)[0].input == 8


def test_secrets_that_the_flow_binds_are_masked_and_not_for_editing() -> None:
    asks = calls("send", ARGS)
    bind = {"key": ["secret", [["KEY"]]], "header": ["secret", ["Bearer ", ["KEY"]]]}
    asks["approval"][1]["bind"] = ["map", bind]
    [wait] = begin(graph(step("a", **asks))).waits()

    assert wait["subject"] == {"n": 1, "key": "***", "header": "Bearer ***"}
    assert wait["edit"] == ["n"]
    assert wait["bound"] == ["header", "key"]


def test_with_several_votes_nothing_can_be_edited() -> None:
    [wait] = begin(one(fields={"need": 2})).waits()
    assert "edit" not in wait


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (b"a", "a"),
        (b"a", {"bytes": "61"}),
        (SecretText([["K"]]), {"secret": [["K"]]}),
        ({"a": 1}, {"map": [["a", 1]]}),
        ([["a", 1]], {"a": 1}),
        (None, "null"),
        (True, 1),
    ],
)
def test_what_differs_has_different_digests(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


def test_the_order_of_keys_does_not_matter_to_a_digest() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})


def test_whatever_order_things_happen_in_each_call_runs_once_or_not_at_all() -> None:
    arms = [
        step(name, **calls("send", {"n": n}), input=INPUT, next="end", on_error=[
            {"types": ["Rejected"], "do": "continue"}])
        for n, name in enumerate("ab")
    ]  # fmt: skip
    flow = graph(step("p", parallel=arms))

    ran: set[int] = set()

    def look(played: Simulator) -> None:
        assert sorted(set(played.started)) == sorted(played.started)
        ran.add(len(played.started))

    found = explore(
        flow,
        outside=[
            deciding("p/a", {"choice": "approve", "edits": {"n": 7}}, "reject"),
            deciding("p/b", "approve", {"choice": "respond", "value": 1}),
        ],
        holds=look,
    )
    assert found.complete
    assert ran >= {0, 1, 2}
