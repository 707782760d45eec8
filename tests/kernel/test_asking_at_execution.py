"""Approval at the point of execution: the engine was about to make a call that needs a decision."""

from __future__ import annotations

from typing import Any

from flowengine.kernel import Graph
from flowengine.kernel.commands import Run
from tests.simulation.explorer import deciding, explore
from tests.simulation.simulator import Asks, Simulator
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


def test_what_was_shown_runs_whatever_becomes_of_the_state_meanwhile() -> None:
    played = asked(one())
    played.apply({"type": "state", "at": played.now, "values": {"n": 9}, "by": "user:ana"})

    played.decide("a", "approve")

    assert inputs(played) == [{"args": {"n": 1}}] * 2


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


# Shows F45
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
