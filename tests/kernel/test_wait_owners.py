"""The owner of a wait determines the effect of its decision. Closed waits stay closed."""

from __future__ import annotations

from typing import cast, get_args

from flowengine.kernel.event_effects import DECISIONS
from flowengine.kernel.events import Event
from flowengine.kernel.state.phases import Owner
from flowengine.kernel.waiting.waits import LET_GO
from flowengine.testing.simulator import Simulator
from tests.kernel.test_cost import graph_of

OWNERS: set[Owner] = set(get_args(Owner))


def test_every_owner_has_its_rows() -> None:
    assert set(DECISIONS) == OWNERS
    assert set(LET_GO) == OWNERS - {"permission"}  # handled by `shared_questions.close_question`


def test_a_cancelled_group_takes_the_approval_in_it_and_its_expiry_along() -> None:
    """Later decisions or expiries have no effect."""
    graph = graph_of(
        "signals: {stop: {}}\nsteps:\n"
        "  - {id: go, next: {all: [g, w]}}\n"
        "  - {id: g, group: [{id: ask, approval: {title: Ok?, expires: 1h}}], next: end}\n"
        "  - {id: w, wait: {signal: stop}}\n"
        "  - {id: stop, cancel: [g], next: late}\n"
        "  - {id: late, wait: {signal: stop}}"
    )
    played = Simulator(graph).start()
    asked = next(wait for wait in played.waits() if wait["kind"] == "approval")
    (timer,) = played.state["timers"]

    played.send("stop", None)

    assert not played.state["timers"]
    assert asked["id"] not in played.state["waits"]
    before = dict(played.state["acts"])
    played.apply({"type": "timer", "timer": timer, "at": played.now + 3_600_000})
    decision = {"type": "decided", "wait": asked["id"], "choice": "approve", "at": played.now}
    played.apply(cast(Event, decision))
    assert played.state["acts"] == before
