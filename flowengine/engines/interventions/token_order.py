"""The order of steps after a move: no ended step is repeated, and no join waits forever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.interventions.lost_results import later
from flowengine.kernel.moving.obstacles import Obstacle
from flowengine.kernel.view import waiting_arrivals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from flowengine.kernel.moving.pairing import Pairing
    from flowengine.kernel.state.records import Scope, State


def order_obstacles(p: Pairing, state: State, ran: Collection[str]) -> list[Obstacle]:
    """Return the steps that a mapping puts back, and the joins that lack a token.

    Args:
        p: The two graphs. Everything that the state refers to has a counterpart.
        state: State of an open execution.
        ran: Names of the steps that have ended.
    """
    found: list[tuple[str, str]] = []
    for scope in state["scopes"].values():
        body = p.bodies.get(scope["body"])
        if body is not None:
            live = [step for act, step in scope["live"].items() if _is_there(state, act)]
            found += _put_back(p, scope, body, live, ran)
            found += _starving(p, scope, body, live)
    return [Obstacle("step", name, why, None, []) for name, why in dict(found).items()]


def _is_there(state: State, act: int) -> bool:
    return not state["acts"][act].get("left_early")


def _put_back(
    p: Pairing, scope: Scope, body: int, live: list[int], ran: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield running steps that are renamed to one before an ended step, which would run again."""
    ended = [step for step in p.old.body(scope["body"]).steps if p.step_name(step) in ran]
    over = [p.steps[step] for step in ended if step in p.steps]
    for old in live:
        new = p.steps.get(old, -1)
        if new < 0 or p.old.node(old).id == p.new_name(new):
            continue
        ahead = later(p.new, body, [new])
        again = (step for step in over if step in ahead and step != new)
        for step in again:
            if new not in later(p.new, body, [step]):
                why = f"'{p.new_name(step)}' has ended, and would run again after"
                yield p.step_name(old), f"{why} '{p.new_name(new)}'"
                break


def _starving(p: Pairing, scope: Scope, body: int, live: list[int]) -> Iterator[tuple[str, str]]:
    """Yield joins that wait for all their edges, and for one over which no token can come."""
    places = {p.steps[step] for step in live if step in p.steps}
    ahead = later(p.new, body, places)
    held = {
        p.steps.get(number, -1): [p.steps.get(a["source"], a["source"]) for a in waiting]
        for number, join in scope["joins"].items()
        if (waiting := waiting_arrivals(join))
    }
    for number in p.new.body(body).steps:
        node = p.new.node(number)
        if (node.join or {}).get("kind") != "all" or not (number in held or number in ahead):
            continue
        came = held.get(number, [])
        for source in node.sources:
            if source >= 0 and source not in came and source not in places and source not in ahead:
                olds = [old for old, new in p.steps.items() if new == number]
                name = p.step_name(olds[0]) if olds else node.id
                why = f"its join waits for '{p.new_name(source)}', which does not run any more"
                yield name, why
