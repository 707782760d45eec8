# Shows F74
"""Budgets of tokens and money: reserved before a call, settled after it, despite crashes (F74)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flowengine.kernel import ENDED
from flowengine.kernel.commands import Run
from flowengine.kernel.state.records import Budget
from flowengine.kernel.view import DOLLAR, taken
from tests.rows import each_row
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Fails, Measures, Simulator
from tests.testing.graphs import Described, graph, step, v, x

METERS = {
    "tokens": {"reserved": ["most", "tokens"], "used": [["usage", "in"], ["usage", "out"]]},
    "cost_usd": {"reserved": ["most", "cost"], "used": [["usage", "cost"]]},
}
MOST = {"tokens": 100, "cost": 0.01}
USAGE = {"in": 30, "out": 10, "cost": 0.004}


def model(name: str = "ask", **more: Any) -> Described:
    return step(name, meters=METERS, input=v({"most": MOST}), effect="idempotent", **more)


def turns(budget: Described, times: int = 100, **more: Any) -> Simulator:
    """Return an execution that makes calls in a loop."""
    again = {"before": x(lambda _names: True), "max": v(times)}
    flow = graph(model(loop=again, **more), budget={"then": "stop", **budget})
    return Simulator(flow, {"ask": {"usage": USAGE}}, order="first").start()


def budget_of(played: Simulator) -> Budget:
    return played.state["budget"]


def test_money_adds_up_exactly() -> None:
    played = turns({"cost_usd": 100.0}, times=1000)
    played.script["ask"] = {"usage": {"cost": 0.1}}
    played.run()

    assert budget_of(played)["amounts"]["cost_usd"] == 100 * DOLLAR


def test_calls_at_the_same_time_see_what_others_have_reserved() -> None:
    over: Described = {"over": v(5), "names": ["item", "index", "key"], "concurrency": v(5)}
    over["on_item_error"] = "continue"
    flow = graph(model(map=over), budget={"tokens": 150, "then": "stop"})
    played = Simulator(flow, {"ask": {"usage": USAGE}}, order="first").start()

    assert len(played.running) == 2  # the first reserves 100, the second overdraws once
    played.run()
    assert budget_of(played)["amounts"]["tokens"] == 80


@each_row("given", [None, True, -3, "x", float("nan"), [1]])
def test_what_is_no_amount_counts_for_nothing(given: Any) -> None:
    played = turns({"tokens": 1000}, times=1)
    played.script["ask"] = {"usage": {"in": given, "out": 3}}
    played.run()

    assert budget_of(played)["amounts"]["tokens"] == 3


def test_a_subflow_counts_for_the_budgets_around_it_and_its_own() -> None:
    inner = {"steps": [model()], "budget": {"tokens": 30, "then": "stop"}}
    runs = step("run", action="flow", flow="inner", next="again")
    flow = graph(
        runs,
        step("again", action="flow", flow="inner"),
        flows={"inner": inner},
        budget={"tokens": 1000, "then": "stop"},
    )
    played = Simulator(flow, {"ask": {"usage": USAGE}}).start().run()

    assert played.status == "succeeded"
    assert budget_of(played)["amounts"]["tokens"] == 80


def test_an_attempt_after_a_crash_is_told_the_same() -> None:
    """The cost of the crash itself must not make the attempt economize."""
    played = turns({"tokens": 150, "fallback_at": 50}, times=5)
    played.crash()
    [run] = played.running.values()

    assert (run.attempt, run.fallback) == (2, False)


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_the_total_is_never_below_the_bill_and_above_it_by_reservations_at_most(block: int) -> None:
    """100 schedules with crashes, failures and retries, compared with the provider's records."""
    for seed in range(block * 100, block * 100 + 100):
        bill, cut, total = schedule(random.Random(seed))
        assert bill <= total <= bill + cut, seed


def schedule(draws: random.Random) -> tuple[int, int, int]:
    """Run one schedule. Return the bill, the reservations of interrupted calls, and the total."""
    bill = 0
    billed: dict[tuple[int, int], int] = {}

    def ask(run: Run) -> Any:
        tokens = billed[run.unit, run.attempt]
        usage = {"in": tokens - 1, "out": 1}
        if draws.random() < 0.2:
            raise Fails("Busy", data={"usage": usage}, retryable=draws.random() < 0.8)
        return {"usage": usage}

    over: Described = {"over": v(4), "names": ["item", "index", "key"], "concurrency": v(2)}
    over["on_item_error"] = "continue"
    flow = graph(
        model(map=over, retry={"attempts": 3, "delay": "1s"}, timeout=v("1m")),
        model("last", on_error=[{"do": "continue"}]),
        budget={"tokens": 100_000, "then": "stop"},
    )
    played = Simulator(flow, {"ask": ask, "last": ask}, seed=draws.randrange(10**6)).start()
    cut = 0
    while True:
        for number in played.running:  # the provider bills calls that it has begun to answer
            if number not in billed:
                billed[number] = draws.randint(2, 100)
                bill += billed[number]
        if played.status in ENDED:
            break
        if draws.random() < 0.15:
            cut += 100 * len(played.running)
            played.crash()
        else:
            stopped = len(played.stopped)
            played.step()
            cut += 100 * (len(played.stopped) - stopped)
    return bill, cut, budget_of(played)["amounts"].get("tokens", 0)


