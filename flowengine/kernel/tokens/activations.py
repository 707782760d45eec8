"""Activations: a token enters a step (language reference, §5.2, §9.1, §9.2).

    arrivals ─► merge pasts ─► limits ─► when ─► deadline ─► map: an item each, or one unit

A map begins its items in order and keeps `concurrency` of them busy; an item all of whose tokens
wait holds no place. Items not begun are a number, ended ones a short row.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from flowengine.kernel import held_failures
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.flow_state.causality import learn
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.limits.suspension import unpark
from flowengine.kernel.machine import Machine, require
from flowengine.kernel.notation.percentages import share
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.tokens import routing
from flowengine.kernel.waiting.listeners import listen, watch
from flowengine.kernel.waiting.waits import duration_of, is_for

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Activation, Arrival, Scope, Unit

MAX_ITEMS = 1_000_000
"""Of a map over a number, as of `range`: a slip of the keyboard must not fill the memory."""

OF_MAP = ("over", "keys", "next", "places", "results", "failed", "bears", "succeeded", "need",
          "writes")  # fmt: skip
"""Fields that only the activation of a map has."""


def activate(m: Machine, step: int, arrivals: list[Arrival]) -> None:
    """Activate a step with the tokens that a join has let through.

    Args:
        m: The advance at work.
        step: The step.
        arrivals: The tokens taken; they become one.
    """
    node = m.graph.nodes[step]
    act = new_activation(m, node, arrivals)
    try:
        count(m, m.state["scopes"][arrivals[0]["scope"]], act)
        if "hold" in m.state and held_failures.begins_held(m, act):
            act["then"] = list(entries.begin_act(act["id"]))
        elif node.plain:
            begin_unit(m, act, -1)
        else:
            _begin(m, node, act)
    except (StepFailure, EvaluationError) as failure:
        m.agenda.append(entries.act_broken(act["id"], failure))


def new_activation(m: Machine, node: Node, arrivals: list[Arrival]) -> Activation:
    """Return a new activation, put into the state."""
    first = arrivals[0]
    scope = m.state["scopes"][first["scope"]]
    came = [[first["source"], first["output"]]]
    act = put_activation(m, scope, node.index, came, first)
    if len(arrivals) > 1:
        _merge(m, node, act, arrivals)
    if m.graph.bodies[scope["body"]].watched:
        routing.place(m, scope, node.index, 1)
    return act


def put_activation(
    m: Machine, scope: Scope, step: int, arrivals: list[list[Any]], token: Arrival | Activation
) -> Activation:
    """Put a new activation into the state.

    Args:
        m: The advance at work.
        scope: Its scope.
        step: Its step.
        arrivals: `[source, output]` of each token taken.
        token: What it carries on.

    Returns:
        The activation.
    """
    state = m.state
    number = state["last"] = state["last"] + 1
    act: Activation = {
        "id": number,
        "scope": scope["id"],
        "step": step,
        "number": 1,
        "arrivals": arrivals,
        "past": token["past"],
        "line": token["line"],
        "marks": token["marks"],
        "at": m.now,
        "units": {},
        "busy": 0,
    }
    if "message" in token:
        act["message"] = token["message"]
    if "knows" in token:
        act["knows"] = token["knows"]
    state["acts"][number] = act
    scope["live"][number] = step
    return act


def settle_in_frame(m: Machine, act: Activation, frame: int) -> None:
    """Let an activation that is at work in the scope of another flow see what its own flow has."""
    if frame != m.scope_of(act).get("frame", 0):
        act["frame"] = frame


def _merge(m: Machine, node: Node, act: Activation, arrivals: list[Arrival]) -> None:
    """Merge the tokens of several arrivals into that of the activation."""
    for arrival in arrivals[1:]:
        learn(act, arrival.get("knows"))
    ordered = sorted(arrivals, key=lambda a: (a["line"], node.sources.index(a["source"])))
    past = ordered[0]["past"]
    marks = dict(ordered[0]["marks"])
    for arrival in ordered[1:]:
        past = provenance.merge(m.state, past, arrival["past"])
        for join, number in arrival["marks"].items():
            marks[join] = max(marks.get(join, 0), number)
    act["past"] = past
    act["marks"] = marks
    for arrival in ordered:
        if "message" in arrival:
            act["message"] = arrival["message"]
    assert node.join is not None
    if node.join["kind"] == "count":
        act["arrivals"] = [[a["source"], a["output"]] for a in arrivals]
        act["line"] = ordered[-1]["line"]
    else:
        act["arrivals"] = [[a["source"], a["output"]] for a in ordered]
        act["line"] = _common(ordered[0]["line"], ordered[-1]["line"])


def _common(first: list[int], last: list[int]) -> list[int]:
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]


def count(m: Machine, scope: Scope, act: Activation) -> None:
    """Count an activation against the limits.

    Args:
        m: The advance at work.
        scope: Its scope.
        act: The activation; its number is filled in.

    Raises:
        StepFailure: `LimitExceeded`.
    """
    step = act["step"]
    body = m.graph.bodies[scope["body"]]
    if body.repeats or scope["counts"]:  # of another form of the flow, perhaps
        act["number"] = scope["counts"][step] = scope["counts"].get(step, 0) + 1
        hits = scope["hits"][step] = scope["hits"].get(step, 0) + 1
        limits = m.graph.flows[body.flow].limits
        if hits > limits["activations"]:
            raise StepFailure(
                "LimitExceeded",
                f"{m.graph.node(step).id!r} was activated more than {limits['activations']} times "
                "without a wait in between (limits.activations)",
                {"limit": "activations"},
            )
    if not scope["mapped"]:
        m.state["steps"] += 1
        if m.state["steps"] > m.graph.limits["steps"]:
            _refuse_more(m.graph.limits["steps"])
        if "frame" in scope:
            _count_in_subflows(m, scope["frame"])


def _count_in_subflows(m: Machine, frame: int) -> None:
    """Count an activation in those subflows around it that say `limits.steps` themselves."""
    while frame and frame in m.state["frames"]:
        inside = m.state["frames"][frame]
        if "steps" in inside:
            inside["steps"] += 1
            limit = m.graph.flows[inside["flow"]].limits["steps"]
            if inside["steps"] > limit:
                _refuse_more(limit)
        frame = inside["up"]


def _refuse_more(limit: int) -> NoReturn:
    message = f"more than {limit} activations (limits.steps)"
    raise StepFailure("LimitExceeded", message, {"limit": "steps"})


def begin_act(m: Machine, act: Activation) -> None:
    """Begin an activation anew, which has been counted; nothing of it is at work.

    Args:
        m: The advance at work.
        act: The activation.
    """
    scope, step = m.scope_of(act), act["step"]
    if step in scope["hits"]:  # somebody has looked at it, as at a wait
        scope["hits"][step] = 1
    if "deadline" in act:
        m.clear_timer(act.pop("deadline"))
    fields: dict[str, Any] = act  # type: ignore[assignment]
    for field in OF_MAP:
        fields.pop(field, None)
    try:
        if not scope["mapped"] and m.state["steps"] > m.graph.limits["steps"]:
            _refuse_more(m.graph.limits["steps"])
        _begin(m, m.node(act), act)
    except (StepFailure, EvaluationError) as failure:
        m.agenda.append(entries.act_broken(act["id"], failure))


def _begin(m: Machine, node: Node, act: Activation) -> None:
    names = Names(m, act)
    if node.when is not None and not holds(names, node.when):
        m.agenda.append(entries.act_ended(act["id"], "skipped", "skipped", None))
        return
    if node.deadline is not None:
        delay = duration_of(evaluate(names, node.deadline), "deadline")
        act["deadline"] = m.set_timer(delay, "deadline", act["id"])
    if node.map is None:
        begin_unit(m, act, -1)
        return
    _begin_map(m, node, act, names)


def _begin_map(m: Machine, node: Node, act: Activation, names: Names) -> None:
    spec = node.map
    assert spec is not None
    over = evaluate(names, spec["over"])
    if isinstance(over, int) and not isinstance(over, bool) and over >= 0:
        require(
            over <= MAX_ITEMS,
            "ValidationError",
            f"'map.over' of {node.id!r} is {over}: at most {MAX_ITEMS} items",
        )
        over = list(range(over))
    require(
        isinstance(over, list),
        "ValidationError",
        f"'map.over' of {node.id!r} is {_kind(over)}, neither a list nor a whole number",
    )
    places = evaluate(names, spec["concurrency"]) if "concurrency" in spec else 8
    require(
        isinstance(places, int) and not isinstance(places, bool) and places >= 1,
        "ValidationError",
        f"'map.concurrency' of {node.id!r} is {places!r}, not 1 or more",
    )
    act.update(
        {
            "over": _with_kept(m, names.frame, spec["more"], over) if "more" in spec else over,
            "keys": [],
            "next": 0,
            "places": places,
            "results": [],
            "failed": 0,
            "succeeded": 0,
            "writes": {},
        }
    )
    act["results"] = [None] * len(act["over"])
    _bound_failures(m, node, act)
    act["keys"] = _keys(m, node, act)
    if "need" in spec:
        need_now(m, act)
        watch(m, act["id"], m.watched(act, spec.get("watches", ())))
    if "more" in spec:
        listen(m, act["id"], spec["more"])
    m.agenda.append(entries.fill(act["id"]))


def _with_kept(m: Machine, frame: int, signal: str, over: list[Plain]) -> list[Plain]:
    """Return the items of a map with those that messages sent before it began add."""
    kept = m.state["kept"].get(signal, [])
    added = [message for message in kept if is_for(m, frame, message)]
    for message in added:
        kept.remove(message)
    return [*over, *(message["data"] for message in added)]


def _bound_failures(m: Machine, node: Node, act: Activation) -> None:
    """Fill in how many failures a map bears, if it says so."""
    spec = node.map
    assert spec is not None
    if "max_failures" in spec:
        failures = evaluate(Names(m, act), spec["max_failures"])
        act["bears"] = _bearable(failures, len(act["over"]))


def need_now(m: Machine, act: Activation) -> int:
    """Return how many items of a map have to succeed, by what is known now (pattern 36).

    Args:
        m: The advance at work.
        act: The activation of a map that has a `need`.

    Returns:
        The number; it is kept in the activation too.

    Raises:
        StepFailure: It is no number of 1 or more.
        EvaluationError: It has no value.
    """
    node = m.node(act)
    assert node.map is not None
    need = evaluate(Names(m, act), node.map["need"])
    require(
        isinstance(need, int) and not isinstance(need, bool) and need >= 1,
        "ValidationError",
        f"'need' of {node.id!r} is {need!r}, not 1 or more",
    )
    act["need"] = need
    return act["need"]


def add_item(m: Machine, act: Activation, item: Plain) -> None:
    """Add an item to a map that runs (pattern 15).

    Args:
        m: The advance at work.
        act: The map's activation.
        item: What a message brought.
    """
    node = m.node(act)
    index = len(act["over"])
    try:
        key = _key(m, node, act, index, item)
        act["over"].append(item)
        _bound_failures(m, node, act)
    except (StepFailure, EvaluationError) as failure:
        m.agenda.append(entries.map_broken(act["id"], failure))
        return
    if node.map is not None and "key" in node.map and key in act["keys"]:
        same = _same_key(node, act["keys"].index(key), index, key)
        m.agenda.append(entries.map_broken(act["id"], same))
        return
    act["keys"].append(key)
    act["results"].append(None)
    m.agenda.append(entries.fill(act["id"]))


def _kind(value: Plain) -> str:
    return {dict: "a map", str: "a text", float: "a number with a fraction"}.get(
        type(value), repr(value)
    )


def _bearable(failures: Plain, items: int) -> int:
    """Return how many failures a map bears: a number, or a percentage of its items."""
    if isinstance(failures, str):
        with suppress(ValueError):
            return share(failures, items)
    if isinstance(failures, int) and not isinstance(failures, bool) and failures >= 0:
        return failures
    raise StepFailure(
        "ValidationError",
        f"'max_failures' is {failures!r}, not a count and not a percentage from 0% to 100%",
    )


def _keys(m: Machine, node: Node, act: Activation) -> list[str]:
    """Return the keys of all items: their index, or what `key` gives; they must be unique."""
    spec = node.map
    assert spec is not None
    if "key" not in spec:
        return [str(i) for i in range(len(act["over"]))]
    keys: dict[str, int] = {}
    for index, item in enumerate(act["over"]):
        key = _key(m, node, act, index, item)
        if key in keys:
            raise _same_key(node, keys[key], index, key)
        keys[key] = index
    return list(keys)


def _key(m: Machine, node: Node, act: Activation, index: int, item: Plain) -> str:
    """Return the key of an item: its index, or what `key` gives."""
    spec = node.map
    assert spec is not None
    if "key" not in spec:
        return str(index)
    item_name, index_name = spec["names"][0], spec["names"][1]
    names = Names(m, act, extra={item_name: item, index_name: index})
    key = evaluate(names, spec["key"])
    return key if isinstance(key, str) else str(key)


def _same_key(node: Node, first: int, second: int, key: str) -> StepFailure:
    message = f"items {first} and {second} of {node.id!r} have the same key {key!r}"
    return StepFailure("ValidationError", message)


def fill(m: Machine, act: Activation) -> None:
    """Begin items of a map while it has free places.

    Args:
        m: The advance at work.
        act: The map's activation.
    """
    while act["next"] < len(act["over"]) and act["busy"] < act["places"]:
        index = act["next"]
        act["next"] += 1
        begin_unit(m, act, index)
    if act["next"] >= len(act["over"]) and not act["units"]:
        m.agenda.append(entries.map_over(act["id"]))


def begin_unit(m: Machine, act: Activation, item: int) -> None:
    """Begin the unit of a plain step, or that of a map item.

    Args:
        m: The advance at work.
        act: The activation.
        item: Index of the item; -1 without a map.
    """
    unit = new_unit(m, m.state["scopes"][act["scope"]], act, item)
    if item >= 0 and "knows" in act:
        learn(unit, act["knows"])
    looping = m.graph.nodes[act["step"]].loop is not None
    then = (entries.begin_round if looping else entries.attempt)(unit["id"])
    if item >= 0 and "hold" in m.state and held_failures.begins_held(m, act, unit):
        move(unit, "held")
        unit["then"] = list(then)
    else:
        m.agenda.append(then)


def new_unit(m: Machine, scope: Scope, act: Activation, item: int) -> Unit:
    """Return a new unit of an activation, put into the state; the scopes around it are awake."""
    state = m.state
    number = state["last"] = state["last"] + 1
    unit: Unit = {
        "id": number,
        "act": act["id"],
        "item": item,
        "phase": "ready",
        "round": 0,
        "attempt": 0,
        "tries": 0,
    }
    state["units"][number] = unit
    act["units"][number] = True
    act["busy"] += 1
    owner = scope["unit"]
    if owner:
        unpark(m, state["units"][owner])
    return unit
