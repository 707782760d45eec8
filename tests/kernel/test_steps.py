"""Steps: rounds and limits not covered by the language tests."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import Graph
from flowengine.testing.simulator import Simulator
from tests.testing.graphs import graph, output_of, step, v, x

ITEM = {"names": ["item", "index", "key"]}


def play(flow: Graph, script: Any = None) -> Simulator:
    return Simulator(flow, script).start().run()


def given(run: Any) -> Any:
    return run.input


class TestLoop:
    @pytest.mark.parametrize("kind", ["until", "before"])
    @pytest.mark.parametrize("rounds", [0, 1, 3])
    def test_keep_gives_the_outputs_of_all_rounds(self, kind: str, rounds: int) -> None:
        """A `while` that never holds has no outputs. In the condition, `output` is the last one."""
        test = {
            "until": lambda n: n["output"] >= rounds,
            "before": lambda n: (n["output"] or 0) < rounds,
        }
        flow = graph(
            step("a", loop={kind: x(test[kind]), "max": v(5), "keep": True},
                 input=v(x(lambda n: n["round"]["number"]))),
            outputs={"a": v(output_of("a"))},
        )  # fmt: skip

        least = 1 if kind == "until" else 0
        expected = list(range(1, max(rounds, least) + 1))
        assert play(flow, {"a": given}).state["outputs"] == {"a": expected}

    def test_while_of_a_group_sees_the_steps_of_the_round_before(self) -> None:
        again = x(lambda n: n["steps"]["b"]["output"] != 2)
        flow = graph(step("g", loop={"before": again, "max": v(9)}, group=[
            step("b", input=v(x(lambda n: n["round"]["number"])))]))  # fmt: skip

        assert play(flow, {"b": given}).started == ["g@1/b", "g@2/b"]


class TestLimits:
    @pytest.mark.endurance
    @pytest.mark.parametrize("inner", [{"action": "none"}, {"group": [step("i", action="none")]}])
    def test_rounds_in_which_nothing_is_called_do_not_go_on_for_ever(
        self, inner: dict[str, Any]
    ) -> None:
        """Each item of a map has its own limit, since the data gives the number of items."""
        loop = {"until": x(lambda _n: False), "max": v(10**9)}
        looping = graph(step("a", loop=loop, **inner))
        short = graph(step("m", map={"over": v(50), **ITEM}, group=[
            step("a", loop={**loop, "until": x(lambda n: n["round"]["number"] == 40)}, **inner)
        ]), limits={"steps": 100})  # fmt: skip

        error = play(looping).state["error"]

        assert error is not None
        assert (error["type"], error["data"]) == ("LimitExceeded", {"limit": "steps"})
        assert play(short).status == "succeeded"

    def test_long_loops_that_call_something_go_on(self) -> None:
        loop = {"until": x(lambda n: n["round"]["number"] == 200), "max": v(10**9)}

        assert play(graph(step("a", loop=loop), limits={"steps": 100})).status == "succeeded"

    def test_a_map_over_a_number_without_reason_is_refused_before_it_fills_the_memory(self) -> None:
        error = play(graph(step("m", action="none", map={"over": v(10**12)}))).state["error"]

        assert error is not None
        assert (error["type"], "at most 1000000 items" in error["message"]) == (
            "ValidationError",
            True,
        )
