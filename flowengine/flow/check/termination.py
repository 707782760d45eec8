"""Steps that cannot end, and flows that run themselves on every way."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from flowengine.flow.check import net as nets
from flowengine.flow.check.net import EdgeId, Move, Net, Place, Step
from flowengine.flow.check.released_environments import Finding
from flowengine.kernel.graph import linked as reachability
from flowengine.kernel.graph.compiled import END_ALL
from flowengine.kernel.graph.specs import CompiledFlow

# Steps that cannot end: a least fixpoint over the ways of a scope.


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
                node = net.nodes[place]
                if can[place] or node.step in blocked:
                    continue
                if not node.moves or any(_move_can_end(net, move, can) for move in node.moves):
                    can[place] = changed = True
    return can


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


# Flows that run themselves on every way, and so never end (E406).

Body = int


def check_recursion(flow: CompiledFlow) -> Iterator[Finding]:
    """Yield the steps by which a flow runs itself repeatedly without a way out.

    A flow ends if a token can pass through it without running a flow that does not end. This is a
    least fixpoint over all flows.

    Args:
        flow: The compiled flow, with the flows that it runs.

    Yields:
        One finding for each flow that cannot end.
    """
    bodies = {0: flow["id"], **{each["body"]: each["id"] for each in flow.get("flows", [])}}
    if len(bodies) == 1 and not any(step.get("action") == "flow" for step in flow["steps"]):
        return
    ending: set[Body] = set()
    while True:
        new = {body for body in bodies if body not in ending and _ends(flow, body, ending)[0]}
        if not new:
            break
        ending |= new
    stuck = {body: _ends(flow, body, ending)[1] for body in bodies if body not in ending}
    for body, steps in stuck.items():
        for step in steps:
            if _leads_to(flow, stuck, flow["steps"][step]["child"], body):
                name = bodies[body]
                message = f"every path through {name!r} runs {name!r} again: it never ends"
                hint = "let a condition lead around this step: 'when', or 'next: {first: ...}'"
                yield Finding("E406", step, message, hint, ("flow",))
                break


def _leads_to(flow: CompiledFlow, stuck: dict[Body, list[Step]], start: Body, wanted: Body) -> bool:
    """Return whether a flow that does not end runs another one, directly or through others."""
    seen: set[Body] = set()
    todo = [start]
    while todo:
        body = todo.pop()
        if body == wanted:
            return True
        if body not in seen:
            seen.add(body)
            todo += [flow["steps"][step]["child"] for step in stuck.get(body, ())]
    return False


def _ends(flow: CompiledFlow, body: Body, ending: set[Body]) -> tuple[bool, list[Step]]:
    """Return whether a token can pass through a body, and the calls at which it cannot."""
    blocked: set[Step] = set()
    calls: list[Step] = []
    for step in flow["bodies"][body]["steps"]:
        inside = _blocked_in(flow, step, ending)
        if inside is not None:
            blocked.add(step)
            calls += inside
    net = nets.build(flow, body, nets.cancellations(flow))
    can = places_that_end(net, blocked)
    ends = all(can[net.edges[edge].target] for edge in net.starts)
    return ends, calls


def _blocked_in(flow: CompiledFlow, step: Step, ending: set[Body]) -> list[Step] | None:
    """Return the calls at which a token stays in a step forever, or None if it passes."""
    spec = flow["steps"][step]
    child = spec.get("child", -1)
    passes = any(
        handler.get("do") in {"next", "output", "continue"} for handler in spec.get("on_error", [])
    )
    if child < 0 or "when" in spec or "map" in spec or "before" in spec.get("loop", {}) or passes:
        return None
    if spec["action"] == "flow":
        return None if child in ending else [step]
    ends, calls = _ends(flow, child, ending)
    return None if ends else calls
