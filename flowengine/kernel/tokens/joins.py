"""Joins: the places where tokens that arrive at one step meet.

See docs/language.md: Order. Patterns 3, 7-9, 28-33, 37, 38, 41.

| kind     | holds                        | activates the step                                  |
|----------|------------------------------|-----------------------------------------------------|
| (none)   | nothing                      | at each arrival, which is provably the only one     |
| `each`   | nothing                      | at each arrival                                     |
| `all`    | arrivals, by source          | when every source has one. Takes one from each      |
| `active` | arrivals                     | when no other live token can still arrive           |
| `count`  | a round of arrivals          | at the `need`-th arrival of the round               |

A round of a counting join is open from its first arrival until every source except a trigger has
sent one, or until no other token can arrive. `late` defines what happens to arrivals after the
`need`-th. A token that left through the join carries the number of its round as a mark. If the
token returns while that round is open, it is kept and arrives again when the round has ended.

The counter `upstream` shows whether a token can still arrive. It is the number of live positions of
the scope from which a path leads to the join. It exists for each join that holds a token or has an
open round.
"""

from __future__ import annotations

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import evaluate, of_scope
from flowengine.kernel.graph.compiled import TRIGGER, EvaluationError
from flowengine.kernel.graph.linked import Body, Node
from flowengine.kernel.held_failures import is_held
from flowengine.kernel.state import entries, moves
from flowengine.kernel.state.records import Arrival, JoinState, Scope
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import number_waiting

_NEVER = float("inf")
"""Greater than any number of waiting tokens: for joins that do not watch their upstream."""


def arrive(tx: Transition, arrival: Arrival) -> None:
    """Accept a token that arrives at a step whose join may hold it.

    Args:
        arrival: The token.
    """
    node = tx.graph.nodes[arrival["step"]]
    join = node.join
    assert join is not None
    scope = tx.state["scopes"][arrival["scope"]]
    if join["kind"] == "all":
        _arrive_all(tx, scope, node, arrival)
    elif join["kind"] == "active":
        armed = _armed(tx, scope, node)
        armed["arrivals"].setdefault(arrival["source"], []).append(arrival)
        _count_waiting(tx, scope, node, 1)
    else:
        _arrive_count(tx, scope, node, arrival)


def _count_waiting(tx: Transition, scope: Scope, node: Node, change: int) -> None:
    scope["at_joins"] += change
    routing.count_token(tx, scope, node.index, change, node.index)
    tx.touch(scope["id"])


def _armed(tx: Transition, scope: Scope, node: Node) -> JoinState:
    """Return the record of a join, and start counting the tokens that can still reach it."""
    join = scope["joins"].setdefault(node.index, {**moves.new_join(), "round": 0})
    if "upstream" not in join:
        body, step = tx.graph.body(scope["body"]), node.index
        join["upstream"] = sum(n for place, n in scope["at"].items() if body.reaches(place, step))
    return join


def _arrive_all(tx: Transition, scope: Scope, node: Node, arrival: Arrival) -> None:
    join = scope["joins"].setdefault(node.index, moves.new_join())
    waiting = join["arrivals"]
    waiting.setdefault(arrival["source"], []).append(arrival)
    _count_waiting(tx, scope, node, 1)
    if len(waiting) == len(node.sources):
        taken = [waiting[source].pop(0) for source in node.sources]
        join["arrivals"] = {source: left for source, left in waiting.items() if left}
        if not join["arrivals"]:
            del scope["joins"][node.index]
        for _ in taken:
            _count_waiting(tx, scope, node, -1)
        tx.agenda.append(entries.activate(node.index, taken))


