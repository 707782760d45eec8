"""The token game of a scope, explored exactly, with all conditions open.

It verifies errors of the cheaper analyses before they are reported, and it is the oracle for their
tests. In a `full` play any token may move next, which finds every meeting. Otherwise one token at a
time moves, which finds every stall and is far cheaper, since the moves of one token commute with
those of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, combinations
from typing import Any, NamedTuple

from flowengine.flow.check import net as nets
from flowengine.flow.check.concurrent_tokens import MOST_WORK
from flowengine.flow.check.net import EdgeId, Move, Net, Place
from flowengine.kernel.graph import linked
from flowengine.kernel.graph.compiled import END_ALL

LIMIT = 5_000
"""Maximum number of positions explored."""
DELIVERED = 40_000
"""Maximum number of arrivals at steps over all moves. Tokens kept by a counting join arrive again
with every round."""
HOT = 8
"""Number of `TooFew` errors in one move after which `limits.activations` is taken to end the scope,
because a handler leads back to the join."""
ENTRIES = 6
"""Maximum number of conditional entries of one split, and of triggers of a scope."""

Marks = frozenset[Place]
"""The counting joins that a token left through in a round that is still open."""
Choose = Callable[[Sequence[Any]], Any]
"""Picks one of several options. Over all runs, every option is picked."""


class GameToken(NamedTuple):
    """A token at work in a node, or held at a join."""

    at: int
    """The node, or for a held token the edge that it arrived over."""
    marks: Marks


class Round(NamedTuple):
    """The open round of a counting join."""

    need: int
    fired: bool = False
    arrived: frozenset[EdgeId] = frozenset()
    held: tuple[GameToken, ...] = ()
    """Arrivals that count, before it has fired."""
    kept: tuple[GameToken, ...] = ()
    """Tokens of the next round, in order of arrival."""


class GameState(NamedTuple):
    """A position of the game."""

    working: tuple[GameToken, ...]
    held: tuple[tuple[Place, tuple[GameToken, ...]], ...]
    """The `all` and `active` joins that hold tokens, with these."""
    rounds: tuple[tuple[Place, Round], ...]
    """The counting joins that have an open round."""

    def size(self) -> int:
        """Return the size of the position: its tokens, and the arrivals in open rounds."""
        held = sum(len(tokens) for _, tokens in self.held)
        rounds = sum(1 + len(r.arrived) + len(r.held) + len(r.kept) for _, r in self.rounds)
        return len(self.working) + held + rounds


class Moved(NamedTuple):
    """One move of a play."""

    place: Place
    edges: tuple[EdgeId, ...]
    """Edges along which tokens moved."""


class GameVerdict(NamedTuple):
    """The findings of the game."""

    complete: bool
    """Whether every position was explored."""
    stalls: frozenset[Place]
    """Joins at which tokens can be held forever."""
    clashes: frozenset[Place]
    """Exclusive merges at which two tokens can be at once."""
    too_few: frozenset[Place]
    """Counting joins that can receive fewer arrivals than they need, without a handler."""
    fired: frozenset[Place]
    """Counting joins that can receive the arrivals that they need."""
    examples: dict[Place, list[Moved]]
    """Join at which tokens are held forever → the moves of one play that leads there."""
    work: int
    """Number of tokens examined."""


class _EndedError(Exception):
    """The scope has ended, so nothing follows."""


class _TooManyError(Exception):
    """A move has too many variants to explore, or does not end."""


def play(net: Net, *, full: bool = False, limit: int = LIMIT, most: int = MOST_WORK) -> GameVerdict:
    """Explore a scope.

    Args:
        net: The net of the scope.
        full: Whether any token may move next, to find meetings. Otherwise one at a time moves, to
            find stalls.
        limit: Maximum number of positions.
        most: Maximum number of tokens examined over all moves.

    Returns:
        The findings, and whether the exploration is complete.
    """
    game = _Game(net)
    seen: set[GameState] = set()
    before: dict[GameState, tuple[GameState, Moved]] = {}
    complete, work = True, 0
    try:
        pending = list(_outcomes(game.begin))
        while pending and complete:
            state = pending.pop()
            if state in seen:
                continue
            seen.add(state)
            for after in _outcomes(partial(game.move, state, full)):
                pending.append(after)
                before.setdefault(after, (state, game.moved))
                work += 1 + after.size()
                complete = len(seen) <= limit and work <= most
                if not complete:
                    break
    except _TooManyError:
        complete = False
    examples = {place: _moves_to(state, before) for place, state in game.stuck.items()}
    return GameVerdict(
        complete,
        frozenset(game.stalls),
        frozenset(game.clashes),
        frozenset(game.too_few),
        frozenset(game.fired),
        examples,
        work,
    )


def _moves_to(state: GameState, before: dict[GameState, tuple[GameState, Moved]]) -> list[Moved]:
    """Return the moves that lead to a position, without cycles."""
    moves: list[Moved] = []
    met: set[GameState] = set()
    while state in before and state not in met:
        met.add(state)
        state, moved = before[state]
        moves.append(moved)
    return moves[::-1]


def _outcomes(procedure: Callable[[Choose], GameState | None]) -> Iterator[GameState]:
    """Run a procedure once for every sequence of choices it can make."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        script = pending.pop()
        taken: list[int] = []

        def choose(
            options: Sequence[Any], script: tuple[int, ...] = script, taken: list[int] = taken
        ) -> Any:
            number = len(taken)
            if number >= len(script):
                pending.extend((*taken, other) for other in range(1, len(options)))
                taken.append(0)
            else:
                taken.append(script[number])
            return options[taken[-1]]

        try:
            state = procedure(choose)
        except _EndedError:
            continue
        if state is not None:
            yield state


