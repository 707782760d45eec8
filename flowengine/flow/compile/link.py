"""Linking of flows that run each other into one compiled flow, each included once.

Each flow is compiled separately, with steps, bodies and expressions numbered from 0. Linking shifts
its numbers behind those of the flows before it. The size of the whole is therefore the sum of its
parts, at any nesting depth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from flowengine.flow.structural_hash import CONSTANT, ExpressionPlaces
from flowengine.kernel.graph import environment_uses
from flowengine.kernel.graph.linked import may_repeat
from flowengine.kernel.graph.specs import CompiledFlow

OWN = ("inputs", "state", "limits", "counts_alone", "budget", "result", "end_notices")
"""Sections without numbers of expressions."""
RANGES = ("steps", "bodies", "expressions")
"""Sections that are concatenated."""


class Block:
    """The offsets of one flow's numbers.

    Args:
        steps: Offset of step numbers.
        bodies: Offset of body numbers.
        expressions: Offset of expression numbers.
    """

    def __init__(self, steps: int, bodies: int, expressions: int) -> None:
        self.steps = steps
        self.bodies = bodies
        self.expressions = expressions
        self._part = ExpressionPlaces(lambda number: number + expressions).part

    def step(self, spec: Any) -> Any:
        """Return a step with its numbers shifted, except for the body of a subflow."""
        moved = self._part(spec)
        if spec["body"] >= 0:
            moved["body"] = spec["body"] + self.bodies
        if "child" in spec and spec["action"] != "flow":
            moved["child"] = spec["child"] + self.bodies
        if "exchange" in spec:
            callees = spec["exchange"]["callees"].items()
            shifted = {name: self._to(number) for name, number in callees}
            moved["exchange"] = {**spec["exchange"], "callees": shifted}
        if "compensate" in spec:
            moved["compensate"] = self._to(spec["compensate"])
        for key in {"sources", "forgets"} & spec.keys():
            moved[key] = [self._to(other) for other in spec[key]]
        if "split" in spec:
            moved["split"] = self._split(spec["split"])
        if "on_error" in spec:
            moved["on_error"] = self._handlers(spec["on_error"])
        if "targets" in spec.get("cancel", {}):
            moved["cancel"]["targets"] = [self._to(target) for target in spec["cancel"]["targets"]]
        return moved

    def body(self, spec: Any) -> Any:
        """Return a body with its numbers shifted."""
        moved = {**spec, "owner": self._to(spec["owner"])}
        moved["steps"] = [self._to(step) for step in spec["steps"]]
        moved["start"] = [self._to(step) for step in spec["start"]]
        for key in {"final", "opens"} & spec.keys():
            moved[key] = self._to(spec[key])
        if "output" in spec:
            moved["output"] = self._part(spec["output"])
        return moved

    def declarations(self, flow: Any) -> dict[str, Any]:
        """Return the declarations of a flow with their numbers shifted."""
        spec: dict[str, Any] = {key: flow[key] for key in OWN if flow.get(key)}
        for section in ("defaults", "outputs", "signals", "outcome", "shared_budgets"):
            if flow.get(section):
                spec[section] = self._part(flow[section], section)
        if flow.get("triggered"):
            spec["triggered"] = [self._to(one) for one in flow["triggered"]]
        if flow.get("on_error"):
            spec["on_error"] = self._handlers(flow["on_error"])
        return spec

    def _to(self, step: int) -> int:
        return step + self.steps if step >= 0 else step

    def _split(self, split: Any) -> Any:
        moved = self._part(split)
        for key in ("to", "otherwise"):
            if key in split:
                moved[key] = self._to(split[key])
        if "outcomes" in split:
            moved["outcomes"] = {name: self._to(to) for name, to in split["outcomes"].items()}
        for entry in moved.get("entries", ()):
            entry["to"] = self._to(entry["to"])
        return moved

    def _handlers(self, handlers: Any) -> Any:
        moved = [self._part(handler) for handler in handlers]
        for steps in moved:
            if "to" in steps:
                steps["to"] = self._to(steps["to"])
        return moved


def link(
    flows: list[tuple[str, CompiledFlow]],
    calls: list[list[tuple[int, int]]],
    notified: list[list[int]],
) -> CompiledFlow:
    """Link several flows into one compiled flow.

    Args:
        flows: Name and compiled form of each. The first is the main one.
        calls: By flow: the number of a step that runs another flow, and its index in `flows`.
        notified: By flow: the indexes of those that send its notifications.

    Returns:
        The main flow, with the others in it.
    """
    parts = []
    for (name, flow), called, sends in zip(flows, calls, notified, strict=True):
        steps = list(flow["steps"])
        for step, number in called:
            steps[step] = _running(steps[step], number)
        bodies, expressions = flow["bodies"], flow["expressions"]
        parts.append(_Part(name, flow, steps, bodies, expressions, Block(0, 0, 0), sends))
    return _joined({**flows[0][1]}, parts)


def alone(flow: CompiledFlow, number: int) -> CompiledFlow:
    """Return one of the flows of a compiled flow as a main flow, with those that it runs.

    Args:
        number: Number of the flow, 0 for the main one.

    Returns:
        A compiled flow.
    """
    specs: list[Any] = [_main_spec(flow), *flow.get("flows", [])]
    order = [number]
    for definition in order:  # the list grows during the loop
        first, end = specs[definition]["steps"]
        called = [_called(flow, step) for step in flow["steps"][first:end]]
        called += specs[definition].get("notifies", ())
        order += [other for other in dict.fromkeys(called) if other >= 0 and other not in order]
    parts = []
    for definition in order:
        spec = specs[definition]
        (step, steps), (body, bodies), (start, end) = (
            spec[key] for key in ("steps", "bodies", "expressions")
        )
        own = [
            inner if (run := _called(flow, inner)) < 0 else _running(inner, order.index(run))
            for inner in flow["steps"][step:steps]
        ]
        inside = [{k: v for k, v in b.items() if k != "flow"} for b in flow["bodies"][body:bodies]]
        back = Block(-step, -body, -start)
        sends = [order.index(recipient) for recipient in spec.get("notifies", ())]
        expressions = flow["expressions"][start:end]
        parts.append(_Part(spec["id"], spec, own, inside, expressions, back, sends))
    kept = ("format", "secrets")
    whole: Any = {key: flow[key] for key in kept if key in flow}  # type: ignore[literal-required]
    whole |= {"id": specs[number]["id"], "version": specs[number]["version"]}
    whole |= parts[0].block.declarations(specs[number])
    return _joined(whole, parts)


def _main_spec(flow: CompiledFlow) -> dict[str, Any]:
    """Return the main flow in the form of a subflow's description."""
    others = flow.get("flows", [])
    lengths = {key: len(flow[key]) for key in RANGES}  # type: ignore[literal-required]
    first = {key: others[0][key][0] if others else lengths[key] for key in RANGES}  # type: ignore[literal-required]
    return {**flow, **{key: [0, first[key]] for key in RANGES}}


