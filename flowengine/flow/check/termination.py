"""Steps that cannot end: a least fixpoint over the ways of a scope."""

from __future__ import annotations

from collections.abc import Collection

from flowengine.flow.check import net as nets
from flowengine.flow.check.net import EdgeId, Move, Net, Place, Step
from flowengine.kernel.graph import reachability
from flowengine.kernel.graph.compiled import END_ALL


def endless(net: Net) -> list[list[Place]]:
    """Return the cycles from which no token can reach an end of the scope.

    A step can end if one of its alternatives can: `end`, a step that can end, or an `all` whose
    unconditional entries all can.

    Args:
        net: The net of a scope.

    Returns:
        One cycle for each part of the scope that cannot end, beginning with its first step.
    """
    can = places_that_end(net)
    explained: set[Place] = set()
    cycles = []
    for place in range(len(net.nodes)):
        if not can[place] and place not in explained:
            way = _into_cycle(net, place, can, explained)
            explained.update(way)
            cycle = _cycle(way)
            if cycle:
                cycles.append(cycle)
    return cycles


def places_that_end(net: Net, blocked: Collection[Step] = ()) -> list[bool]:
    """Return for each place whether a token there can reach an end of the scope.

    Args:
        net: The net of a scope.
        blocked: Steps that no token leaves.

    Returns:
        By place.
    """
    can = [False] * len(net.nodes)
    for component in reachability.components(nets.successors(net)):
        changed = True
        while changed:
            changed = False
            for place in component:
                stuck = can[place] or net.nodes[place].step in blocked
                if not stuck and _can_end(net, place, can):
                    can[place] = changed = True
    return can


def _can_end(net: Net, place: Place, can: list[bool]) -> bool:
    node = net.nodes[place]
    return not node.moves or any(_move_can_end(net, move, can) for move in node.moves)


def _move_can_end(net: Net, move: Move, can: list[bool]) -> bool:
    if END_ALL in move.sure:
        return True
    if move.sure:
        return all(_edge_can_end(net, edge, can) for edge in move.sure)
    return any(_edge_can_end(net, edge, can) for edge in move.edges())


def _edge_can_end(net: Net, edge: EdgeId, can: list[bool]) -> bool:
    return edge < 0 or can[net.edges[edge].target]


def _into_cycle(net: Net, place: Place, can: list[bool], explained: set[Place]) -> list[Place]:
    """Follow ways that cannot end until one repeats or reaches an explained place."""
    way, seen = [place], {place}
    while True:
        stuck = [
            net.edges[edge].target
            for move in net.nodes[way[-1]].moves
            for edge in move.edges()
            if not _edge_can_end(net, edge, can)
        ]
        if stuck[0] in explained:
            return way
        way.append(stuck[0])
        if stuck[0] in seen:
            return way
        seen.add(stuck[0])


def _cycle(way: list[Place]) -> list[Place]:
    """Return the cycle at the end of a way, beginning with its first step."""
    if way[-1] not in way[:-1]:
        return []
    cycle = way[way.index(way[-1]) : -1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]