class _Game:
    """The rules of the game over one net, and its findings."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.reach = linked.reach(nets.successors(net))
        own = set(net.triggers)
        self.awaited = [frozenset(e for e in edges if e not in own) for edges in net.incoming]
        """Edges that a round waits for, without triggers."""
        self.stalls: set[Place] = set()
        self.clashes: set[Place] = set()
        self.too_few: set[Place] = set()
        self.fired: set[Place] = set()
        self.stuck: dict[Place, GameState] = {}
        """Join → a position in which it holds tokens forever."""
        self.moved = Moved(-1, ())
        """The last move."""
        self.delivered = 0
        """Number of tokens that have reached a step, over all moves."""

    def begin(self, choose: Choose) -> GameState:
        """Return a position at the start, with zero, one or two messages for each trigger."""
        if len(self.net.triggers) > ENTRIES:
            raise _TooManyError
        twice = self.net.triggers + self.net.triggers
        begun = choose([self.net.starts, *([edge] for edge in self.net.restarts)])
        edges = (*begun, *choose(list(_subsets(twice))))
        return _Board(self, GameState((), (), ()), choose).send(edges, frozenset())

    def move(self, state: GameState, full: bool, choose: Choose) -> GameState | None:
        """Return a following position."""
        if not state.working:
            held = [place for place, _ in state.held]
            if held and self.may_be_freed(state):
                return None  # it waits for a message, which is part of the starting position
            self.stalls.update(held)
            for place in held:
                self.stuck.setdefault(place, state)
            return None
        token: GameToken = choose(list(dict.fromkeys(state.working))) if full else state.working[0]
        node = self.net.nodes[token.at]
        if not node.moves:
            return None
        board = _Board(self, state, choose)
        board.working.remove(token)
        edges: list[EdgeId] = []
        for _ in range(choose(node.many) if node.many else 1):
            edges += _taken(choose(node.moves), choose)
        self.moved = Moved(token.at, tuple(edges))
        return board.send(edges, token.marks)

    def may_be_freed(self, state: GameState) -> bool:
        """Return whether triggers can send a token that a held token waits for."""
        brought: set[EdgeId] = set(self.net.triggers)
        begun: set[Place] = set()
        held = {place: {token.at for token in tokens} for place, tokens in state.held}
        while brought:
            begun |= {self.net.edges[edge].target for edge in brought}
            more = {p for p in begun if self.may_begin(p, held.get(p, set()), brought)}
            if more & held.keys():
                return True
            moves = (move for place in more for move in self.net.nodes[place].moves)
            edges = {edge for move in moves for edge in move.edges() if edge >= 0}
            if edges <= brought:
                break
            brought |= edges
        return False

    def may_begin(self, place: Place, held: set[EdgeId], brought: set[EdgeId]) -> bool:
        """Return whether a node can begin with its held tokens and those that edges may bring."""
        if self.net.nodes[place].join != "all":
            return True
        return all(edge in brought or edge in held for edge in self.net.incoming[place])


class _Board:
    """A position while one move and its consequences are computed."""

    def __init__(self, game: _Game, state: GameState, choose: Choose) -> None:
        self.game = game
        self.net = game.net
        self.choose = choose
        self.working = list(state.working)
        self.held = {place: list(tokens) for place, tokens in state.held}
        self.rounds = dict(state.rounds)
        self.agenda: list[GameToken] = []
        """Tokens that have reached the end of an edge."""
        self.lacked = 0

    def send(self, edges: Iterable[EdgeId], marks: Marks) -> GameState:
        """Send a token along each edge, compute the consequences, and return the position."""
        self.agenda += [GameToken(edge, marks) for edge in edges]
        self.run()
        return GameState(
            tuple(sorted(self.working, key=lambda t: (t.at, sorted(t.marks)))),
            tuple(
                (place, tuple(sorted(tokens, key=lambda t: t.at)))
                for place, tokens in sorted(self.held.items())
            ),
            tuple(sorted(self.rounds.items())),
        )

    def run(self) -> None:
        """Deliver the pending tokens and let joins act, until nothing is left to do."""
        while True:
            while self.agenda:
                self.deliver(self.agenda.pop(0))
            joins = [place for place in sorted({*self.held, *self.rounds}) if self.acts(place)]
            ready = next((p for p in joins if not self.awaits(p)), None)
            if ready is None:
                ready = next((p for p in joins if self.stuck(p)), None)
            if ready is None:
                return
            self.act(ready)

    def deliver(self, token: GameToken) -> None:
        """Add a token that arrives."""
        self.game.delivered += 1
        if self.game.delivered > DELIVERED:
            raise _TooManyError
        if token.at == END_ALL:
            raise _EndedError
        if token.at < 0:
            return
        place = self.net.edges[token.at].target
        kind = self.net.nodes[place].join
        if kind == "count":
            self.count(place, token)
        elif kind in {"all", "active"}:
            self.held.setdefault(place, []).append(token)
            if kind == "all":
                self.take_one_of_each(place)
        else:
            if self.net.exclusive(place) and any(other.at == place for other in self.working):
                self.game.clashes.add(place)
            self.working.append(GameToken(place, token.marks))

    def take_one_of_each(self, place: Place) -> None:
        """Fire an `all` join if there is a token on every edge."""
        first = {token.at: token for token in reversed(self.held[place])}
        if len(first) == len(self.net.incoming[place]):
            for token in first.values():
                self.held[place].remove(token)
            if not self.held[place]:
                del self.held[place]
            self.working.append(GameToken(place, _merged(first.values())))

    def count(self, place: Place, token: GameToken) -> None:
        """Count a token that arrives at a counting join."""
        now = self.rounds.get(place) or Round(self.need(place))
        waves = now.fired or len(self.net.incoming[place]) > 1
        queued = waves and self.net.nodes[place].late == "queue" and token.at in now.arrived
        if place in token.marks or queued:
            now = now._replace(kept=(*now.kept, token))
        elif not now.fired:
            now = now._replace(held=(*now.held, token), arrived=now.arrived | {token.at})
        else:
            now = now._replace(arrived=now.arrived | {token.at})
        self.rounds[place] = now
        if not now.fired and len(now.held) >= now.need:
            self.fire(place, now)
        elif now.fired and now.arrived >= self.game.awaited[place]:
            self.end_round(place)

    def need(self, place: Place) -> int:
        """Return the need of a round.

        If it is computed, return any number that its edges can meet.
        """
        need = self.net.nodes[place].need
        if need is not None:
            return need
        count: int = self.choose(range(1, len(self.net.incoming[place]) + 1))
        return count

    def fire(self, place: Place, now: Round) -> None:
        """Fire a round with the tokens it needs."""
        marks = _merged(now.held)
        self.game.fired.add(place)
        self.rounds[place] = now._replace(fired=True, held=())
        if self.net.nodes[place].late == "cancel":
            self.withdraw(place)
            self.end_round(place)
        else:
            marks |= {place}
        self.working.append(GameToken(place, marks))
        if now.arrived >= self.game.awaited[place] and place in marks:
            self.end_round(place)

    def withdraw(self, place: Place) -> None:
        """Cancel the tokens that can still reach a node."""
        reach, edges = self.game.reach, self.net.edges

        def spared(token: GameToken) -> bool:
            return not reach[edges[token.at].target] >> place & 1

        self.working = [t for t in self.working if not reach[t.at] >> place & 1]
        self.agenda = [
            t for t in self.agenda if t.at < 0 or (spared(t) and edges[t.at].target != place)
        ]
        for join in [held for held in self.held if held != place]:
            self.held[join] = [t for t in self.held[join] if spared(t)]
            if not self.held[join]:
                del self.held[join]
        for join, now in self.rounds.items():
            if join == place:
                continue
            held = tuple(t for t in now.held if spared(t))
            kept = tuple(t for t in now.kept if spared(t))
            arrived = now.arrived if now.fired else frozenset(t.at for t in held)
            self.rounds[join] = now._replace(held=held, kept=kept, arrived=arrived)

    def end_round(self, place: Place) -> None:
        """End a round: remove its marks, and deliver its kept tokens again."""
        now = self.rounds.pop(place)

        def unmarked(tokens: Iterable[GameToken]) -> list[GameToken]:
            return [GameToken(t.at, t.marks - {place}) for t in tokens]

        self.working = unmarked(self.working)
        self.held = {join: unmarked(tokens) for join, tokens in self.held.items()}
        self.agenda = unmarked((*self.agenda, *now.kept))
        for join, other in self.rounds.items():
            held, kept = tuple(unmarked(other.held)), tuple(unmarked(other.kept))
            self.rounds[join] = other._replace(held=held, kept=kept)

    def acts(self, place: Place) -> bool:
        """Return whether a join may act by itself.

        An `all` join fires only when it has every token.
        """
        return self.net.nodes[place].join != "all"

    def stuck(self, place: Place) -> bool:
        """Return whether a join waits only for tokens that are held at joins themselves."""
        now = self.rounds.get(place)
        if now is not None and now.fired and not now.kept:
            return False
        return not self.awaits(place, self.working)

    def awaits(self, place: Place, working: Iterable[GameToken] | None = None) -> bool:
        """Return whether another token can still reach a join."""
        reach = self.game.reach
        for token in self.working if working is None else working:
            if reach[token.at] >> place & 1 and place not in token.marks:
                return True
        return working is None and any(
            reach[join] >> place & 1 and any(place not in t.marks for t in self.at_join(join))
            for join in (*self.held, *self.rounds)
            if join != place
        )

    def at_join(self, join: Place) -> Iterator[GameToken]:
        """Yield the tokens that are held at a join."""
        yield from self.held.get(join, ())
        now = self.rounds.get(join)
        if now is not None:
            yield from now.held
            yield from now.kept

    def act(self, place: Place) -> None:
        """Settle a join that waits for no more tokens: fire, end its round, or raise `TooFew`."""
        if self.net.nodes[place].join == "active":
            self.working.append(GameToken(place, _merged(self.held.pop(place))))
            return
        now = self.rounds[place]
        self.end_round(place)
        if now.held:
            self.lack(place, _merged(now.held))

    def lack(self, place: Place, marks: Marks) -> None:
        """Raise `TooFew` at a join."""
        handlers = self.net.nodes[place].too_few
        if handlers is None:
            self.game.too_few.add(place)
        self.lacked += 1
        if not handlers or self.lacked > HOT:
            raise _EndedError
        move = self.choose(handlers)
        self.agenda += [GameToken(edge, marks) for edge in _taken(move, self.choose)]


def _merged(tokens: Iterable[GameToken]) -> Marks:
    return frozenset(chain.from_iterable(token.marks for token in tokens))


def _taken(move: Move, choose: Choose) -> tuple[EdgeId, ...]:
    if len(move.maybe) > ENTRIES:
        raise _TooManyError
    sets = [s for s in _subsets(move.maybe) if s or move.sure or move.other is not None]
    taken: tuple[EdgeId, ...] = choose(sets) if move.maybe else ()
    other = () if taken or move.other is None else (move.other,)
    return (*move.sure, *taken, *other)


def _subsets(edges: Sequence[EdgeId]) -> Iterator[tuple[EdgeId, ...]]:
    sizes = range(len(edges) + 1)
    return chain.from_iterable(combinations(edges, size) for size in sizes)
