"""The order of steps after a move: no ended step is repeated, and no join waits forever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.interventions.lost_results import later
from flowengine.kernel.moving.obstacles import Obstacle
from flowengine.kernel.view import waiting_arrivals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from flowengine.kernel.graph.linked import Graph
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
    """Yield joins that wait for all their edges, and for one over which no token can come.

    An edge over which none can come in the old flow either changes nothing.
    """
    before = set(_missing(p.old, scope["body"], {*live}, _held(scope)))
    held = {
        p.steps.get(at, -1): [p.steps.get(n, n) for n in came] for at, came in _held(scope).items()
    }
    places = {p.steps[step] for step in live if step in p.steps}
    for join, source in _missing(p.new, body, places, held):
        olds = [old for old, new in p.steps.items() if new == join]
        if any((old, n) in before for old in olds for n, new in p.steps.items() if new == source):
            continue
        name = p.step_name(olds[0]) if olds else p.new_name(join)
        yield name, f"its join waits for '{p.new_name(source)}', which does not run any more"


def _held(scope: Scope) -> dict[int, list[int]]:
    """Return the joins that hold tokens, with the steps from which these came."""
    waiting = {number: waiting_arrivals(join) for number, join in scope["joins"].items()}
    return {at: [token["source"] for token in held] for at, held in waiting.items() if held}


def _missing(
    graph: Graph, body: int, places: set[int], held: dict[int, list[int]]
) -> Iterator[tuple[int, int]]:
    """Yield joins that wait for all their edges, each with a step from which no token can come."""
    ahead = later(graph, body, places)
    for number in graph.body(body).steps:
        node = graph.node(number)
        if (node.join or {}).get("kind") == "all" and (number in held or number in ahead):
            come = places | ahead | {*held.get(number, ())}
            yield from ((number, n) for n in node.sources if n >= 0 and n not in come)
