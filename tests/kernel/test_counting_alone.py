"""Isolated limits of a flow: its activity counts as one step of the surrounding flows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rows import each_row
from tests.simulation.simulator import Simulator
from tests.testing.graphs import Described, graph, step, v


def rounds(number: int, name: str = "") -> list[Described]:
    """Return a step that is activated that many times."""
    again = (lambda names: names["state"]["n"] < number, f"turn{name}")
    ways: Any = {"first": [again, ("else", "end")]}
    return [step(f"turn{name}", action="none", join="each", set=[["n", v(1)]], next=ways)]


STATE = {"n": {"default": 0, "reducer": "add"}}


def play(inner: Described, **limits: int) -> Simulator:
    flow = graph(
        step("run", action="flow", flow="inner"),
        step("after", action="none"),
        flows={"inner": {"state": STATE, **inner}},
        limits=limits,
    )
    return Simulator(flow, order="first").start().run()


def test_its_activations_do_not_count_in_the_flow_around() -> None:
    played = play({"steps": rounds(20), "counts_alone": True}, steps=2)

    assert played.status == "succeeded"
    assert played.state["steps"] == 2


def test_without_it_they_do() -> None:
    played = play({"steps": rounds(20)}, steps=2)

    assert played.error is not None
    assert played.error["type"] == "LimitExceeded"


@each_row(("limit", "status"), [(20, "succeeded"), (19, "failed")])
def test_its_own_limit_holds(limit: int, status: str) -> None:
    inner = {"steps": rounds(20), "counts_alone": True, "limits": {"steps": limit}}

    assert play(inner).status == status


@pytest.mark.endurance
def test_its_own_limit_is_the_default_if_it_says_none() -> None:
    inner = {"steps": rounds(10_001), "counts_alone": True, "limits": {"activations": 20_000}}
    played = play(inner)

    assert played.error is not None
    assert played.error["message"] == "more than 10000 activations (limits.steps)"


def test_flows_in_it_count_in_it_and_no_further() -> None:
    def nested(limit: int) -> Simulator:
        flow = graph(
            step("run", action="flow", flow="middle"),
            flows={
                "middle": {
                    "steps": [step("go", action="flow", flow="deep")],
                    "counts_alone": True,
                    "limits": {"steps": limit},
                },
                "deep": {"steps": rounds(20), "state": STATE},
            },
            limits={"steps": 2},
        )
        return Simulator(flow, order="first").start().run()

    assert nested(21).status == "succeeded"
    assert nested(21).state["steps"] == 1
    assert nested(20).status == "failed"


def test_a_retry_goes_on_beyond_no_limit_of_its_own() -> None:
    inner = {"steps": rounds(20), "counts_alone": True, "limits": {"steps": 19}}
    played = play(inner)
    played.retry()
    played.run()

    assert played.error is not None
    assert played.error["type"] == "LimitExceeded"


def test_activations_of_one_step_are_bounded_by_its_own_flow() -> None:
    inner = {"steps": rounds(1500), "limits": {"activations": 2000}}

    assert play(inner).status == "succeeded"
    assert play({"steps": rounds(1500)}).status == "failed"
