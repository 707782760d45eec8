"""A scope as the checks see it: nodes, edges, and the ways in which a token can leave a node.

All conditions are open. A node's ways are alternatives: a token that is done there takes exactly
one of its moves, along every edge of `sure` and along those of `maybe` that hold. A node without
moves raises an error that ends the scope, or ends the scope in another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from flowengine.kernel.graph.compiled import END, END_ALL, START, TRIGGER
from flowengine.kernel.graph.specs import CompiledFlow, HandlerSpec, JoinSpec, SplitSpec, StepSpec

ANY_NUMBER = (0, 1, 2)
"""Represents any number of tokens, because two are enough to meet."""
MOST_ITEMS = 8
"""A map over more items is played like one over any number of items."""

Step = int
"""Number of a step in the compiled flow."""
Place = int
"""Number of a node in its net."""
EdgeId = int
"""Number of an edge in its net. `END` and `END_ALL` represent edges that lead out."""


class Edge(NamedTuple):
    """All entries of one step that lead to another: a pair of steps."""

    source: Step
    """The step at which it begins, or `START` or `TRIGGER`."""
    origin: Place
    """The node whose move feeds it, or -1 for `START` and `TRIGGER`."""
    target: Place
    first: Step
    """First step on the way from the node. It differs from `target` where a chain was left out."""


class Move(NamedTuple):
    """One alternative of a node."""

    sure: tuple[EdgeId, ...]
    maybe: tuple[EdgeId, ...] = ()
    other: EdgeId | None = None
    """Taken if no edge of `maybe` is."""

    def edges(self) -> tuple[EdgeId, ...]:
        """Return every edge that a token may be sent along."""
        return self.sure + self.maybe + (() if self.other is None else (self.other,))


class NetNode(NamedTuple):
    """A step in the game."""

    step: Step
    moves: tuple[Move, ...]
    join: str | None
    """`each`, `all`, `active`, `count`, or None."""
    need: int | None
    """The number of a counting join, if it is a constant."""
    late: str
    too_few: tuple[Move, ...] | None
    """The moves of handlers of `TooFew`. None if the error ends the scope."""
    many: tuple[int, ...]
    """How many tokens may leave if every item of a map leaves as one, else empty."""


class Net(NamedTuple):
    """A scope in the game."""

    nodes: list[NetNode]
    edges: list[Edge]
    incoming: list[list[EdgeId]]
    starts: list[EdgeId]
    triggers: list[EdgeId]
    restarts: list[EdgeId]
    """Edges by which a handler of the flow starts a token, after all others have ended."""

    def exclusive(self, place: Place) -> bool:
        """Return whether a node merges ways without a join."""
        return self.nodes[place].join is None and len(self.incoming[place]) > 1

    def name(self, flow: CompiledFlow, place: Place) -> str:
        """Return the id of the step at a node."""
        return flow["steps"][self.nodes[place].step]["id"]


class _Builder:
    """Collects edges while the moves of the steps are translated."""

    def __init__(self, flow: CompiledFlow, steps: list[Step]) -> None:
        self.flow = flow
        self.place = {step: place for place, step in enumerate(steps)}
        self.edges: list[Edge] = []
        self.by_pair: dict[tuple[Step, Step], EdgeId] = {}

    def edge(self, source: Step, target: Step) -> EdgeId:
        """Return the number of the edge between two steps."""
        if target in {END, END_ALL}:
            return target
        pair = (source, target)
        if pair not in self.by_pair:
            self.by_pair[pair] = len(self.edges)
            origin = self.place.get(source, -1) if source >= 0 else -1
            self.edges.append(Edge(source, origin, self.place[target], target))
        return self.by_pair[pair]

    def node(self, step: Step, cancels: Cancels) -> NetNode:
        spec = self.flow["steps"][step]
        moves: list[Move] = []
        if step not in cancels.ends:
            moves = [self.move(step, move) for move in split_moves(spec.get("split"))]
            handlers = spec.get("on_error", [])
            moves += [Move((self.edge(step, to),)) for to in handler_targets(handlers)]
            if step in cancels.hit:
                moves.append(Move((END,)))
        join = spec.get("join", JoinSpec())
        return NetNode(
            step=step,
            moves=tuple(dict.fromkeys(moves)),
            join=join.get("kind"),
            need=constant_need(join),
            late=join.get("late", "ignore"),
            too_few=self.too_few(step, spec),
            many=items_leaving(spec),
        )

    def move(self, step: Step, move: Move) -> Move:
        """Convert a move over steps to one over edges."""
        return Move(
            tuple(dict.fromkeys(self.edge(step, to) for to in move.sure)),
            tuple(dict.fromkeys(self.edge(step, to) for to in move.maybe)),
            None if move.other is None else self.edge(step, move.other),
        )

    def too_few(self, step: Step, spec: StepSpec) -> tuple[Move, ...] | None:
        """Return the moves of the handlers for `TooFew`. See `too_few_moves`."""
        moves = too_few_moves(spec)
        return None if moves is None else tuple(self.move(step, move) for move in moves)


def too_few_moves(spec: StepSpec) -> list[Move] | None:
    """Return the moves of the handlers for `TooFew`, up to the first unconditional one.

    Args:
        spec: A step.

    Returns:
        Moves with step numbers for edges. None if the error may end the scope, or is impossible
        because the step does not count arrivals.
    """
    if spec.get("join", {}).get("kind") != "count":
        return None
    moves: list[Move] = []
    for handler in spec.get("on_error", []):
        if "TooFew" not in handler.get("types", ["TooFew"]):
            continue
        do = handler.get("do")
        if do == "next":
            moves.append(Move((handler["to"],)))
        elif do in {"output", "continue"}:
            moves += split_moves(spec.get("split"))
        if "when" not in handler:
            return moves
    return None


def build(flow: CompiledFlow, body: int, cancels: Cancels) -> Net:
    """Return the net of the steps of a body that a token can reach.

    Args:
        body: Number of the body.
        cancels: The result of `cancellations` for the flow.

    Returns:
        The net, with places in file order.
    """
    spec = flow["bodies"][body]
    steps = reachable(flow, body, cancels)
    builder = _Builder(flow, steps)
    starts = [builder.edge(START, step) for step in spec.get("start", [])]
    triggered = [step for step in steps if TRIGGER in flow["steps"][step].get("sources", [])]
    triggers = [builder.edge(TRIGGER, step) for step in triggered]
    restarts = [builder.edge(START, step) for step in restarted(flow, body)]
    nodes = [builder.node(step, cancels) for step in steps]
    incoming: list[list[EdgeId]] = [[] for _ in nodes]
    for number, edge in enumerate(builder.edges):
        incoming[edge.target].append(number)
    return Net(nodes, builder.edges, incoming, starts, triggers, restarts)


def reachable(
    flow: CompiledFlow, body: int, cancels: Cancels, tokens: Iterable[Step] | None = None
) -> list[Step]:
    """Return the steps of a body that a token can reach, in file order.

    Args:
        body: Number of the body.
        cancels: The result of `cancellations` for the flow.
        tokens: Steps of a running scope at which tokens are. None: the scope is about to start.

    Returns:
        Step numbers.
    """
    spec = flow["bodies"][body]
    steps = flow["steps"]
    pending = list(spec.get("start", []) if tokens is None else tokens)
    pending += restarted(flow, body)
    pending += [s for s in spec["steps"] if TRIGGER in steps[s].get("sources", [])]
    seen = set(pending)
    while pending:
        step = pending.pop()
        for target in _led_to(steps[step], ends=step in cancels.ends):
            if target >= 0 and target not in seen:
                seen.add(target)
                pending.append(target)
    return [step for step in spec["steps"] if step in seen]


def _led_to(spec: StepSpec, *, ends: bool) -> Iterable[Step]:
    """Return the targets of a step.

    If it ends its scope, return only those that it still reaches.
    """
    if not ends:
        return targets(spec)
    return [target for move in too_few_moves(spec) or () for target in move.edges()]


def restarted(flow: CompiledFlow, body: int) -> list[Step]:
    """Return the steps at which handlers of the flow start a token.

    Args:
        body: Number of the body. Only that of the flow itself has such handlers.

    Returns:
        Step numbers.
    """
    handlers = flow.get("on_error", []) if body == 0 else []
    return [step for step in handler_targets(handlers) if step >= 0]


def targets(spec: StepSpec) -> Iterator[Step]:
    """Yield every target of a step, from its `next` and its handlers.

    Yields:
        Step numbers, `END` and `END_ALL`, possibly repeated.
    """
    for move in split_moves(spec.get("split")):
        yield from move.edges()
    yield from handler_targets(spec.get("on_error", []))


def handler_targets(handlers: Iterable[HandlerSpec]) -> Iterator[Step]:
    """Yield the targets of handlers with `next`.

    Args:
        handlers: Handlers of a step.

    Yields:
        Step numbers, `END` and `END_ALL`.
    """
    for handler in handlers:
        if handler.get("do") == "next":
            yield handler["to"]


def split_moves(split: SplitSpec | None) -> Iterator[Move]:
    """Yield the alternatives of a split, with step numbers for edges.

    Args:
        split: The split, or None for a step that no token leaves.

    Yields:
        Its moves.
    """
    if split is None:
        return
    kind = split["kind"]
    if kind == "one":
        yield Move((split["to"],))
    elif kind == "outcome":
        ways = list(split.get("outcomes", {}).values())
        ways += [split["otherwise"]] if "otherwise" in split else []
        yield from (Move((to,)) for to in dict.fromkeys(ways))
    elif kind == "first":
        yield from (Move((entry["to"],)) for entry in split["entries"])
    else:
        entries = split["entries"]
        others = [e["to"] for e in entries if e.get("otherwise")]
        yield Move(
            tuple(e["to"] for e in entries if "when" not in e and not e.get("otherwise")),
            tuple(e["to"] for e in entries if "when" in e),
            others[0] if others else None,
        )


def items_leaving(spec: StepSpec) -> tuple[int, ...]:
    """Return how many tokens leave a step whose items continue separately, as the game plays it.

    Returns:
        The number if it is a small constant, `ANY_NUMBER`, or nothing for other steps.
    """
    over = spec.get("map", {})
    if not over.get("each"):
        return ()
    items = over["over"][1] if over["over"][0] == "const" else None
    number = len(items) if isinstance(items, list) else items
    open_ended = "when" in spec or "more" in over or over.get("on_item_error") == "continue"
    if open_ended or not isinstance(number, int) or not 0 <= number <= MOST_ITEMS:
        return ANY_NUMBER
    return (number,)


def constant_need(join: JoinSpec) -> int | None:
    """Return the `need` of a join, where it is a constant.

    Returns:
        The number, or None.
    """
    need = join.get("need")
    if need is not None and need[0] == "const" and isinstance(need[1], int):
        return need[1]
    return None


class Cancels(NamedTuple):
    """Effects of the `cancel` steps of a flow on its tokens."""

    hit: frozenset[Step]
    """Steps that a `cancel` names as cancelled, where a token may end."""
    ends: frozenset[Step]
    """Steps whose `cancel` ends their own scope as soon as a token reaches them."""


def cancellations(flow: CompiledFlow) -> Cancels:
    """Return the effects of the `cancel` steps of a flow.

    Returns:
        The steps that are withdrawn, and those that thereby end the scope around them.
    """
    cancelled: set[Step] = set()
    ends_itself: set[Step] = set()
    for number, spec in enumerate(flow["steps"]):
        cancel = spec.get("cancel")
        if cancel is None:
            continue
        around = set(enclosing(flow, number)) if "when" not in spec else set()
        if cancel.get("execution") and "when" not in spec:
            ends_itself.add(number)
        for target in cancel.get("targets", []):
            if cancel.get("outcome", "cancelled") == "cancelled":
                cancelled.add(target)
            if target in around:
                ends_itself.add(number)
    return Cancels(frozenset(cancelled), frozenset(ends_itself))


def enclosing(flow: CompiledFlow, step: Step) -> Iterator[Step]:
    """Yield the groups around a step, innermost first.

    Args:
        step: Number of the step.

    Yields:
        Step numbers.
    """
    body = flow["steps"][step].get("body", -1)
    while body >= 0:
        owner = flow["bodies"][body].get("owner", -1)
        if owner < 0:
            return
        yield owner
        body = flow["steps"][owner].get("body", -1)


def compress(net: Net, keep: Iterable[Step] = ()) -> Net:
    """Leave out steps that only pass one token on, so that chains cost nothing.

    The position of a token on a chain does not affect its meetings, because the chain has one
    end.

    Args:
        net: The net.
        keep: Steps that must stay.

    Returns:
        A net with the same meetings. Its edges contain the step that they originate from.
    """
    kept_steps = set(keep)
    passing = [_passes(net, p) and n.step not in kept_steps for p, n in enumerate(net.nodes)]
    places = [place for place, skip in enumerate(passing) if not skip]
    renumber = {place: new for new, place in enumerate(places)}
    edges: list[Edge] = []
    numbers: dict[EdgeId, EdgeId] = {}
    finals: dict[EdgeId, EdgeId] = {}

    def follow(edge: EdgeId, origin: Place) -> EdgeId:
        first = edge
        while edge >= 0 and passing[net.edges[edge].target]:
            edge = net.nodes[net.edges[edge].target].moves[0].sure[0]
        if edge < 0:
            return edge
        if edge not in numbers:
            numbers[edge] = len(edges)
            old = net.edges[edge]
            start = net.nodes[net.edges[first].target].step
            edges.append(Edge(old.source, origin, renumber[old.target], start))
        finals[first] = numbers[edge]
        return numbers[edge]

    def moved(moves: tuple[Move, ...], place: Place) -> tuple[Move, ...]:
        result = [
            Move(
                tuple(follow(e, place) for e in m.sure),
                tuple(follow(e, place) for e in m.maybe),
                None if m.other is None else follow(m.other, place),
            )
            for m in moves
        ]
        return tuple(dict.fromkeys(result))

    starts = [follow(edge, -1) for edge in net.starts]
    triggers = [follow(edge, -1) for edge in net.triggers]
    restarts = [follow(edge, -1) for edge in net.restarts]
    nodes = []
    for place in places:
        node, new = net.nodes[place], renumber[place]
        too_few = None if node.too_few is None else moved(node.too_few, new)
        nodes.append(node._replace(moves=moved(node.moves, new), too_few=too_few))
    incoming: list[list[EdgeId]] = [[] for _ in nodes]
    for number, edge in enumerate(edges):
        incoming[edge.target].append(number)
    return Net(nodes, edges, incoming, starts, triggers, restarts)


def _passes(net: Net, place: Place) -> bool:
    """Return whether a node only passes one token on."""
    node = net.nodes[place]
    if node.join is not None or node.many or len(net.incoming[place]) != 1:
        return False
    if len(node.moves) != 1:
        return False
    move = node.moves[0]
    return len(move.sure) == 1 and not move.maybe and move.other is None


def successors(net: Net) -> list[list[Place]]:
    """Return, for each node, the nodes that one edge leads to.

    Args:
        net: The net.

    Returns:
        Places by place.
    """
    return [
        list(
            dict.fromkeys(
                net.edges[e].target
                for m in (*node.moves, *(node.too_few or ()))
                for e in m.edges()
                if e >= 0
            )
        )
        for node in net.nodes
    ]
