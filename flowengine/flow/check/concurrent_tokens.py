"""Tokens that can be live at the same time, found by pairs of tokens from one split.

Pairs suffice to find two tokens that meet without being merged, because all other live tokens can
only delay these two. A pair consists of two *standings*: the position of a token, and the counting
joins that it left through while the other token may still reach them. Where the analysis must
choose, it takes both ways. Its findings are then verified by the exact game (`token_game`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from itertools import combinations, pairwise, product
from operator import or_
from typing import NamedTuple

from flowengine.flow.check import net as nets
from flowengine.flow.check.net import EdgeId, Move, Net, Place
from flowengine.kernel.graph import linked as reachability

PAIRS = 120_000
"""Pairs of tokens that are looked at, over all scopes. About a second."""
LEAST_PAIRS = 1_000
"""Pairs that each scope may always look at, regardless of earlier scopes."""
WORK = 120_000
"""Tokens examined while scopes are played out, over all of them."""
LEAST_WORK = 2_000
MOST_WORK = 40_000
"""The same for one play. A scope with unbounded tokens has infinitely many positions."""


class Effort:
    """The remaining effort for the scopes of one flow."""

    def __init__(self) -> None:
        self._pairs = PAIRS
        self._work = WORK

    def pairs(self) -> int:
        """Return how many pairs of tokens the next scope may look at."""
        return max(self._pairs, LEAST_PAIRS)

    def work(self) -> int:
        """Return how many tokens the next play may examine."""
        return min(max(self._work, LEAST_WORK), MOST_WORK)

    def spend(self, *, pairs: int = 0, work: int = 0) -> None:
        """Record the effort of a scope."""
        self._pairs -= pairs
        self._work -= work


Marks = int
"""The edges over which a token left through counting joins, as bits of an integer, because there
can be many."""
Pair = tuple[int, int]
"""Two standings, the smaller number first."""


class Meeting(NamedTuple):
    """Two unmerged tokens that reach the same node, or the same edge into a join."""

    place: Place
    pair: Pair
    """The pair before they met."""


class _TooManyPairs(Exception):
    """The net has more pairs than the limit."""


class Pairs:
    """The pairs of a net.

    Args:
        net: The net, compressed so that chains cost nothing.
        limit: Maximum number of pairs to look at, a pair that is reached twice counting twice.
    """

    def __init__(self, net: Net, limit: int = PAIRS) -> None:
        self.net = net
        self.limit = limit
        self.count = 0
        """Number of pairs that were looked at."""
        self.clashes: dict[Place, Meeting] = {}
        """Exclusive merges that two tokens can reach."""
        self.surplus: dict[EdgeId, Meeting] = {}
        """Edges of `all` joins that can receive two tokens for one token of another edge."""
        self.crowded: dict[EdgeId, Meeting] = {}
        """Edges of `late: ignore` joins that two tokens can arrive over."""
        self._parents: dict[Pair, Pair | Place] = {}
        """The pair or the split that a pair originates from."""
        self._standings: list[tuple[int, Marks]] = []
        self._numbers: dict[tuple[int, Marks], int] = {}
        self._size = len(net.nodes)
        self._reach = reachability.reach(nets.successors(net))
        self._others = _others(net)
        self._counted = _counted(net)
        self._mattering: dict[Place, Marks] = {}
        with suppress(_TooManyPairs):
            self._explore()

    @property
    def gave_up(self) -> bool:
        """Whether there are more pairs than the limit."""
        return self.count > self.limit

    def together(self) -> Iterator[tuple[Place, Place]]:
        """Yield the nodes at which two tokens can be at work at the same time, once each."""
        seen = set()
        for pair in self._parents:
            first, second = (self._standings[number][0] for number in pair)
            if first < self._size and second < self._size:
                seen.add((min(first, second), max(first, second)))
        yield from sorted(seen)

    def origin(self, meeting: Meeting) -> tuple[Place, list[Place], list[Place]]:
        """Return how two tokens come to meet.

        Args:
            meeting: The meeting.

        Returns:
            The node whose split sent both (-1 if the scope began with both), and the nodes on both
            ways. The last node of each is the meeting point.
        """
        chain = [meeting.pair]
        parent = self._parents[meeting.pair]
        while isinstance(parent, tuple):
            chain.append(parent)
            parent = self._parents[parent]
        chain.reverse()
        ways = [[chain[0][0]], [chain[0][1]]]
        for before, after in pairwise(chain):
            current = [way[-1] for way in ways]
            swapped = current[0] != before[0]
            moved = (after[0], after[1])
            if after[0] == before[1] or after[1] == before[0]:
                moved = (after[1], after[0])
            if swapped:
                moved = (moved[1], moved[0])
            for way, standing in zip(ways, moved, strict=True):
                if way[-1] != standing:
                    way.append(standing)
        first, second = (self._nodes(way, meeting.place) for way in ways)
        return parent, first, second

    def _nodes(self, way: list[int], last: Place) -> list[Place]:
        """Return the nodes of standings."""
        places = [self._at(self._standings[number][0]) for number in way]
        return list(dict.fromkeys([*places, last]))

    def _explore(self) -> None:
        """Follow every pair from its origin."""
        pending: list[Pair] = []
        net = self.net
        self._born(-1, (*net.starts, *net.triggers, *net.triggers), pending)
        for place, node in enumerate(net.nodes):
            for move in (*node.moves, *(node.too_few or ())):
                self._split(place, move, bool(node.many), pending)
        while pending:
            pair = pending.pop()
            for after in self._after(pair):
                self._add(after, pair, pending)

    def _split(self, place: Place, move: Move, many: bool, pending: list[Pair]) -> None:
        """Add the pairs that one move of a node creates."""
        edges = move.sure + move.maybe
        if many:
            everything = move.edges()
            self._born(place, everything + everything, pending)
            return
        self._born(place, edges, pending)
        if move.other is not None:
            for sure in move.sure:
                self._born(place, (sure, move.other), pending)

    def _born(self, place: Place, edges: tuple[EdgeId, ...], pending: list[Pair]) -> None:
        """Add a pair of tokens for every two of these edges."""
        groups: dict[Place, list[EdgeId]] = {}
        for edge in edges:
            if edge >= 0:
                groups.setdefault(self.net.edges[edge].target, []).append(edge)
        for target, group in groups.items():
            for pair in self._same_target(target, group):
                self._add(pair, place, pending)
                if self.net.exclusive(target):
                    self.clashes.setdefault(target, Meeting(target, pair))
        standings = [dict.fromkeys(map(self._arrival, group)) for group in groups.values()]
        for one, two in combinations(standings, 2):
            for first, second in product(one, two):
                self._add(self._pair(first, second), place, pending)

    def _same_target(self, target: Place, group: list[EdgeId]) -> Iterator[Pair]:
        """Yield the pairs of tokens that reach one node. At a join, two edges merge them."""
        if self._holds(target):
            for edge, times in Counter(group).items():
                if times > 1:
                    standing = self._arrival(edge)
                    yield standing, standing
        elif len(group) > 1:
            standing = self._arrival(group[0])
            yield standing, standing

    def _add(self, pair: Pair, parent: Pair | Place, pending: list[Pair]) -> None:
        self.count += 1
        if self.count > self.limit:
            raise _TooManyPairs
        if pair not in self._parents:
            self._parents[pair] = parent
            pending.append(pair)

    def _holds(self, place: Place) -> bool:
        """Return whether tokens are held before a node."""
        return self.net.nodes[place].join not in {None, "each"}

    def _arrival(self, edge: EdgeId, marks: Marks = 0) -> int:
        """Return the standing of a token that arrived over an edge."""
        target = self.net.edges[edge].target
        return self._number(self._size + edge if self._holds(target) else target, marks)

    def _number(self, where: int, marks: Marks) -> int:
        standing = (where, marks)
        if standing not in self._numbers:
            self._numbers[standing] = len(self._standings)
            self._standings.append(standing)
        return self._numbers[standing]

    @staticmethod
    def _pair(first: int, second: int) -> Pair:
        return (first, second) if first <= second else (second, first)

    def _at(self, where: int) -> Place:
        """Return the node where a token is at work or held."""
        return where if where < self._size else self.net.edges[where - self._size].target

    def _reaches(self, where: int, place: Place) -> bool:
        """Return whether a token can still reach a node."""
        return bool(self._reach[self._at(where)] >> place & 1)

    def _after(self, pair: Pair) -> Iterator[Pair]:
        """Yield the successors of a pair when one of the two tokens moves."""
        for number, other in (pair, pair[::-1]):
            where, marks = self._standings[number]
            if where < self._size:
                yield from self._leave(where, marks, other, pair)
            else:
                passed = self._pass(where, marks, other, pair)
                if passed is not None:
                    yield self._pair(*passed)

    def _leave(self, place: Place, marks: Marks, other: int, pair: Pair) -> Iterator[Pair]:
        """Yield the pairs when a token leaves the node it is at work in."""
        node = self.net.nodes[place]
        other_where = self._standings[other][0]
        for move in (*node.moves, *(node.too_few or ())):
            for edge in move.edges():
                if edge < 0:
                    continue
                target = self.net.edges[edge].target
                if target == other_where and self.net.exclusive(target):
                    self.clashes.setdefault(target, Meeting(target, pair))
                yield self._pair(self._arrival(edge, self._current(marks, other_where)), other)

    def _current(self, marks: Marks, other: int) -> Marks:
        """Return the marks that still matter: those of joins that the other token can reach."""
        if not marks:
            return marks
        at = self._at(other)
        if at not in self._mattering:
            places = self._reach[at] | 1 << at
            edges = (edges for place, edges in self._counted.items() if places >> place & 1)
            self._mattering[at] = reduce(or_, edges, 0)
        return marks & self._mattering[at]

    def _pass(self, where: int, marks: Marks, other: int, pair: Pair) -> tuple[int, int] | None:
        """Return the pair when a token held at a join is let through, or None if it is not."""
        edge = where - self._size
        place = self.net.edges[edge].target
        kind = self.net.nodes[place].join
        if kind == "count":
            return self._pass_count(edge, marks, other, pair)
        other_where = self._standings[other][0]
        if self._held_at(other_where, place):
            if other_where == where and kind == "all":
                self.surplus.setdefault(edge, Meeting(place, pair))
            return None
        if kind == "all":
            at = self._at(other_where)
            if (self._reach[at] | 1 << at) & self._others[edge]:  # it can still reach the join
                return None
        elif self._reaches(other_where, place) and not self._mutual(other_where, place):
            return None
        return self._number(place, self._current(marks, other_where)), other

    def _held_at(self, where: int, place: Place) -> bool:
        return where >= self._size and self._at(where) == place

    def _mutual(self, other: int, place: Place) -> bool:
        """Return whether the other token is held at a join that waits for a token held here."""
        # Other live tokens decide which of two such joins acts first, so both orders are possible.
        return other >= self._size and bool(self._reach[place] >> self._at(other) & 1)

    def _pass_count(
        self, edge: EdgeId, marks: Marks, other: int, pair: Pair
    ) -> tuple[int, int] | None:
        """Return the pair when a token reaches a counting join, or None if it does not pass."""
        place = self.net.edges[edge].target
        node = self.net.nodes[place]
        other_where, other_marks = self._standings[other]
        counted = self._counted[place]
        if marks & counted:
            # It left through this join, so it belongs to the next round and waits for it.
            if self._reaches(other_where, place) and not self._mutual(other_where, place):
                return None
            marks &= ~counted
        of_other = other_marks & counted
        if other_where == self._size + edge or of_other >> edge & 1:
            if node.late == "ignore":
                self.crowded.setdefault(edge, Meeting(place, pair))
        elif of_other or self._held_at(other_where, place):
            return None
        may_come = self._reaches(other_where, place) or self._at(other_where) == place
        if node.late == "cancel" and may_come:
            return None
        return self._number(place, self._current(marks | 1 << edge, other_where)), other


def _others(net: Net) -> list[int]:
    """Return, for each edge, the nodes from which the other edges to its target start, as bits."""
    result = [0] * len(net.edges)
    for incoming in net.incoming:
        before = 0
        for edge in incoming:
            result[edge] |= before
            before |= _bit(net.edges[edge].origin)
        after = 0
        for edge in reversed(incoming):
            result[edge] |= after
            after |= _bit(net.edges[edge].origin)
    return result


def _counted(net: Net) -> dict[Place, Marks]:
    """Return the edges that lead to each counting join."""
    return {
        place: reduce(or_, (1 << edge for edge in net.incoming[place]), 0)
        for place, node in enumerate(net.nodes)
        if node.join == "count"
    }


def _bit(place: Place) -> int:
    return 0 if place < 0 else 1 << place


def outrun(net: Net) -> list[Place]:
    """Return the exclusive merges on a cycle that may outrun the round of a counting join.

    On a cycle with a counting join and a split into several tokens, a token can return while the
    round that it left is open. Pairs do not show whether it does, so the exact game must decide.

    Args:
        net: The net of a scope.

    Returns:
        The merges, in file order.
    """
    shared: list[Place] = []
    for component in reachability.components(nets.successors(net)):
        nodes = [net.nodes[place] for place in component]
        splits = any(len(m.edges()) > 1 for node in nodes for m in node.moves)
        if splits and any(node.join == "count" for node in nodes):
            shared += [place for place in component if net.exclusive(place)]
    return sorted(shared)