def _called(flow: CompiledFlow, step: Any) -> int:
    """Return the number of the flow that a step runs, or -1."""
    if step.get("action") == "flow":
        body: Any = flow["bodies"][step["child"]]
        return int(body.get("flow", 0))
    number: int = step["task"]["flow"] if step.get("kind") == "flow" else -1
    return number


def _running(step: Any, number: int) -> Any:
    """Return a step that runs a flow, with the flow's number in place of its body."""
    if step["action"] == "flow":
        return {**step, "child": number}
    return {**step, "task": {**step["task"], "flow": number}}


class _Part(NamedTuple):
    """One flow to be joined with others. Steps that run flows have their numbers as `child`."""

    name: str
    flow: Any
    steps: list[Any]
    bodies: list[Any]
    expressions: list[Any]
    block: Block
    """Shifts its numbers back to 0."""
    notifies: list[int]
    """The flows that send its notifications."""


def _joined(whole: Any, parts: list[_Part]) -> CompiledFlow:
    """Concatenate flows. The first is the main one."""
    steps: list[Any] = []
    bodies: list[Any] = []
    expressions: list[Any] = []
    specs: list[Any] = []
    first_body: list[int] = []
    for number, part in enumerate(parts):
        back = part.block
        block = Block(
            back.steps + len(steps), back.bodies + len(bodies), back.expressions + len(expressions)
        )
        starts = [len(steps), len(bodies), len(expressions)]
        first_body.append(len(bodies))
        steps += [block.step(step) for step in part.steps]
        mark = {"flow": number} if number else {}
        bodies += [{**block.body(body), **mark} for body in part.bodies]
        expressions += part.expressions
        ends = [len(steps), len(bodies), len(expressions)]
        spec: dict[str, Any] = {"id": part.name, "version": part.flow["version"]}
        spec |= {"body": starts[1], **block.declarations(part.flow)}
        if part.notifies:
            spec["notifies"] = part.notifies
        specs.append(
            spec | dict(zip(RANGES, map(list, zip(starts, ends, strict=True)), strict=True))
        )
    for step in steps:
        if step.get("action") == "flow":
            step["child"] = first_body[step["child"]]
    if specs[1:]:
        whole["flows"] = specs[1:]
    if parts[0].notifies:
        whole["notifies"] = parts[0].notifies
    if parts[0].flow.get("triggered"):
        whole["triggered"] = specs[0]["triggered"]
    whole.update({"steps": steps, "bodies": bodies, "expressions": expressions})
    uses = [use for step in steps for use in environment_uses.of_step(step)]
    if uses:
        whole["environments"] = sorted({*environment_uses.scopes(uses)})
    linked: CompiledFlow = whole
    return linked


