"""Steps: skipping, map, loop, retry, time-outs, handlers, groups, state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from flowengine.kernel import Graph
from flowengine.kernel.events import ErrorData
from flowengine.testing.graphs import graph, output_of, step, v, x
from flowengine.testing.simulator import Fails, Simulator

SEEDS = range(24)
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


class TestMap:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_outputs_are_in_the_order_of_the_items(self, seed: int) -> None:
        flow = graph(
            step("m", map={"over": v(x(lambda n: n["inputs"]["list"])), **ITEM,
                           "concurrency": v(2)}, input=v(x(lambda n: n["item"]))),
            outputs={"m": v(output_of("m"))},
        )  # fmt: skip

        played = play(flow, {"m": lambda run: run.input * 2}, seed, list=[1, 2, 3, 4, 5])

        assert played.state["outputs"] == {"m": [2, 4, 6, 8, 10]}

    def test_no_more_items_run_at_once_than_concurrency_says(self) -> None:
        flow = graph(step("m", map={"over": v(10), **ITEM, "concurrency": v(3)}))
        simulator = Simulator(flow, seed=3).start()
        most = 0
        while simulator.step():
            most = max(most, len(simulator.running))

        assert most == 3

    def test_items_that_wait_hold_no_place(self) -> None:
        approval = step("ask", action="approval", input=v({"title": "t", "choices": []}))
        flow = graph(step("m", map={"over": v(50), **ITEM, "concurrency": v(4)},
                          group=[step("work"), approval]))  # fmt: skip

        played = play(flow)

        assert len(played.waits()) == 50

    def test_empty_list_gives_an_empty_list(self) -> None:
        flow = graph(step("m", map={"over": v([]), **ITEM}), outputs={"m": v(output_of("m"))})

        assert play(flow).state["outputs"] == {"m": []}

    @pytest.mark.parametrize("over", [3.0, "text", {"a": 1}, None, True, -1])
    def test_over_that_is_no_list_is_refused(self, over: Any) -> None:
        flow = graph(step("m", map={"over": v(over), **ITEM}))

        assert play(flow).state["error"]["type"] == "ValidationError"  # type: ignore[index]

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("policy", ["stop", "wait", "continue"])
    def test_failure_policy(self, policy: str, seed: int) -> None:
        def task(run: Any) -> Any:
            if run.input == 2:
                raise Fails("Broken", retryable=False)
            return run.input

        flow = graph(
            step("m", map={"over": v([1, 2, 3]), **ITEM, "on_item_error": policy},
                 input=v(x(lambda n: n["item"]))),
            outputs={"m": v(output_of("m")),
                     "items": v(x(lambda n: [i["status"] for i in n["steps"]["m"]["items"]]))},
        )  # fmt: skip

        played = play(flow, {"m": task}, seed)

        if policy == "continue":
            assert played.state["outputs"] == {
                "m": [1, None, 3],
                "items": ["succeeded", "failed", "succeeded"],
            }
        else:
            error = played.state["error"]
            assert error is not None
            assert error["type"] == "MapFailed"
            assert [f["key"] for f in error["data"]["failed"]] == ["1"]
            if policy == "wait":
                assert error["data"]["succeeded"] == 2

    @pytest.mark.parametrize("bears", [1, "50%"])
    @pytest.mark.parametrize("seed", range(6))
    def test_one_failure_too_many_fails_the_map(self, bears: Any, seed: int) -> None:
        spec = {"over": v(3), **ITEM, "on_item_error": "continue", "max_failures": v(bears)}

        played = play(graph(step("m", map=spec)), {"m": fails(retryable=False)}, seed)

        assert played.state["error"]["type"] == "MapFailed"  # type: ignore[index]

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("late", ["ignore", "cancel"])
    def test_partial_join_goes_on_early(self, late: str, seed: int) -> None:
        flow = graph(
            step("m", map={"over": v(4), **ITEM, "need": v(2), "late": late}),
            step("z"),
        )
        simulator = Simulator(flow, seed=seed, order="first").start()
        simulator.finish("m[0]")
        simulator.finish("m[3]")

        assert "z" in simulator.started
        assert len(simulator.running) == (3 if late == "ignore" else 1)
        assert simulator.run().status == "succeeded"

    def test_partial_join_that_cannot_be_reached_raises_too_few(self) -> None:
        flow = graph(step("m", map={"over": v(3), **ITEM, "need": v(2)},
                          input=v(x(lambda n: n["item"]))))  # fmt: skip

        def task(run: Any) -> Any:
            if run.input:
                raise Fails("Broken", retryable=False)

        error = Simulator(flow, {"m": task}, order="first").start().run().state["error"]

        assert error is not None
        assert (error["type"], error["data"]["from"]) == ("TooFew", ["0"])

    def test_same_key_twice_is_refused(self) -> None:
        spec = {"over": v(["a", "a"]), **ITEM, "key": v(x(lambda n: n["item"]))}

        error = play(graph(step("m", map=spec))).state["error"]

        assert error is not None
        assert "same key 'a'" in error["message"]

    @pytest.mark.parametrize("seed", SEEDS)
    def test_writes_of_items_are_made_in_the_order_of_the_items(self, seed: int) -> None:
        flow = graph(
            step("m", map={"over": v(5), **ITEM}, input=v(x(lambda n: n["item"])),
                 set=[["all", v(x(lambda n: n["output"]))]]),
            state={"all": {"default": [], "reducer": "append"}},
            outputs={"all": v(x(lambda n: n["state"]["all"]))},
        )  # fmt: skip

        played = play(flow, {"m": given}, seed)

        assert played.state["outputs"] == {"all": [0, 1, 2, 3, 4]}


class TestLoop:
    def test_until_tests_after_each_round(self) -> None:
        flow = graph(
            step("a", loop={"until": x(lambda n: n["output"] == 3), "max": v(5)},
                 input=v(x(lambda n: n["round"]["number"]))),
            outputs={"a": v(output_of("a"))},
        )  # fmt: skip

        played = play(flow, {"a": given})

        assert played.started == ["a@1", "a@2", "a@3"]
        assert played.state["outputs"] == {"a": 3}

    def test_while_tests_before_each_round(self) -> None:
        flow = graph(
            step("a", loop={"before": x(lambda n: (n["round"]["last"] or 0) < 3), "max": v(5)},
                 input=v(x(lambda n: n["round"]["number"]))),
        )  # fmt: skip

        assert play(flow, {"a": given}).started == ["a@1", "a@2", "a@3"]

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

    @pytest.mark.parametrize("kind", ["until", "before"])
    def test_limit_carries_the_last_round(self, kind: str) -> None:
        flow = graph(
            step("a", loop={kind: x(lambda _n: kind == "before"), "max": v(2)},
                 input=v(x(lambda n: n["round"]["number"])),
                 on_error=[{"types": ["LoopLimit"], "do": "output",
                            "output": v(x(lambda n: n["error"]["data"]["last"]))}]),
            outputs={"a": v(output_of("a"))},
        )  # fmt: skip

        assert play(flow, {"a": given}).state["outputs"] == {"a": 2}

    def test_while_of_a_group_sees_the_steps_of_the_round_before(self) -> None:
        again = x(lambda n: n["steps"]["b"]["output"] != 2)
        flow = graph(step("g", loop={"before": again, "max": v(9)}, group=[
            step("b", input=v(x(lambda n: n["round"]["number"])))]))  # fmt: skip

        assert play(flow, {"b": given}).started == ["g@1/b", "g@2/b"]

    def test_pauses_between_rounds_grow(self) -> None:
        loop = {"until": x(lambda _n: False), "max": v(4), "every": v("1s"), "backoff": 2,
                "max_delay": "1m"}  # fmt: skip
        simulator = Simulator(graph(step("a", loop=loop)), order="first").start()
        times = [simulator.now]
        while simulator.step():
            if simulator.now != times[-1]:
                times.append(simulator.now)

        assert [b - a for a, b in pairwise(times)] == [1000, 2000, 4000, 8000]

    def test_round_of_a_group_starts_with_the_past_of_the_entry(self) -> None:
        inner = step("b", input=v(x(lambda n: n["steps"]["b"]["status"])))
        flow = graph(step("g", loop={"until": x(lambda _n: False), "max": v(2)}, group=[inner]))
        seen: list[str] = []

        play(flow, {"b": lambda run: seen.append(run.input)})

        assert seen == ["none", "none"]


class TestRetry:
    def test_tries_again_and_counts_all_tries(self) -> None:
        played = play(graph(step("a", retry={"attempts": 3})), {"a": fails_times(2)})

        assert played.status == "succeeded"
        assert len(played.started) == 3

    def test_gives_up_after_the_last(self) -> None:
        played = play(graph(step("a", retry={"attempts": 3})), {"a": fails_times(3)})

        assert played.state["error"]["attempt"] == 3  # type: ignore[index]

    @pytest.mark.parametrize(
        ("retry", "error", "tries"),
        [
            ({"attempts": 3}, {"type": "ExitCode"}, 1),
            ({"attempts": 3, "only": ["ExitCode"]}, {"type": "ExitCode"}, 3),
            ({"attempts": 3, "only": ["Timeout"]}, {"type": "ModelError"}, 1),
            ({"attempts": 3, "exclude": ["Timeout"]}, {"type": "Timeout"}, 1),
            ({"attempts": 3, "only": ["*"]}, {"type": "Cancelled"}, 1),
            ({"attempts": 3, "only": ["*"]}, {"type": "Rejected"}, 3),
            ({"attempts": 3}, {"type": "my.Error"}, 3),
            ({"attempts": 3}, {"type": "my.Error", "retryable": False}, 1),
            ({"attempts": 3, "when": x(lambda n: n["error"]["attempt"] < 2)},
             {"type": "Timeout"}, 2),
        ],
    )  # fmt: skip
    def test_which_errors_are_tried_again(
        self, retry: Any, error: dict[str, Any], tries: int
    ) -> None:
        played = play(graph(step("a", retry=retry)), {"a": fails(**error)})

        assert len(played.started) == tries

    def test_pauses_grow_to_the_longest_without_jitter(self) -> None:
        retry = {"attempts": 5, "delay": "1s", "backoff": 3, "max_delay": "5s", "jitter": "none"}
        simulator = Simulator(graph(step("a", retry=retry)), {"a": fails("Timeout")}).start()
        times = [simulator.now]
        while simulator.step():
            if simulator.now != times[-1]:
                times.append(simulator.now)

        assert [b - a for a, b in pairwise(times)] == [1000, 3000, 5000, 5000]

    def test_what_the_other_side_asked_to_wait_is_waited(self) -> None:
        simulator = Simulator(graph(step("a", retry={"attempts": 2}))).start()
        simulator.running.clear()
        error: ErrorData = {"type": "RateLimited", "message": "", "retry_after": 90_000}
        simulator.apply(
            {"type": "failed", "at": simulator.now, "unit": 3, "attempt": 1, "error": error}
        )
        before = simulator.now

        simulator.run()

        assert simulator.now - before == 90_000

    def test_jitter_is_the_same_on_replay(self) -> None:
        played = play(graph(step("a", retry={"attempts": 5})), {"a": fails_times(4)})

        assert played.replayed() == played.state


class TestTime:
    def test_timeout_of_an_attempt_can_be_retried(self) -> None:
        flow = graph(step("a", timeout=v("5s"), retry={"attempts": 2, "jitter": "none"}))
        simulator = Simulator(flow, order="first").start()
        timer = next(iter(simulator.state["timers"]))

        simulator.apply({"type": "timer", "at": simulator.now + 5000, "timer": timer})
        simulator.run()

        assert simulator.status == "succeeded"
        assert simulator.started == ["a", "a"]

    def test_deadline_bounds_the_step_and_keeps_the_last_round(self) -> None:
        flow = graph(
            step("a", loop={"until": x(lambda _n: False), "max": v(9), "every": v("1m"),
                            "backoff": 1, "max_delay": "1m"},
                 deadline=v("90s"), input=v(x(lambda n: n["round"]["number"])),
                 on_error=[{"types": ["Deadline"], "do": "output",
                            "output": v(x(lambda n: n["error"]["data"]["last"]))}]),
            outputs={"a": v(output_of("a"))},
        )  # fmt: skip

        played = Simulator(flow, {"a": given}, order="first").start().run()

        assert played.state["outputs"] == {"a": 2}

    def test_duration_bounds_the_execution(self) -> None:
        flow = graph(
            step("w", action="wait",
                 wait={"mode": "first", "alternatives": [{"id": "ok", "signal": "s"}]}),
            limits={"duration": "1h"}, signals={"s": {}},
        )  # fmt: skip

        error = play(flow).state["error"]

        assert error is not None
        assert error["type"] == "LimitExceeded"


class TestErrors:
    def test_first_handler_that_fits_is_taken(self) -> None:
        flow = graph(
            step("a", on_error=[
                {"types": ["Other"], "do": "output", "output": v(1)},
                {"types": ["Http*"], "when": x(lambda n: n["error"]["data"] == 404),
                 "do": "output", "output": v(2)},
                {"do": "output", "output": v(3)},
            ]),
            outputs={"a": v(output_of("a"))},
        )  # fmt: skip

        missing = fails("HttpError", data=404, retryable=False)
        broken = fails("HttpError", data=500, retryable=False)

        assert play(flow, {"a": missing}).state["outputs"] == {"a": 2}
        assert play(flow, {"a": broken}).state["outputs"] == {"a": 3}

    def test_error_keeps_its_type_through_groups(self) -> None:
        flow = graph(step("g", group=[step("h", group=[step("a")])]))

        error = play(flow, {"a": fails("HttpError", retryable=False)}).state["error"]

        assert error is not None
        assert (error["type"], error["step"]) == ("HttpError", "g/h/a")

    def test_raising_another_error_keeps_the_cause(self) -> None:
        fail = v({"type": "Unavailable", "message": "no", "retryable": False})
        flow = graph(step("a", on_error=[{"do": "fail", "fail": fail}]))

        error = play(flow, {"a": fails("Broken", retryable=False)}).state["error"]

        assert error is not None
        assert error["type"] == "Unavailable"
        assert error["cause"] is not None
        assert error["cause"]["type"] == "Broken"

    def test_continue_goes_on_as_failed(self) -> None:
        flow = graph(
            step("a", on_error=[{"do": "continue"}]),
            step("b"),
            outputs={"a": v(x(lambda n: n["steps"]["a"]["status"]))},
        )

        played = play(flow, {"a": fails(retryable=False)})

        assert played.state["outputs"] == {"a": "failed"}
        assert played.started == ["a", "b"]

    def test_flow_handler_leads_back_into_the_flow(self) -> None:
        flow = graph(
            step("a", next="end"), step("z"), on_error=[{"do": "next", "to": "z"}]
        )  # fmt: skip

        played = play(flow, {"a": fails(retryable=False)})

        assert played.status == "succeeded"
        assert played.started == ["a", "z"]

    @pytest.mark.parametrize("seed", SEEDS)
    def test_unhandled_error_withdraws_the_other_tokens(self, seed: int) -> None:
        flow = graph(step("g", parallel=[step("a"), step("b"), step("c")],
                          on_error=[{"do": "output", "output": v("caught")}]),
                     outputs={"g": v(output_of("g"))})  # fmt: skip

        played = play(flow, {"b": fails(retryable=False)}, seed)

        assert played.state["outputs"] == {"g": "caught"}


class TestState:
    @pytest.mark.parametrize(
        ("reducer", "old", "new", "after"),
        [
            ("replace", 1, 2, 2),
            ("append", [1], 2, [1, 2]),
            ("append", [1], [2, 3], [1, 2, 3]),
            ("union", [1, 2], [2, 3], [1, 2, 3]),
            ("merge", {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
            ("add", 1, 2, 3),
            ("max", 1, 2, 2),
            ("min", 1, 2, 1),
        ],
    )
    def test_reducers(self, reducer: str, old: Any, new: Any, after: Any) -> None:
        flow = graph(
            step("a", action="none", set=[["key", v(new)]]),
            state={"key": {"default": old, "reducer": reducer}},
            outputs={"key": v(x(lambda n: n["state"]["key"]))},
        )

        assert play(flow).state["outputs"] == {"key": after}

    @pytest.mark.parametrize("seed", SEEDS)
    def test_parallel_replacement_is_a_conflict_whatever_the_order(self, seed: int) -> None:
        flow = graph(
            step("g", parallel=[step("a", set=[["k", v(1)]]), step("b", set=[["k", v(2)]])]),
            state={"k": {"default": 0}},
        )

        assert play(flow, seed=seed).state["error"]["type"] == "StateConflict"  # type: ignore[index]

    def test_replacement_of_what_lies_behind_is_fine(self) -> None:
        flow = graph(
            step("g", group=[step("a", set=[["k", v(1)]])]),
            step("b", set=[["k", v(2)]]),
            state={"k": {"default": 0}},
            outputs={"k": v(x(lambda n: n["state"]["k"]))},
        )

        assert play(flow).state["outputs"] == {"k": 2}


class TestLimits:
    def test_hot_cycle_stops(self) -> None:
        flow = graph(step("a", action="none", next="b"), step("b", action="none", next="a"))

        error = play(flow).state["error"]

        assert error is not None
        assert error["type"] == "LimitExceeded"
        assert error["data"] == {"limit": "activations"}

    def test_cycle_with_a_wait_lives_long(self) -> None:
        flow = graph(
            step("w", action="wait", wait={"mode": "first", "alternatives": [
                {"id": "ok", "signal": "say"}]}),
            step("a", next={"first": [(lambda n: n["output"] < 5000, "w"), ("else", "end")]}),
            signals={"say": {}}, limits={"steps": 100_000},
        )  # fmt: skip
        count = [0]

        def answer(_run: Any) -> int:
            count[0] += 1
            return count[0]

        simulator = Simulator(flow, {"a": answer}, order="first").start()
        while simulator.status == "waiting":
            simulator.send("say")
            simulator.run()

        assert simulator.status == "succeeded"
        assert count == [5000]

    def test_steps_of_map_items_do_not_count(self) -> None:
        inner = [step(name, action="none") for name in "abc"]
        flow = graph(step("m", map={"over": v(5000), **ITEM}, group=inner))

        assert play(flow).status == "succeeded"

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

    def test_other_steps_count(self) -> None:
        flow = graph(step("a", action="none"), step("b", action="none"), limits={"steps": 1})

        assert play(flow).state["error"]["data"] == {"limit": "steps"}  # type: ignore[index]
