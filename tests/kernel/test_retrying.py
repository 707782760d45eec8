"""Leftovers that a retry of a failed execution must avoid (found by random runs)."""

from __future__ import annotations

from typing import Any

from tests.simulation.invariants import check_over
from tests.simulation.simulator import Simulator
from tests.testing.graphs import graph, needs, step, v

CHOICES = [{"id": "yes", "counts_as": "approve"}, {"id": "no", "counts_as": "reject"}]
ASKED = {"box": {"scope": "execution", "approval": {"choices": CHOICES}}}


def test_an_attempt_that_begins_anew_has_one_timeout() -> None:
    """It had expired but not fired when the execution failed. The attempt gets a full one again."""
    flow = graph(
        step("s", action="none", next={"all": ["a", "b"]}),
        step("a", timeout=v("10s"), next="end"),
        step("b", effect="once", next="end"),
    )
    played = Simulator(flow, {"a": 1, "b": 2}).start()
    run = next(one for one in played.running.values() if one.address == "b")
    del played.running[run.unit, run.attempt]
    played.apply(
        {"type": "failed", "at": played.now + 11_000, "unit": run.unit, "attempt": run.attempt,
         "error": {"type": "Odd", "message": "odd"}}
    )  # fmt: skip
    assert played.status == "failed"

    played.retry()
    (timer,) = played.state["timers"].values()
    assert timer["due"] == played.now + 10_000
    played.finish("a")
    assert not played.state["timers"]
    assert played.run().status == "succeeded"
    check_over(played)


def test_what_is_retried_by_its_address_may_have_failed_beside_what_is_held() -> None:
    """One decision fails both. The first ended the flow, and is held back with the second."""
    flow = graph(
        step("s", action="none", next={"all": ["a", "b"]}),
        step("a", next="end", **needs(ASKED)),
        step("b", next="end", **needs(ASKED)),
    )
    played = Simulator(flow, {"a": 1, "b": 2}).start()
    played.decide(_asked(played), "no")
    assert played.status == "failed"

    played.retry("b")
    played.decide(_asked(played), "yes")
    assert played.run().status == "succeeded"
    check_over(played)


def _asked(played: Simulator) -> Any:
    return next(wait["address"] for wait in played.waits())
