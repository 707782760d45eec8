"""Ways of tokens as text: from a split to their meeting, including the steps that were left out."""

from __future__ import annotations

from collections.abc import Iterable

from flowengine.flow.check.net import Edge, EdgeId, Net, Place
from flowengine.kernel.graph.specs import CompiledFlow

LONGEST = 6
"""Maximum number of steps of a way in a message."""


class Ways:
    """Names the ways of a net.

    Args:
        net: A compressed net of one of its bodies.
    """

    def __init__(self, flow: CompiledFlow, net: Net) -> None:
        self.flow = flow
        self.net = net

    def name(self, place: Place) -> str:
        """Return the id of the step at a node."""
        return self.net.name(self.flow, place)

    def two(self, origin: Place, ways: tuple[list[Place], list[Place]]) -> tuple[str, str]:
        """Return two ways that begin at one node, by different edges if possible.

        Args:
            origin: Their first node, or -1 for the start of the scope.
            ways: The nodes that they lead through.

        Returns:
            Their steps, with arrows between.
        """
        first, edge = self._way(origin, ways[0], ())
        second, _ = self._way(origin, ways[1], (edge,))
        return first, second

    def _way(self, origin: Place, way: list[Place], avoid: Iterable[EdgeId]) -> tuple[str, EdgeId]:
        names: list[str] = []
        begun = -1
        for index, place in enumerate(way):
            before = origin if index == 0 else way[index - 1]
            edge = self._edge(before, place, avoid if index == 0 else ())
            begun = edge if index == 0 else begun
            names += self._steps(self.net.edges[edge]) if edge >= 0 else [self.name(place)]
        if len(names) > LONGEST:
            names = [*names[: LONGEST - 2], "…", names[-1]]
        return " → ".join(names), begun

    def _edge(self, source: Place, target: Place, avoid: Iterable[EdgeId]) -> EdgeId:
        edges = [e for e in self.net.incoming[target] if self.net.edges[e].origin == source]
        return next((e for e in edges if e not in avoid), edges[0] if edges else -1)

    def _steps(self, edge: Edge) -> list[str]:
        """Return the steps from the first one after a node to the edge's target."""
        names: list[str] = []
        step, last = edge.first, self.net.nodes[edge.target].step
        while step != last and len(names) < LONGEST:
            names.append(self.flow["steps"][step]["id"])
            split = self.flow["steps"][step].get("split", {})
            step = split.get("to", last) if split.get("kind") == "one" else last
        return [*names, self.flow["steps"][last]["id"]]
