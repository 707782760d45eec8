"""Random flows under random schedules: the invariants hold whatever is drawn.

What holds is said in `flowengine.testing.invariants`.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

import pytest

from flowengine.kernel import ENDED, Graph
from flowengine.kernel.commands import Send
from flowengine.testing.invariants import check_over
from flowengine.testing.random_graphs import random_graph
from flowengine.testing.simulator import Fails, Simulator

FLOWS = 1200


@lru_cache(maxsize=1)
def drawn(seed: int) -> Graph:
    """Draw a flow; its schedules share it, as executions share a flow."""
    return random_graph(random.Random(seed))


def play(seed: int, schedule: int, crashes: bool) -> Simulator:
    draws = random.Random(f"{seed}/{schedule}")

    def task(_run: Any) -> Any:
        if draws.random() < 0.15:
            raise Fails("Drawn", retryable=draws.random() < 0.5)
        return draws.randrange(10)

    flow = drawn(seed)
    script = {spec["id"]: task for spec in flow.flow["steps"]}
    played = Simulator(flow, script, seed=schedule).start()
    for _ in range(600):
        if played.status in ENDED:
            break
        if crashes and draws.random() < 0.1:
            played.crash()
        _happen(played, draws)
    return played


def _happen(played: Simulator, draws: random.Random) -> None:
    """Let something from outside happen now and then; else what can happen by itself."""
    waits = played.waits()
    chance = draws.random()
    if chance < 0.1:
        signal = "s" if draws.random() < 0.8 else "t"
        played.send(signal, draws.randrange(9), id=str(len(played.journal)))
    elif chance < 0.3 and waits:
        wait = draws.choice(waits)
        if wait["kind"] in ("approval", "question"):
            choice = draws.choice(wait["choices"])["id"]
            form = {"tool_calls": 9} if draws.random() < 0.5 else {"wall_time": "20s"}
            more = {"form": form} if wait["step"] == "budget" else {"value": 1}
            played.decide(wait["address"], choice, **more)
    elif chance < 0.31:
        played.apply({"type": "cancel", "at": played.now, "reason": "drawn", "by": "user:test",
                      "now": draws.random() < 0.5})  # fmt: skip
    else:
        played.step()


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("block", range(8))
def test_all_properties_hold(block: int, crashes: bool) -> None:
    """After every event and in the end; also if the state comes back from bytes at any moment."""
    for seed in range(block, FLOWS, 8):
        for schedule in range(3):
            try:
                check_over(play(seed, schedule, crashes=crashes))
            except AssertionError as error:
                raise AssertionError(f"{seed=} {schedule=}: {error}") from error


def test_undoing_that_is_withdrawn_leaves_nothing_to_the_finally_around_it() -> None:
    """What it undid was in a subflow: its past is none of the flow that undid it (drawn once)."""
    check_over(play(2070, 2, crashes=True))


def test_what_a_crash_cut_off_is_told_when_it_is_settled_already() -> None:
    """Another call that was cut off failed first, so the scope compensates (drawn once)."""
    check_over(play(501661, 0, crashes=True))


def test_what_is_drawn_covers_the_ways_to_end() -> None:
    """The flows drawn are no straight lines: all statuses and most step statuses are reached."""
    played = [play(seed, 0, crashes=True) for seed in range(0, FLOWS, 2)]

    assert {p.status for p in played} >= {"succeeded", "failed", "cancelled"}
    told = {line.split()[-1] for p in played for line in p.story()}
    assert told >= {"succeeded", "failed", "cancelled", "skipped", "waiting", "uncertain"}
    assert any("compensate" in line for p in played for line in p.story())
    assert any("/finally/" in line for p in played for line in p.story())
    assert sum(_over_budget(p) for p in played) > 10
    raised = [e for p in played for e in p.journal if e["type"] == "decided" and e.get("form")]
    assert {e["choice"] for e in raised} == {"approve", "reject"}
    assert any(_waited_for_lock(p) for p in played)
    assert any(e["type"] == "granted" and e["unit"] for p in played for e in p.journal)
    assert sum(bool(p.state.get("triggered")) for p in played) > 10
    assert {to for p in played for to in _sent_to(p)} >= {"parent", "other"}
    assert sum(_in_subflows(p) > 0 for p in played) > 50
    assert any(line.count("/compensate") for p in played if _in_subflows(p) for line in p.story())


def _in_subflows(played: Simulator) -> int:
    """Return how many different flows steps have been at work in, besides the main one."""
    bodies = {played.graph.node(seen.step).body for seen in played.observations}
    return len({played.graph.body(body).flow for body in bodies if body >= 0} - {0})


def _over_budget(played: Simulator) -> bool:
    """Return whether some call was refused because a budget was used up."""
    errors = [seen.error for seen in played.observations if seen.error is not None]
    return any(error["type"] == "BudgetExceeded" for error in errors)


def _sent_to(played: Simulator) -> set[str]:
    return {command.to for command in played.commands if isinstance(command, Send)}


def _waited_for_lock(played: Simulator) -> bool:
    """Return whether some task waited before it began."""
    before: set[str] = set()
    for seen in played.observations:
        action = played.graph.node(seen.step).action
        if seen.status == "waiting" and action == "task":
            before.add(seen.address)
        if seen.status == "running" and seen.address in before:
            return True
    return False