# Needs that are evaluated before an attempt

WORKED_OUT = {
    "tokens": {"measured": True, "used": [["usage", "in"], ["usage", "out"]]},
    "cost_usd": {"measured": True, "used": [["usage", "cost"]]},
}


def worked_out(name: str = "ask", **more: Any) -> Described:
    return step(name, meters=WORKED_OUT, effect="idempotent", **more)


def needing(least: float, most: float, beyond: float = 0, usage: Any = USAGE) -> Measures:
    """A task that uses the amount `usage`, or all of its grant."""

    def gives(run: Run) -> Any:
        granted = run.granted or {}
        return {"usage": {"in": granted.get("tokens", 0)} if usage is None else usage}

    return Measures(lambda _run: {"tokens": [least, most, beyond]}, gives)


def asking(budget: Described, needs: Measures, times: int = 100, **more: Any) -> Simulator:
    again = {"before": x(lambda _names: True), "max": v(times)}
    flow = graph(worked_out(loop=again, **more), budget={"then": "stop", **budget})
    return Simulator(flow, {"ask": needs}, order="first").start()


def running(played: Simulator) -> Run:
    [run] = played.running.values()
    return run


def test_what_an_attempt_needs_is_worked_out_before_it_is_reserved() -> None:
    played = asking({"tokens": 10_000}, needing(20, 100))
    assert running(played).measures
    assert taken(budget_of(played), "tokens") == 0
    played.step()

    run = running(played)
    assert (run.measures, run.attempt, run.granted) == (False, 1, {"tokens": 100})
    assert taken(budget_of(played), "tokens") == 100
    played.step()
    assert budget_of(played)["amounts"]["tokens"] == 40
    assert running(played).measures  # evaluated anew in each round


def test_it_may_go_beyond_by_as_much_as_it_says() -> None:
    played = asking({"tokens": 150}, needing(20, 140, 15, usage=None))
    for _ in range(3):
        played.step()
    assert not played.running  # 10 are left, 20 are needed
    assert budget_of(played)["amounts"]["tokens"] == 140

    played = asking({"tokens": 170}, needing(20, 140, 15, usage=None))
    for _ in range(3):
        played.step()
    assert running(played).granted == {"tokens": 45}


def test_people_raise_what_is_too_little() -> None:
    played = asking({"tokens": 70, "then": "ask"}, needing(35, 100), times=2)
    while played.step():
        pass
    [wait] = played.waits()
    assert wait["title"] == "'test' has too little left of its 70 tokens. Continue?"
    played.decide(wait["address"], "approve", form={"tokens": 72})
    [wait] = played.waits()  # still too little
    played.decide(wait["address"], "approve", form={"tokens": 200})

    assert (running(played).measures, running(played).granted) == (False, {"tokens": 100})
    played.run()
    assert budget_of(played)["amounts"]["tokens"] == 80


def at_once(items: int, budget: Described, needs: Measures, **more: Any) -> Simulator:
    over: Described = {"over": v(items), "names": ["item", "index", "key"]}
    over |= {"concurrency": v(items), "on_item_error": "continue"}
    flow = graph(worked_out(map=over, **more), budget={"then": "stop", **budget})
    return Simulator(flow, {"ask": needs}, order="first").start()


def test_who_waits_for_others_fails_when_they_have_used_it() -> None:
    played = at_once(3, {"tokens": 100}, needing(30, 100, usage=None)).run()

    assert budget_of(played)["amounts"]["tokens"] == 100
    errors = [one.error for one in played.observations if one.status == "failed" and one.error]
    assert {one["type"] for one in errors} == {"BudgetExceeded"}
    assert len(errors) == 2


def test_who_waits_for_others_may_be_withdrawn() -> None:
    flow = graph(
        step("race", parallel=[
            worked_out("ask"),
            step("other", group=[worked_out("ask2")], timeout=v("1s")),
        ]),
        budget={"tokens": 100, "then": "stop"},
    )  # fmt: skip
    played = Simulator(flow, {"ask": needing(30, 100), "ask2": needing(30, 100)}, order="first")
    played.start()
    played.step()
    played.step()
    assert budget_of(played)["queue"]
    played.pass_time()

    assert "queue" not in budget_of(played)