# The last step that uses the output of another one, after which the state drops that output.
#
# Only steps in the flow's own list are considered, and only if no token returns to them: a step
# that has ended is then never evaluated again for its token. Outputs used by the flow as a whole
# (its outputs, its handlers, `finally`, compensations) are kept to the end.


def last_readers(
    flow: CompiledFlow, readers: Mapping[int, Collection[int]]
) -> dict[int, list[int]]:
    """Return the steps that are the last to use others, each with those others.

    Args:
        flow: The flow, compiled separately.
        readers: Step → the numbers of all expressions that use it.
    """
    steps, bodies = flow["steps"], flow["bodies"]
    body = bodies[0]["steps"]
    leads_back = any("to" in handler for handler in flow.get("on_error", ()))
    if leads_back or may_repeat(body, steps):
        return {}
    places = {
        number: step
        for step in body
        for spec in _with_inner(flow, step)
        for number in expressions_in(spec)
    }
    inside = {inner["id"] for step in body for inner in _with_inner(flow, step)}
    beside = [step for step in steps if step["id"] not in inside or step.get("body", -1) < 0]
    apart = ("steps", "expressions", *CONSTANT)
    whole = {key: part for key, part in flow.items() if key not in apart}
    kept = {*expressions_in(beside), *expressions_in(whole)}
    found: dict[int, list[int]] = {}
    for step in body:
        named = readers.get(step, ())
        if named and all(number in places and number not in kept for number in named):
            found.setdefault(max(places[number] for number in named), []).append(step)
    return found


def _with_inner(flow: CompiledFlow, step: int) -> Iterator[Mapping[str, Any]]:
    """Yield a step and those of the groups inside it."""
    spec = flow["steps"][step]
    yield spec
    if spec.get("action") == "group":  # there is none if it has errors, which are reported
        for inner in flow["bodies"][spec["child"]]["steps"]:
            yield from _with_inner(flow, inner)


def expressions_in(node: Any) -> list[int]:
    """Return the numbers of the expressions in a part of the compiled form."""
    numbers: list[int] = []
    ExpressionPlaces(numbers.append).part(node)
    return numbers
