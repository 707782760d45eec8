"""Small compiled flows written in Python, for tests of the kernel that need no flow file.

    graph(step("a", next="b"), step("b", join="all"))

Expressions are Python functions of the names: `x(lambda names: names["inputs"]["n"] > 1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from flowengine.flow.compile.link import last_readers
from flowengine.flow.models import Retry
from flowengine.kernel import Graph
from flowengine.kernel.graph.compiled import (
    END,
    END_ALL,
    FORMAT,
    OPENING,
    START,
    TRIGGER,
    Plain,
    ReadableNames,
)
from flowengine.kernel.graph.specs import CompiledFlow

Expression = Callable[[ReadableNames], Plain]


class Functions:
    """An evaluator whose expressions are Python functions."""

    version = "functions"

    def __init__(self, functions: list[Expression]) -> None:
        self.functions = functions

    def evaluate(self, expression: int, names: ReadableNames) -> Plain:
        """Return the result of the function."""
        return self.functions[expression](names)

    def text(self, value: Plain, expression: int) -> str:
        """Return a value as text."""
        return str(value)

    def composed(self, value: Plain, tree: Plain) -> Plain:
        """Return a list, a map or a text with values of expressions."""
        return value


class X:
    """An expression inside the description of a step.

    Args:
        function: Returns its value.
        reads: The steps that it refers to.
    """

    def __init__(self, function: Expression, reads: tuple[str, ...] = ()) -> None:
        self.function = function
        self.reads = reads


def x(function: Expression) -> X:
    """Return an expression that refers to no step."""
    return X(function)


def output_of(step: str) -> X:
    """Return the expression `steps.STEP.output`."""
    return X(lambda names: names["steps"][step]["output"], (step,))


Described = dict[str, Any]
DEFAULTS: Described = {
    "retry": {name: part for name, part in Retry() if part is not None}, "loop": {"backoff": 1},
    "lock": {"permits": 1}, "map": {"on_item_error": "stop"}, "cancel": {"outcome": "cancelled"},
}  # fmt: skip
"""Key of a step → what the compiler writes there if the file does not say it."""


def step(id: str, **keys: Any) -> Described:
    """Describe a step.

    Args:
        id: Its name.
        keys: As in `graph.StepSpec`, and:
            `next`: a name, `end`, `end_all`, or a dict with `outcome`, or with `all` or `first` and
            a list of names or `(condition, name)`, where a condition may be `"else"`.
            `join`: a word or a number, perhaps with `late`.
            `group`: steps of a child body. `parallel`: the same, all started at once.
            `finally_`: the steps that clean up after either.
            `undo`: the name of a hidden step. `trigger`: that of a step of the flow itself.
            Without `action`, a step is a task, or a group if it has one.

    Returns:
        The description.
    """
    return {"id": id, **keys}


def needs(uses: dict[str, Described], given: Any = None) -> Described:
    """Return the keys of a task that needs environments.

    Args:
        uses: Name → `scope`, perhaps `approval` and further keys of the spec.
        given: The input of the task.
    """
    environments = {}
    for name, use in uses.items():
        spec = {"kind": "toy", "resource_key": name}
        spec |= {key: value for key, value in use.items() if key not in ("scope", "approval")}
        environments[name] = {"scope": use.get("scope", "execution"), "spec": spec}
        if "approval" in use:
            environments[name]["approval"] = use["approval"]
    parts: Described = {"input": v(given), "environments": ["map", _values(environments)]}
    asks = any("approval" in use for use in uses.values())
    return {"environments": True, "asks": asks, "input": ["map", parts]}


def calls(tool: str, args: Any, **fields: Any) -> Described:
    """Return the keys of a task or subflow that needs an approval before it is called.

    Args:
        tool: Name of the tool.
        args: Its arguments.
        fields: Fields of the approval, and `bind`, `edit`, `when`, `schema`, `version`.
    """
    choices = [
        {"id": "approve", "counts_as": "approve"},
        {"id": "reject", "counts_as": "reject"},
        {"id": "respond", "counts_as": "other"},
    ]
    texts: Described = {
        "version": "1",
        "required": False,
        "schema": None,
        "returns": None,
        "bind": {},
        "edit": True,
    }
    texts |= {key: fields.pop(key) for key in [*texts, "when"] if key in fields}
    parts = {"tool": tool, **texts, "fields": {"choices": choices, **fields}}
    return {"args": v(args), "approval": ["map", _values(parts)]}


def _values(data: Described) -> Described:
    return {name: v(value) for name, value in data.items()}


class _Builder:
    def __init__(self) -> None:
        self.steps: list[Described] = []
        self.bodies: list[Described] = []
        self.functions: list[Expression] = []
        self.readers: dict[str, list[int]] = {}
        """Step → the numbers of the expressions that refer to it."""
        self.flows = 0

    def body(self, described: list[Described], kind: str, owner: int, parallel: bool) -> int:
        number = len(self.bodies)
        body: Described = {"kind": kind, "owner": owner}
        self.bodies.append(body)
        indexes: dict[str, int] = {}
        for plan in described:
            indexes[plan["id"]] = len(self.steps)
            self.steps.append({"id": plan["id"], "body": number, "sources": []})
            self._children(plan, indexes[plan["id"]])
        for position, plan in enumerate(described):
            default = described[position + 1]["id"] if position + 1 < len(described) else "end"
            self._fill(plan, indexes, "end" if parallel else default)
        start = list(indexes.values()) if parallel else [indexes[described[0]["id"]]]
        for index in start:
            self.steps[index]["sources"].insert(0, START)
        body.update({"start": start, "steps": list(indexes.values())})
        if parallel:
            parts = {n: ["expr", self._expression(output_of(n))] for n in indexes}
            body["output"] = ["map", parts]
        elif kind == "group":
            last = described[-1]["id"]
            body["output"] = ["expr", self._expression(output_of(last))]
        return number

    def subflow(self, name: str, described: Described) -> Described:
        """Add a flow that steps run, and return its declaration."""
        first, number = [len(self.steps), len(self.bodies)], self.flows + 1
        self.flows = number
        body = self.body(described["steps"], "flow", -1, False)
        if described.get("finally_"):
            self.final(body, described["finally_"], -1)
        self.opens(body, described.get("opens"))
        for given_body in self.bodies[first[1] :]:
            given_body["flow"] = number
        indexes = self.indexes()
        spec: Described = {"id": name, "body": body, "steps": [first[0], len(self.steps)]}
        spec |= {"bodies": [first[1], len(self.bodies)], "expressions": [0, 0]}
        spec["on_error"] = [self.handler(h, indexes) for h in described.get("on_error", ())]
        self.lead_back(described.get("on_error", ()), indexes)
        for key, value in described.items():
            if key == "outputs":
                spec[key] = {n: {"value": self.resolved(o)} for n, o in value.items()}
            elif key not in ("steps", "on_error", "finally_", "opens"):
                spec[key] = self.resolved(value)
        return spec

    def indexes(self) -> dict[str, int]:
        """Return the numbers of the steps that tokens enter, by name."""
        return {plan["id"]: i for i, plan in enumerate(self.steps) if plan["body"] >= 0}

    def lead_back(self, handlers: Iterable[Described], indexes: dict[str, int]) -> None:
        """Add the edges from the start of a flow to the targets of its handlers."""
        for index in [indexes[handler["to"]] for handler in handlers if "to" in handler]:
            if START not in self.steps[index]["sources"]:
                self.steps[index]["sources"].insert(0, START)

    def _children(self, plan: Described, index: int) -> None:
        for word in ("group", "parallel"):
            if word in plan:
                child = self.body(plan[word], "group", index, word == "parallel")
                self.steps[index].update({"action": "group", "child": child})
                if "finally_" in plan:
                    self.final(child, plan["finally_"], index)
        if "undo" in plan:
            self.steps[index]["compensate"] = len(self.steps)
            self.steps.append(
                {"id": plan["undo"], "body": -1, "action": "task", "effect": "idempotent",
                 "input": ["expr", self._expression(X(lambda names: names["output"]))]}
            )  # fmt: skip

    def final(self, body: int, described: list[Described], owner: int) -> None:
        """Add the `finally` of a body: a hidden step with a group."""
        child = self.body(described, "finally", owner, False)
        self.bodies[body]["final"] = len(self.steps)
        name = self.steps[owner]["id"] if owner >= 0 else "finally"
        self.steps.append(
            {"id": name, "body": -1, "action": "group", "child": child, "timeout": ["const", "5m"]}
        )

    def opens(self, body: int, uses: dict[str, Described] | None) -> None:
        """Add the hidden step that opens environments at the start of a flow."""
        if uses:
            self.bodies[body]["opens"] = len(self.steps)
            keys = self.resolved(needs(uses))
            self.steps.append(
                {
                    "id": OPENING,
                    "body": -1,
                    "action": "task",
                    "kind": OPENING,
                    "effect": "idempotent",
                    **keys,
                }
            )

    def _fill(self, plan: Described, indexes: dict[str, int], default: str) -> None:
        spec = self.steps[indexes[plan["id"]]]
        spec.setdefault("action", "task")
        spec.setdefault("effect", "pure")
        spec["named"] = ["output", "status", "outcome", "error", "items"]
        spec["carries"] = True
        spec["split"] = self._split(plan.get("next", default), indexes)
        for key, given in plan.items():
            value = {**DEFAULTS[key], **given} if key in DEFAULTS else given
            if key == "join":
                spec["join"] = self._join(value)
            elif key == "on_error":
                spec["on_error"] = [self.handler(h, indexes) for h in value]
            elif key == "cancel":
                spec["cancel"] = {**value, "targets": [self._index(t) for t in value["targets"]]}
            elif key not in ("id", "next", "group", "parallel", "undo", "finally_"):
                spec[key] = self.resolved(value)
        if "trigger" in spec:
            spec["sources"].append(TRIGGER)
        for target in self._targets(spec):
            if target >= 0 and indexes[plan["id"]] not in self.steps[target]["sources"]:
                self.steps[target]["sources"].append(indexes[plan["id"]])

    def _index(self, name: str) -> int:
        return next(i for i, s in enumerate(self.steps) if s["id"] == name)

    def _join(self, value: Any) -> Described:
        if isinstance(value, dict):
            return {"kind": "count", **value, "need": self._value(value["need"])}
        if isinstance(value, int):
            return {"kind": "count", "need": ["const", value], "late": "ignore"}
        return {"kind": value}

    def _split(self, next_: Any, indexes: dict[str, int]) -> Described:
        def to(name: str) -> int:
            return {"end": END, "end_all": END_ALL}.get(name, indexes.get(name, END))

        if isinstance(next_, str):
            return {"kind": "one", "to": to(next_)}
        ((kind, ways),) = next_.items()
        if kind == "outcome":
            outcomes = {name: to(target) for name, target in ways.items() if name != "else"}
            rest = {"otherwise": to(ways["else"])} if "else" in ways else {}
            return {"kind": kind, "outcomes": outcomes, **rest}
        entries = []
        for way in ways:
            if isinstance(way, str):
                entries.append({"to": to(way)})
            elif way[0] == "else":
                entries.append({"to": to(way[1]), "otherwise": True})
            else:
                entries.append({"to": to(way[1]), "when": self._expression(X(way[0]))})
        return {"kind": kind, "entries": entries}

    def handler(self, handler: Described, indexes: dict[str, int]) -> Described:
        made = {k: self.resolved(v) for k, v in handler.items() if k != "to"}
        if "to" in handler:
            made["to"] = indexes[handler["to"]]
        return made

    def _targets(self, spec: Described) -> list[int]:
        split = spec["split"]
        targets = [split["to"]] if "to" in split else []
        targets += [entry["to"] for entry in split.get("entries", ())]
        targets += [*split.get("outcomes", {}).values()]
        targets += [split["otherwise"]] if "otherwise" in split else []
        return targets + [h["to"] for h in spec.get("on_error", ()) if "to" in h]

    def _expression(self, expression: X) -> int:
        number = len(self.functions)
        self.functions.append(expression.function)
        for name in expression.reads:
            self.readers.setdefault(name, []).append(number)
        return number

    def _value(self, value: Any) -> list[Any]:
        return ["expr", self._expression(value)] if isinstance(value, X) else ["const", value]

    def resolved(self, value: Any) -> Any:
        """Replace the expressions of a description by their numbers."""
        if isinstance(value, X):
            return self._expression(value)
        if isinstance(value, V):
            return self._value(value.value)
        if isinstance(value, dict):
            return {k: self.resolved(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.resolved(v) for v in value]
        return value


class V:
    """A value inside the description of a step: data, or an expression."""

    def __init__(self, value: Any) -> None:
        self.value = value


def v(value: Any) -> V:
    """Return a value."""
    return V(value)


def graph(
    *steps: Described,
    on_error: list[Described] | None = None,
    finally_: list[Described] | None = None,
    flows: dict[str, Described] | None = None,
    opens: dict[str, Described] | None = None,
    **flow: Any,
) -> Graph:
    """Build a graph.

    Args:
        steps: See `step`.
        on_error: Handlers of the flow.
        finally_: Steps that clean up after the flow.
        flows: Flows that steps run (`action="flow"`, `flow=` its name): `steps`, and perhaps
            `on_error`, `finally_`, `opens`, keys of `FlowSpec`. Ids of steps are unique overall.
        opens: Environments that are to be open from the start, as `needs` takes them.
        flow: Further keys of `CompiledFlow`: `outputs` (name → `v(...)`), `state`, `limits`, ...

    Returns:
        The graph, linked.
    """
    builder = _Builder()
    builder.body(list(steps), "flow", -1, False)
    if finally_:
        builder.final(0, finally_, -1)
    builder.opens(0, opens)
    subflows = [builder.subflow(name, value) for name, value in (flows or {}).items()]
    for spec in builder.steps:
        if "flow" in spec:
            spec["child"] = next(
                subflow["body"] for subflow in subflows if subflow["id"] == spec["flow"]
            )
    indexes = builder.indexes()
    builder.lead_back(on_error or (), indexes)
    compiled: Described = {"id": "test", "version": "0", "format": FORMAT}
    compiled["on_error"] = [builder.handler(h, indexes) for h in on_error or ()]
    for key, value in flow.items():
        if key == "outputs":
            compiled[key] = {n: {"value": builder.resolved(o)} for n, o in value.items()}
        else:
            compiled[key] = builder.resolved(value)
    triggered = [index for index, plan in enumerate(builder.steps) if "trigger" in plan]
    if triggered:
        compiled["triggered"] = triggered
    if subflows:
        compiled["flows"] = subflows
    compiled.update({"bodies": builder.bodies, "steps": builder.steps, "expressions": []})
    readers = {indexes[name]: numbers for name, numbers in builder.readers.items()}
    for last, others in last_readers(cast(CompiledFlow, compiled), readers).items():
        builder.steps[last]["forgets"] = others
    return Graph(cast(CompiledFlow, compiled), Functions(builder.functions))
