"""Whether an execution can be moved to another form of its flow, and the mappings that allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.interventions.lost_results import lost_results
from flowengine.engines.interventions.token_order import order_obstacles
from flowengine.kernel.moving.obstacles import obstacles
from flowengine.kernel.moving.pairing import Pairing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from flowengine.kernel.graph.linked import Graph
    from flowengine.kernel.moving.obstacles import Obstacle
    from flowengine.kernel.state.records import State

MOST_TRIED = 200
"""Mappings that are tried for one obstacle."""


def move_obstacles(
    old: Graph, new: Graph, state: State, mapping: Mapping[str, Any], ran: Collection[str] = ()
) -> list[Obstacle]:
    """Return the obstacles to moving an execution to another graph.

    Args:
        old: Its graph.
        new: The other graph.
        state: Its state, which is not changed.
        mapping: See `flowengine.kernel.moving.pairing`.
        ran: Names of the steps that have ended. The state contains only some of them.

    Returns:
        One obstacle per named thing. Empty: it can be moved. The proposals in them are not tried.
    """
    found = obstacles(old, new, state, mapping)
    if any(obstacle.what in ("step", "subflow") for obstacle in found):
        return found  # some of its tokens have no place yet
    pairing = Pairing(old, new, mapping)
    return found + order_obstacles(pairing, state, ran) + lost_results(pairing, state, ran)


def with_tried_proposals(
    old: Graph, new: Graph, state: State, mapping: Mapping[str, Any], ran: Collection[str]
) -> list[Obstacle]:
    """Return obstacles as `move_obstacles` does, with those proposals that lead to a move.

    A proposal may need further entries. Values that only the operator knows are taken as given.
    """
    tries = 0

    def leads_on(mapping: Mapping[str, Any]) -> bool:
        nonlocal tries
        tries += 1
        found = move_obstacles(old, new, state, mapping, ran) if tries <= MOST_TRIED else None
        if found is None or any(obstacle.write is None for obstacle in found):
            return False
        further = next((obstacle for obstacle in found if _is_open(obstacle)), None)
        return further is None or any(
            leads_on(_added(mapping, further, fit)) for fit in further.fits
        )

    tried = []
    for obstacle in move_obstacles(old, new, state, mapping, ran):
        if _is_open(obstacle):
            tries = 0
            fits = [fit for fit in obstacle.fits if leads_on(_added(mapping, obstacle, fit))]
            tried.append(obstacle._replace(fits=fits, write=obstacle.write if fits else None))
        else:
            tried.append(obstacle)
    return tried


def _is_open(obstacle: Obstacle) -> bool:
    """Return whether one of several names is proposed for an obstacle, and not a value."""
    return obstacle.write is not None and "values" not in obstacle.write


def _added(mapping: Mapping[str, Any], obstacle: Obstacle, fit: str) -> dict[str, Any]:
    """Return a mapping with one of the proposals for an obstacle."""
    ((section, names),) = (obstacle.write or {}).items()
    name = None if fit == "null" and section != "steps" else fit
    return {**mapping, section: {**mapping.get(section, {}), **dict.fromkeys(names, name)}}