def test_a_crash_settles_what_was_granted_and_works_it_out_anew() -> None:
    played = asking({"tokens": 1000}, needing(20, 100))
    played.crash()
    assert running(played).measures
    assert taken(budget_of(played), "tokens") == 0  # no attempt had started
    played.step()
    played.crash()

    assert budget_of(played)["estimated"] == {"tokens": 100}
    assert running(played).measures
    played.step()
    assert (running(played).attempt, running(played).granted) == (3, {"tokens": 100})


def test_a_reservation_does_not_bring_a_cheaper_model() -> None:
    flow = graph(
        step("both", parallel=[worked_out("ask"), worked_out("ask2")]),
        budget={"tokens": 1000, "fallback_at": 50, "then": "stop"},
    )
    needs = needing(20, 800)
    played = Simulator(flow, {"ask": needs, "ask2": needs}, order="first").start()
    played.step()
    played.step()

    assert [(run.fallback, run.granted) for run in played.running.values()] == [
        (False, {"tokens": 800}), (False, {"tokens": 200}),
    ]  # fmt: skip


@each_row("said", [None, True, -3, "x", float("nan"), float("inf")])
def test_needs_that_are_none_count_for_nothing(said: Any) -> None:
    played = asking({"tokens": 100}, needing(said, said, said))
    played.step()

    assert running(played).granted == {"tokens": 0}


def test_what_cleans_up_is_counted_and_gets_all_that_it_needs() -> None:
    flow = graph(
        step("do"), finally_=[worked_out("tidy")], budget={"tokens": 1, "then": "stop"}
    )  # fmt: skip
    played = Simulator(flow, {"tidy": needing(20, 100)}, order="first").start()
    played.step()
    played.step()

    assert running(played).granted == {"tokens": 100}
    played.run()
    assert played.status == "succeeded"
    assert budget_of(played)["amounts"]["tokens"] == 40


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_random_schedules_with_needs_keep_all_invariants(block: int) -> None:
    """The invariants hold after every event, with crashes, timeouts, retries and approvals."""
    counts = {"queue": 0, "lacking": 0, "granted": 0}
    for seed in range(block * 100, block * 100 + 100):
        check_over(with_needs(random.Random(seed), counts))
    assert min(counts.values()) > 0, counts


def with_needs(draws: random.Random, counts: dict[str, int]) -> Simulator:
    """Run one flow whose calls need varying amounts of two budgets."""

    def needs(_run: Run) -> dict[str, list[float]]:
        least = draws.randint(1, 40)
        return {"tokens": [least, least + draws.randint(0, 300), draws.randint(0, 20)]}

    def gives(run: Run) -> Any:
        counts["granted"] += 1
        used = draws.randint(0, (run.granted or {}).get("tokens", 5)) // 3
        if draws.random() < 0.1:
            raise Fails("Busy", data={"usage": {"in": used}}, retryable=draws.random() < 0.7)
        return {"usage": {"in": used}}

    def over(*steps: Described, **more: Any) -> Described:
        items: Described = {"over": v(4), "names": ["item", "index", "key"], "concurrency": v(3)}
        return step("all", map={**items, "on_item_error": "continue"}, group=[*steps], **more)

    more: Described = {"timeout": v("2s"), "retry": {"attempts": 2, "delay": "1s"}}
    if draws.random() < 0.3:
        more["lock"] = {"key": v("k"), "scope": "execution"}
    ask = worked_out(**more)
    inner = {
        "steps": [ask, step("tool")],
        "budget": {"tokens": draws.randint(100, 300), "then": draws.choice(["stop", "ask"])},
    }
    flow = graph(
        over(step("run", action="flow", flow="inner"), timeout=v("1m")),
        worked_out("last", on_error=[{"do": "continue"}]),
        flows={"inner": inner},
        budget={"tokens": draws.randint(150, 500), "then": draws.choice(["stop", "ask"])},
    )
    task = Measures(needs, gives)
    played = Simulator(flow, {"ask": task, "last": task}, seed=draws.randrange(10**6)).start()
    for _ in range(400):
        state: Any = played.state
        budgets = [
            state["budget"],
            *(one.get("budget") for one in state.get("frames", {}).values()),
        ]
        counts["queue"] += any(one and one.get("queue") for one in budgets)
        waits = played.waits()
        counts["lacking"] += any("too little left" in str(one["title"]) for one in waits)
        if draws.random() < 0.08:
            played.crash()
        elif waits and draws.random() < 0.3:
            wait = draws.choice(waits)
            played.decide(wait["address"], draws.choice(["approve", "approve", "reject"]))
        elif not played.step() and not waits:
            break
    return played
