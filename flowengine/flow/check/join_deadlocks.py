"""Joins of `all` that can wait forever, found by two linear dataflows instead of the game.

The dataflows compute the edges that a token at a node certainly feeds (*delivers*), and those that
the siblings of a token certainly feed (*promised*). A join is fine if every edge into it carries
the promise of all its other edges. Sets of edges are bits of an integer.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import NamedTuple

from flowengine.flow.check import net as nets
from flowengine.flow.check.net import Edge, EdgeId, Move, Net, Place
from flowengine.kernel.graph import linked as reachability
from flowengine.kernel.graph.compiled import END_ALL
from flowengine.kernel.graph.specs import CompiledFlow


class JoinDeadlock(NamedTuple):
    """A token that arrives over `edge` waits for `missing`, which may never be fed."""

    place: Place
    edge: EdgeId
    missing: list[EdgeId]


def broken_promises(net: Net) -> list[JoinDeadlock]:
    """Return the edges into `all` joins that do not carry the promise of the other edges.

    Args:
        net: The net of a scope, compressed or not.

    Returns:
        The broken promises, in file order of the joins.
    """
    if not any(node.join == "all" for node in net.nodes):
        return []
    flow = _Promises(net)
    own = set(net.triggers)
    stuck = []
    for place, node in enumerate(net.nodes):
        if node.join != "all":
            continue
        incoming = [edge for edge in net.incoming[place] if edge not in own]
        wanted = _bits(incoming)
        for edge in incoming:
            missing = wanted & ~(flow.at[edge] | 1 << edge)
            if missing:
                absent = [other for other in incoming if missing >> other & 1]
                stuck.append(JoinDeadlock(place, edge, absent))
    return stuck


class _Promises:
    """The two dataflows of a net."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.everything = (1 << len(net.edges)) - 1
        graph = nets.successors(net)
        self.components = reachability.components(graph)
        self.reach = reachability.reach(graph)
        self.behind = self._behind_masks()
        self.cancelling = [
            place
            for place, node in enumerate(net.nodes)
            if node.join == "count" and node.late == "cancel"
        ]
        # The end of the scope keeps every promise. Behind an `all` join it is reached only after
        # that join has all its tokens, so it cannot promise them to that same join.
        self.at_end = 0
        self.delivers = self.delivers_waiting = [self.everything] * len(net.nodes)
        self._find_delivers()
        self.at_end = self.everything
        self.delivers = [self.everything] * len(net.nodes)
        self._find_delivers()
        self.at = [self.everything] * len(net.edges)
        """The edges promised to a token on an edge."""
        self._find_promised()

    def _behind_masks(self) -> list[int]:
        """Return, for each node, the edges that a token counts as fed beyond its join."""
        # Two `all` joins of one cycle may wait for each other. Edges that one feeds only after it
        # has fired do not count for the other.
        masks = [self.everything] * len(self.net.nodes)
        for component in self.components:
            if len(component) < 2:
                continue
            inner = 0
            for place in component:
                if self.net.nodes[place].join == "all":
                    inner |= _bits(self.net.incoming[place])
            for place in component:
                masks[place] = self.everything & ~inner
        return masks

    def _find_delivers(self) -> None:
        for component in self.components:
            changed = True
            while changed:
                changed = False
                for place in component:
                    new = self._deliver(place)
                    if new != self.delivers[place]:
                        self.delivers[place] = new
                        changed = True

    def _deliver(self, place: Place) -> int:
        """Return the edges that a token at work in a node certainly feeds."""
        node = self.net.nodes[place]
        if node.many:
            return 0
        if not node.moves:
            return self.at_end
        result = self.everything
        for move in node.moves:
            result &= reduce(or_, map(self._feed, move.sure), 0) | self._feed_one_of(move)
        return self._unless_withdrawn(place, result)

    def _feed(self, edge: EdgeId) -> int:
        """Return the edges that a token sent along an edge certainly feeds."""
        if edge < 0:
            return self.at_end if edge == END_ALL else 0
        target = self.net.edges[edge].target
        if self.net.nodes[target].join == "all":
            fed = 1 << edge | (self.delivers_waiting[target] & self.behind[target])
            return self._unless_withdrawn(target, fed)
        return self.delivers[target]

    def _unless_withdrawn(self, place: Place, fed: int) -> int:
        """Return the edges of `fed` that a token in a node feeds even if it may be withdrawn."""
        for join in self.cancelling:
            if self.reach[place] >> join & 1:
                # If it is withdrawn before this join, that join has fired.
                fed &= self.delivers[join]
        return fed

    def _feed_one_of(self, move: Move) -> int:
        """Return the edges that all conditional entries of a move feed: one of them is taken."""
        if move.sure and move.other is None:
            return 0
        result = self.everything
        for edge in (*move.maybe, *(() if move.other is None else (move.other,))):
            result &= self._feed(edge)
        return result if move.maybe or move.other is not None else 0

    def _find_promised(self) -> None:
        net = self.net
        sent = self._sent()
        order = [place for component in reversed(self.components) for place in component]
        for edge, siblings in self._siblings(Move(tuple(net.starts))):
            if edge >= 0:
                self.at[edge] = siblings
        for edge in (*net.triggers, *net.restarts):
            if edge >= 0:
                self.at[edge] = 0
        changed = True
        while changed:
            changed = False
            for place in order:
                promised = self._promised(place)
                for edge, siblings in sent[place].items():
                    new = self.at[edge] & (promised | siblings)
                    if new != self.at[edge]:
                        self.at[edge] = new
                        changed = True

    def _sent(self) -> list[dict[EdgeId, int]]:
        """Return, for each node, its edges with those that the siblings of a token on them feed."""
        result: list[dict[EdgeId, int]] = []
        for node in self.net.nodes:
            edges: dict[EdgeId, int] = {}
            for move in (*node.moves, *(node.too_few or ())):
                for edge, siblings in self._siblings(move):
                    if edge >= 0:
                        edges[edge] = edges.get(edge, self.everything) & siblings
            result.append(edges)
        return result

    def _siblings(self, move: Move) -> list[tuple[EdgeId, int]]:
        """Return each edge of a move with the edges that the others certainly feed."""
        sure = move.sure
        before = [0]
        for edge in sure:
            before.append(before[-1] | self._feed(edge))
        conditional = self._feed_one_of(move)
        after, result = 0, []
        for index in range(len(sure) - 1, -1, -1):
            result.append((sure[index], before[index] | after | conditional))
            after |= self._feed(sure[index])
        result.reverse()
        result += [(edge, before[-1]) for edge in move.edges()[len(sure) :]]
        return result

    def _promised(self, place: Place) -> int:
        """Return the edges that are promised to a token at work in a node."""
        incoming = self.net.incoming[place]
        if self.net.nodes[place].join == "all":
            return reduce(or_, (self.at[edge] for edge in incoming), 0) & ~_bits(incoming)
        result = self.everything
        for edge in incoming:
            result &= self.at[edge]
        return result


def _bits(edges: Iterable[EdgeId]) -> int:
    result = 0
    for edge in edges:
        result |= 1 << edge
    return result


# Ways of tokens as text: from a split to their meeting, including the steps that were left out.

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
            edges = [e for e in self.net.incoming[place] if self.net.edges[e].origin == before]
            free = (e for e in edges if index or e not in avoid)
            edge = next(free, edges[0] if edges else -1)
            begun = edge if index == 0 else begun
            names += self._steps(self.net.edges[edge]) if edge >= 0 else [self.name(place)]
        if len(names) > LONGEST:
            names = [*names[: LONGEST - 2], "…", names[-1]]
        return " → ".join(names), begun

    def _steps(self, edge: Edge) -> list[str]:
        """Return the steps from the first one after a node to the edge's target."""
        names: list[str] = []
        step, last = edge.first, self.net.nodes[edge.target].step
        while step != last and len(names) < LONGEST:
            names.append(self.flow["steps"][step]["id"])
            split = self.flow["steps"][step].get("split", {})
            step = split.get("to", last) if split.get("kind") == "one" else last
        return [*names, self.flow["steps"][last]["id"]]