def _arrive_count(tx: Transition, scope: Scope, node: Node, arrival: Arrival) -> None:
    round_ = _armed(tx, scope, node)
    if round_["phase"] != "waiting" and arrival["marks"].get(node.index) == round_["round"]:
        _keep(tx, scope, node, round_, arrival)
        return
    if round_["phase"] == "waiting":
        moves.begin_round(round_, _need(tx, scope, node, arrival))
    source = arrival["source"]
    if _is_of_next_round(node, round_, source):
        _keep(tx, scope, node, round_, arrival)
    elif round_["phase"] == "fired":
        round_["sources_seen"][source] = True
        # It came too late.
        routing.end_token(tx, scope, arrival["line"], arrival["past"])
    else:
        round_["sources_seen"][source] = True
        round_["counted"].append(arrival)
        _count_waiting(tx, scope, node, 1)
        _fire_if_enough(tx, scope, node, round_)
    _end_if_all_seen(tx, scope, node, round_)


def check_again(tx: Transition, number: int) -> None:
    """Evaluate `need` again for the rounds of a scope for which it had no value.

    Args:
        tx: The transition.
        number: The scope.
    """
    scope = tx.state["scopes"].get(number)
    for index, round_ in list(scope["joins"].items()) if scope is not None else ():
        if scope is not None and round_["phase"] == "unknown":
            node = tx.graph.node(index)
            moves.know_need(round_, _need(tx, scope, node, round_["counted"][0]))
            _fire_if_enough(tx, scope, node, round_)
            _end_if_all_seen(tx, scope, node, round_)


def _fire_if_enough(tx: Transition, scope: Scope, node: Node, round_: JoinState) -> None:
    if round_["phase"] == "open" and len(round_["counted"]) >= round_["need"]:
        _fire(tx, scope, node, round_)


def _end_if_all_seen(tx: Transition, scope: Scope, node: Node, round_: JoinState) -> None:
    if round_["phase"] == "fired" and all(
        s in round_["sources_seen"] for s in node.sources if s != TRIGGER
    ):
        _end_round(tx, scope, node, round_)
    tx.touch(scope["id"])


def _is_of_next_round(node: Node, round_: JoinState, source: int) -> bool:
    """Return whether a queuing join already has a token from an edge in this round.

    A round is one wave of tokens, one from each edge. If there is only one edge, the round counts
    its tokens.
    """
    assert node.join is not None
    waves = round_["phase"] == "fired" or len(node.sources) > 1
    return waves and node.join.get("late") == "queue" and source in round_["sources_seen"]


def _keep(tx: Transition, scope: Scope, node: Node, round_: JoinState, arrival: Arrival) -> None:
    round_["kept"].append(arrival)
    _count_waiting(tx, scope, node, 1)


def _need(tx: Transition, scope: Scope, node: Node, first: Arrival) -> int | None:
    """Return how many arrivals a round needs, by the past of its first.

    None: that failed, and the scope is held.
    """
    assert node.join is not None
    try:
        need = evaluate(of_scope(tx, scope, first["past"]), node.join["need"])
        if isinstance(need, bool) or not isinstance(need, int) or need < 1:
            raise StepFailure(
                "ValidationError", f"'need' of {node.id!r} is {need!r}, not 1 or more"
            )
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(entries.need_broken(node.index, scope["id"], failure))
        return None if is_held(tx, "scope", scope["id"]) else 1
    return need


def _fire(tx: Transition, scope: Scope, node: Node, round_: JoinState) -> None:
    assert node.join is not None
    taken = _take(tx, scope, node, round_)
    moves.fire(round_)
    if node.join.get("late") == "cancel":
        tx.agenda.appendleft(entries.cancel_late(scope["id"], node.index))
        round_["sources_seen"] = dict.fromkeys(node.sources, True)
    tx.agenda.append(entries.activate(node.index, taken))


def _take(tx: Transition, scope: Scope, node: Node, round_: JoinState) -> list[Arrival]:
    """Remove the arrivals of a round. On a cycle, mark each with the number of the round."""
    taken = round_["counted"]
    round_["counted"] = []
    cyclic = _on_cycle(tx, scope, node)
    for arrival in taken:
        _count_waiting(tx, scope, node, -1)
        if cyclic:
            arrival["marks"] = {**arrival["marks"], node.index: round_["round"]}
    return taken


