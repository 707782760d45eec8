"""Steps: skipping, loops, handlers, limits."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import Graph
from flowengine.testing.graphs import graph, output_of, step, v, x
from flowengine.testing.simulator import Fails, Simulator
from tests.kernel.orders import in_every_order

ITEM = {"names": ["item", "index", "key"]}


def play(flow: Graph, script: Any = None, seed: int = 0, **inputs: Any) -> Simulator:
    return Simulator(flow, script, seed=seed).start(inputs).run()


def given(run: Any) -> Any:
    return run.input


def fails(type: str = "Broken", **more: Any) -> Any:
    def task(_run: Any) -> Any:
        raise Fails(type, **more)

    return task


def fails_times(times: int, type: str = "Timeout", value: Any = "done") -> Any:
    left = [times]

    def task(_run: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise Fails(type)
        return value

    return task


class TestWhen:
    def test_skipped_step_goes_where_skipped_leads_and_never_along_a_choice(self) -> None:
        flow = graph(
            step("a", action="none", when=x(lambda _n: False),
                 next={"outcome": {"ok": "b", "skipped": "c"}}),
            step("b", next="end"),
            step("c"),
        )  # fmt: skip

        played = play(flow)

        assert played.started == ["c"]
        assert "a skipped" in played.story()

    def test_skipping_does_not_spread(self) -> None:
        flow = graph(step("a", when=x(lambda _n: False)), step("b"))

        assert play(flow).started == ["b"]


class TestLoop:
    @pytest.mark.parametrize("kind", ["until", "before"])
    @pytest.mark.parametrize("rounds", [0, 1, 3])
    def test_keep_gives_the_outputs_of_all_rounds(self, kind: str, rounds: int) -> None:
        """Of `while` none, if it does not hold at first; `output` in the condition is the last."""
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

    def test_round_of_a_group_starts_with_the_past_of_the_entry(self) -> None:
        inner = step("b", input=v(x(lambda n: n["steps"]["b"]["status"])))
        flow = graph(step("g", loop={"until": x(lambda _n: False), "max": v(2)}, group=[inner]))
        seen: list[str] = []

        play(flow, {"b": lambda run: seen.append(run.input)})

        assert seen == ["none", "none"]


class TestErrors:
    def test_unhandled_error_withdraws_the_other_tokens(self) -> None:
        flow = graph(step("g", parallel=[step("a"), step("b"), step("c")],
                          on_error=[{"do": "output", "output": v("caught")}]),
                     outputs={"g": v(output_of("g"))})  # fmt: skip

        for played in in_every_order(flow, {"b": fails(retryable=False)}):
            assert played.state["outputs"] == {"g": "caught"}


class TestLimits:
    @pytest.mark.parametrize("inner", [{"action": "none"}, {"group": [step("i", action="none")]}])
    def test_rounds_in_which_nothing_is_called_do_not_go_on_for_ever(
        self, inner: dict[str, Any]
    ) -> None:
        """Items of a map count for themselves: each has a bound of its own, as its data has."""
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
