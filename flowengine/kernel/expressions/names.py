"""The names that an expression can read, looked up on demand (docs/language.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions import provenance
from flowengine.kernel.graph.compiled import Plain, SecretText, Value, at_path
from flowengine.kernel.graph.linked import Graph, GraphFlow
from flowengine.kernel.notation.addresses import SHOWN, idempotency_key
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.state.moves import new_state
from flowengine.kernel.state.records import Activation, Scope, Unit
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import View

NOT_RUN: dict[str, Plain] = {
    "status": "none",
    "outcome": None,
    "output": None,
    "error": None,
    "activations": 0,
    "rounds": 0,
    "attempts": 0,
    "items": None,
    "agent": None,
    "started_at": None,
    "ended_at": None,
}
"""`steps.x` for a step that is not in the past of the token."""


class Names:
    """The names visible in one place: an activation, possibly one of its units, and extra roots.

    Args:
        view: The execution.
        act: The activation whose expression is evaluated. None at the level of a flow.
        unit: The unit of the item or round, if any.
        past: The past for `steps`. Default: that of the activation.
        extra: Additional roots of this place, such as `output` or `error`.
        frame: Without an activation: the frame of the flow. 0: the main flow.
    """

    __slots__ = ("act", "extra", "frame", "past", "unit", "view")

    def __init__(
        self,
        view: View,
        act: Activation | None,
        unit: Unit | None = None,
        past: int | None = None,
        extra: dict[str, Plain] | None = None,
        frame: int = 0,
    ) -> None:
        self.view = view
        self.act = act
        self.unit = unit
        if act is None:
            self.frame = frame
        elif "frame" in act:
            self.frame = act["frame"]
        else:
            self.frame = view.state["scopes"][act["scope"]].get("frame", 0)
        self.past = past if past is not None else (act["past"] if act is not None else 0)
        self.extra = extra

    def __getitem__(self, root: str) -> Plain:
        if self.extra is not None and root in self.extra:
            return self.extra[root]
        state = self.view.state
        if root == "inputs":
            return state["frames"][self.frame]["inputs"] if self.frame else state["inputs"]
        if root == "steps":
            return Steps(self.view, self.past, self.frame)
        if root == "state":
            return {key: cell[0] for key, cell in self.view.vars_of(self.frame).items()}
        if root == "execution":
            return {key: item for key, item in state["execution"].items() if key in SHOWN}
        if root == "now":
            return format_time(self.view.now)
        if root == "join":
            return self._join()
        if root == "idempotency_key":
            return self._idempotency_key()
        return self._local(root)

    def field(self, name: str, field: str) -> Plain:
        """Return `steps.NAME.FIELD` without the other fields."""
        state, frame = self.view.state, self.frame
        flow = state["frames"][frame]["flow"] if frame else 0
        graph = self.view.graph
        step = graph.flows[flow].indexes.get(name)
        if step is None:
            step = graph.step_index(name, flow)
        record = provenance.find(state, self.past, step)
        if record is None:
            return NOT_RUN[field]
        if field == "activations":
            return record["n"]
        return record[field] if field in record else NOT_RUN[field]

    def variable(self, key: str) -> Plain:
        """Return `state.KEY` without the other keys."""
        return self.view.vars_of(self.frame)[key][0]

    def having(self, extra: dict[str, Plain]) -> Names:
        """Return these names with additional roots."""
        more = {**(self.extra or {}), **extra}
        return Names(self.view, self.act, self.unit, self.past, more, self.frame)

    def _idempotency_key(self) -> str:
        """Return the idempotency key of the unit, which is the same in every attempt."""
        unit, view = self.unit, self.view
        if unit is None:
            raise KeyError("idempotency_key")
        key = unit.get("key")
        return (
            idempotency_key(view.state["execution"]["identity"], view.address(unit))
            if key is None
            else key
        )

    def _join(self) -> Plain:
        """Return the arrivals of the activation: `output`, `outputs`, `all`, `from`."""
        if self.act is None:
            raise KeyError("join")
        node = self.view.graph.node
        named = [(node(s).id, output) for s, output in self.act["arrivals"] if s >= 0]
        return {
            "output": named[-1][1] if named else None,
            "outputs": dict(named),
            "all": [{"from": name, "output": output} for name, output in named],
            "from": list(dict.fromkeys(name for name, _ in named)),
        }

    def _local(self, root: str) -> Plain:
        """Return the name of an item or `round`, from the innermost place outwards."""
        for name, value in _locals(self):
            if name == root:
                return value
        if root == "signal" and self.view.graph.triggers:
            return None
        raise KeyError(root)


def group_around(view: View, act: Activation) -> Unit | None:
    """Return the unit of the group around an activation. None at the level of a flow."""
    scope = view.scope_of(act)
    if not scope["unit"] or view.graph.body(scope["body"]).kind == "flow":
        return None
    return view.state["units"][scope["unit"]]


def regions(view: View, unit: Unit) -> tuple[int, ...]:
    """Return the units of the map items, groups and subflows around a unit, innermost first.

    A task that makes calls is none: its callees are those of the flow around it.
    """
    act = view.act_of(unit)
    units = [] if view.node(act).map is None else [unit]
    units += view.units_around(act)
    nodes = ((unit, view.node(view.act_of(unit))) for unit in units)
    return tuple(unit["id"] for unit, node in nodes if node.exchange is None)


def of_scope(view: View, scope: Scope, past: int, extra: dict[str, Plain] | None = None) -> Names:
    """Return the names for an expression of a scope: of a flow, or of a group at its unit."""
    if view.graph.body(scope["body"]).kind == "flow":
        return Names(view, None, past=past, extra=extra, frame=scope.get("frame", 0))
    unit = view.state["units"][scope["unit"]]
    return Names(view, view.act_of(unit), unit, past, extra)


def local_names(names: Names) -> dict[str, Plain]:
    """Return the names of items, rounds and messages in a place, to be stored for later."""
    values: dict[str, Plain] = {}
    for name, value in _locals(names):
        values.setdefault(name, value)
    return values


def _locals(names: Names) -> Iterator[tuple[str, Plain]]:
    """Yield the names of items, rounds and messages in a place, from the innermost outwards."""
    view, act, unit = names.view, names.act, names.unit
    while act is not None:
        yield from act.get("local", {}).items()
        if "message" in act:
            yield "signal", act["message"]
        if unit is not None:
            if unit["round"]:
                yield "round", {"number": unit["round"], "last": unit.get("last")}
            spec = view.node(act).map
            if spec is not None and unit["item"] >= 0:
                item = unit["item"]
                of_item = (act["over"][item], item, act["keys"][item])
                yield from zip(spec["names"], of_item, strict=True)
        unit = group_around(view, act)
        act = None if unit is None else view.act_of(unit)


class Steps:
    """`steps`: step name → the record of its latest activation in this past."""

    __slots__ = ("frame", "past", "view")

    def __init__(self, view: View, past: int, frame: int) -> None:
        self.view = view
        self.past = past
        self.frame = frame

    def __getitem__(self, name: str) -> dict[str, Plain]:
        state = self.view.state
        flow = state["frames"][self.frame]["flow"] if self.frame else 0
        record = provenance.find(state, self.past, self.view.graph.step_index(name, flow))
        if record is None:
            return NOT_RUN
        return {**NOT_RUN, **record, "activations": record["n"]}

    def get(self, name: str, _default: Plain = None) -> dict[str, Plain]:
        """Return the record of a step, or `NOT_RUN`."""
        return self[name]


def evaluate(names: Names, value: Value) -> Plain:
    """Evaluate a value in a place.

    Args:
        names: The names that its expressions can read.
        value: See `graph`.

    Returns:
        Plain data, with `SecretText` where it names secrets.

    Raises:
        EvaluationError: An expression has no value.
        StepFailure: Arguments are not a map, or contain a name that the flow fixes.
    """
    tag, content = value
    if tag == "const":
        return content
    graph = names.view.graph
    if tag == "expr":
        return graph.evaluate(content, names)
    if tag == "path":
        return at_path(content, names)
    if tag == "map":
        entries = {key: evaluate(names, part) for key, part in content.items()}
        return graph.composed(entries, value) if len(entries) > 1 else entries
    if tag == "list":
        items = [evaluate(names, part) for part in content]
        return graph.composed(items, value) if len(items) > 1 else items
    if tag == "text":
        return graph.composed("".join([text_part(names, part) for part in content]), value)
    if tag == "with":
        given, inner = content
        return evaluate(names.having({"args": evaluate(names, given)}), inner)
    if tag == "arguments":
        return _arguments(names, *content)
    if tag == "given":
        return _given(names, content)
    return SecretText([part if isinstance(part, list) else text_part(names, part)
                       for part in content])  # fmt: skip


def _arguments(names: Names, given: Value, fixed: Value, refused: Value) -> dict[str, Plain]:
    """Evaluate the arguments of one expression, and add those that the flow fixes."""
    value = evaluate(names, given)
    if not isinstance(value, dict):
        what = "a list" if isinstance(value, list) else repr(value)
        message = f"'with' has to give a map, but this is {what}"
        raise StepFailure("ValidationError", message, {"field": "with"})
    for name in evaluate(names, refused):
        if name in value:
            message = f"'with' gives the argument {name!r}, which the tool fixes by its own 'with'"
            raise StepFailure("ValidationError", message, {"field": name})
    return {**value, **evaluate(names, fixed)}


def _given(names: Names, path: list[str]) -> Plain:
    """Evaluate a part of the arguments or input of the step that runs the surrounding flow.

    A main flow has it in its inputs, as evaluated when another execution started it.
    """
    view, act = names.view, names.act
    assert act is not None
    while (unit := group_around(view, act)) is not None:
        act = view.act_of(unit)
    if not view.scope_of(act)["unit"]:
        found: Plain = view.state["inputs"]
        for name in path:
            found = found[name]
        return found
    unit = view.state["units"][view.scope_of(act)["unit"]]
    caller = view.act_of(unit)
    node = view.node(caller)
    value = node.args if node.input is None else node.input
    assert value is not None
    for name in path:
        tag, content = value
        value = content[name] if tag == "map" else [tag, content[name]]
    return evaluate(Names(view, caller, unit), value)


def text_part(names: Names, part: str | int) -> str:
    """Return a part of a template as text: the part itself, or the value of its expression."""
    if isinstance(part, str):
        return part
    graph = names.view.graph
    return graph.text(graph.evaluate(part, names), part)


def holds(names: Names, condition: int) -> bool:
    """Return whether a condition holds. The evaluator guarantees a bool."""
    return bool(names.view.graph.evaluate(condition, names))


# Defaults of inputs that are expressions, evaluated before a flow begins.


def computed_inputs(
    graph: Graph, given: dict[str, Plain], execution: dict[str, Plain], now: int
) -> dict[str, Plain]:
    """Return inputs with computed defaults filled in.

    Args:
        given: The inputs that have a value.
        execution: The `execution` that the expressions read.
        now: Start time of the execution (ms).

    Returns:
        The inputs, given ones first.

    Raises:
        EvaluationError: A default has no value.
    """
    inputs = dict(given)
    fill_computed(before_start(graph, inputs, execution, now), graph.flows[0], inputs)
    return inputs


def before_start(
    graph: Graph, inputs: dict[str, Plain], execution: dict[str, Plain], now: int
) -> Names:
    """Return the names that expressions of a flow see before its execution starts.

    Args:
        inputs: Its inputs, which may still change.
        execution: The `execution` that the expressions read.
        now: Start time of the execution (ms).
    """
    state = new_state()
    state["now"], state["execution"], state["inputs"] = now, execution, inputs
    return Names(Transition(graph, state, None), None)


def inputs_of_message(
    graph: Graph, message: Plain, execution: dict[str, Plain], now: int
) -> dict[str, Plain] | None:
    """Return the inputs with which a message starts an execution.

    Args:
        message: `{name, key, data, id, sent_at, sent_by}`.
        execution: The `execution` that the expressions read.
        now: Start time of the execution (ms).

    Returns:
        The value of `start.with`, or None if this signal does not start the flow.

    Raises:
        EvaluationError: One of the inputs has no value.
    """
    for start in graph.flow.get("start", ()):
        if start.get("signal") == message["name"]:
            return inputs_of_start(graph, start, execution, now, {"signal": message})
    return None


def inputs_of_start(
    graph: Graph,
    start: Mapping[str, Plain],
    execution: dict[str, Plain],
    now: int,
    extra: dict[str, Plain],
) -> dict[str, Plain]:
    """Return the inputs with which an entry of `start` starts an execution.

    Args:
        start: The compiled entry.
        execution: The `execution` that the expressions read.
        now: Start time of the execution (ms).
        extra: Further names that they read.

    Returns:
        The value of `start.with`.

    Raises:
        EvaluationError: One of the inputs has no value.
    """
    names = before_start(graph, {}, execution, now).having(extra)
    return {name: evaluate(names, value) for name, value in start["with"].items()}


def fill_computed(names: Names, flow: GraphFlow, inputs: dict[str, Plain]) -> None:
    """Fill in the computed defaults of a flow, in the order of their dependencies.

    Args:
        names: The names that the defaults can read, including `inputs`.
        inputs: The inputs that have a value. Changed in place.

    Raises:
        EvaluationError: A default has no value.
    """
    for name, value in flow.defaults:
        if name not in inputs:
            inputs[name] = evaluate(names, value)