def _on_cycle(tx: Transition, scope: Scope, node: Node) -> bool:
    """Return whether a token that leaves through a join can return to it."""
    return tx.graph.body(scope["body"]).reaches(node.index, node.index)


def _end_round(tx: Transition, scope: Scope, node: Node, round_: JoinState) -> None:
    """End a round. The kept arrivals arrive again, in order."""
    kept = round_["kept"]
    again = moves.end_round(round_)
    del scope["joins"][node.index]
    if _on_cycle(tx, scope, node):
        scope["joins"][node.index] = again
    else:  # no token carries the number of this round
        kept, later = _next_wave(node, kept)
        if later:
            scope["joins"][node.index] = {**again, "kept": later}
    for arrival in kept:
        _count_waiting(tx, scope, node, -1)
        tx.agenda.append(entries.arrive(arrival))


def _next_wave(node: Node, kept: list[Arrival]) -> tuple[list[Arrival], list[Arrival]]:
    """Split kept arrivals into the first of each edge and the rest."""
    first: dict[int, int] = {}
    for place, arrival in enumerate(kept):
        first.setdefault(arrival["source"], place)
        if len(first) == len(node.sources):
            break
    wave = [kept[place] for place in first.values()]
    for place in reversed(first.values()):
        del kept[place]
    return wave, kept


def resolve_joins(tx: Transition, scope: Scope) -> bool:
    """Resolve the first join of a scope that no other token can reach any more.

    Args:
        scope: A scope in which a token has moved.

    Returns:
        Whether a join was settled.
    """
    ready = [
        step
        for step, join in scope["joins"].items()
        if join.get("upstream") == 0 and join["phase"] != "unknown"
    ]
    return _resolve_first(tx, scope, ready)


def resolve_stuck(tx: Transition, scope: Scope) -> bool:
    """Resolve the first stuck join of a scope: all tokens that can reach it are held at joins.

    Args:
        scope: A scope without other remaining work.

    Returns:
        Whether a join was settled.
    """
    body = tx.graph.body(scope["body"])
    stuck = [
        step
        for step, join in scope["joins"].items()
        if join.get("upstream", _NEVER) <= scope["at_joins"]
        and join["upstream"] == _waiting_elsewhere(scope, body, step)
        and join["phase"] != "unknown"
    ]
    return _resolve_first(tx, scope, stuck)


def _resolve_first(tx: Transition, scope: Scope, steps: list[int]) -> bool:
    """Resolve the join of the first of some steps, and return whether there is one."""
    if not steps:
        return False
    first = min(steps)
    _act(tx, scope, first, scope["joins"][first])
    return True


def _waiting_elsewhere(scope: Scope, body: Body, step: int) -> int:
    """Return the number of tokens held at other joins that can reach the join of a step."""
    return sum(
        number_waiting(join)
        for other, join in scope["joins"].items()
        if other != step and body.reaches(other, step)
    )


def _act(tx: Transition, scope: Scope, index: int, join: JoinState) -> None:
    """Fire an `active` join, end a round that has fired, or fail a join with too few arrivals."""
    node = tx.graph.node(index)
    tx.touch(scope["id"])
    assert node.join is not None
    if node.join["kind"] == "active":
        taken = [a for source in node.sources for a in join["arrivals"].get(source, ())]
        del scope["joins"][index]
        for _ in taken:
            _count_waiting(tx, scope, node, -1)
        tx.agenda.append(entries.activate(index, taken))
    elif join["phase"] == "fired":
        _end_round(tx, scope, node, join)
    else:
        got = _take(tx, scope, node, join)
        came = list(dict.fromkeys(tx.graph.node(a["source"]).id for a in got if a["source"] >= 0))
        tx.agenda.append(entries.too_few(index, got, join["need"], came))
        _end_round(tx, scope, node, join)
