"""Puts flows that run one another into one compiled flow, each of them once.

Each flow is compiled by itself, with steps, bodies and expressions numbered from 0. Linking moves
its numbers behind those of the flows before it; so the size of the whole is the sum of its parts,
however deep they run inside one another.
"""

from __future__ import annotations

from typing import Any

from flowengine.flow.hash import CONDITIONS, OPAQUE
from flowengine.kernel.graph import CompiledFlow, FlowSpec

OWN = ("inputs", "state", "limits")
"""Sections that hold no numbers of expressions."""


class Block:
    """Where the numbers of one flow are moved to.

    Args:
        steps: What is added to the number of a step.
        bodies: To that of a body.
        expressions: To that of an expression.
    """

    def __init__(self, steps: int, bodies: int, expressions: int) -> None:
        self.steps = steps
        self.bodies = bodies
        self.expressions = expressions

    def step(self, spec: Any) -> Any:
        """Return a step with its numbers moved, but for the body of a subflow."""
        moved = self._part(spec)
        if spec["body"] >= 0:
            moved["body"] = spec["body"] + self.bodies
        if "child" in spec and spec["action"] != "flow":
            moved["child"] = spec["child"] + self.bodies
        if "compensate" in spec:
            moved["compensate"] = self._to(spec["compensate"])
        if "sources" in spec:
            moved["sources"] = [self._to(one) for one in spec["sources"]]
        if "split" in spec:
            moved["split"] = self._split(spec["split"])
        if "on_error" in spec:
            moved["on_error"] = self._handlers(spec["on_error"])
        if "targets" in spec.get("cancel", {}):
            moved["cancel"]["targets"] = [self._to(one) for one in spec["cancel"]["targets"]]
        return moved

    def body(self, spec: Any) -> Any:
        """Return a body with its numbers moved."""
        moved = {**spec, "owner": self._to(spec["owner"])}
        moved["steps"] = [self._to(one) for one in spec["steps"]]
        moved["start"] = [self._to(one) for one in spec["start"]]
        if "final" in spec:
            moved["final"] = self._to(spec["final"])
        if "output" in spec:
            moved["output"] = self._part(spec["output"])
        return moved

    def declarations(self, flow: Any) -> dict[str, Any]:
        """Return what a flow declares, with its numbers moved."""
        spec: dict[str, Any] = {key: flow[key] for key in OWN if flow.get(key)}
        if flow.get("defaults"):
            spec["defaults"] = [[name, self._part(value)] for name, value in flow["defaults"]]
        for section in ("outputs", "signals"):
            if flow.get(section):
                spec[section] = {name: self._entry(one) for name, one in flow[section].items()}
        if flow.get("on_error"):
            spec["on_error"] = self._handlers(flow["on_error"])
        return spec

    def _entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Move what an output or a signal evaluates; its JSON Schema stays."""
        return {
            key: self._part(one) if key in {"value", "key"} else one for key, one in entry.items()
        }

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
        moved = [self._part(one) for one in handlers]
        for one in moved:
            if "to" in one:
                one["to"] = self._to(one["to"])
        return moved

    def _part(self, node: Any) -> Any:
        """Return a part of a flow with its expressions moved."""
        if isinstance(node, dict):
            return {key: self._keyed(key, one) for key, one in node.items()}
        if not isinstance(node, list):
            return node
        match node:
            case ["const", _]:
                return node
            case ["expr", int(number)]:
                return ["expr", number + self.expressions]
            case ["text" | "secret" as tag, list(parts)]:
                return [
                    tag, [one + self.expressions if isinstance(one, int) else one for one in parts]
                ]  # fmt: skip
            case ["list", list(items)]:
                return ["list", [self._part(one) for one in items]]
            case ["map", dict(entries)]:
                return ["map", {key: self._part(one) for key, one in entries.items()}]
        return [self._part(one) for one in node]

    def _keyed(self, key: str, node: Any) -> Any:
        if key in OPAQUE:
            return node
        if key == "set":
            return [[name, self._part(value)] for name, value in node]
        if key in CONDITIONS and isinstance(node, int):
            return node + self.expressions
        return self._part(node)


def link(flows: list[tuple[str, CompiledFlow]], calls: list[list[tuple[int, int]]]) -> CompiledFlow:
    """Return one compiled flow of several.

    Args:
        flows: Name and compiled form of each; the first is the main one.
        calls: By flow: the number of a step that runs another, and which one of `flows`.

    Returns:
        The main flow, with the others in it.
    """
    (_, main), *others = flows
    whole: Any = dict(main)
    steps, bodies, expressions = whole["steps"], whole["bodies"], whole["expressions"]
    steps, bodies, expressions = list(steps), list(bodies), list(expressions)
    first = [0]
    first_step = [0]
    specs: list[FlowSpec] = []
    for number, (name, flow) in enumerate(others, 1):
        block = Block(len(steps), len(bodies), len(expressions))
        first.append(len(bodies))
        first_step.append(len(steps))
        spec: Any = {"id": name, "body": len(bodies), **block.declarations(flow)}
        steps += [block.step(one) for one in flow["steps"]]
        bodies += [{**block.body(one), "flow": number} for one in flow["bodies"]]
        expressions += flow["expressions"]
        spec["steps"] = [block.steps, len(steps)]
        spec["bodies"] = [block.bodies, len(bodies)]
        spec["expressions"] = [block.expressions, len(expressions)]
        specs.append(spec)
    for caller, called in enumerate(calls):
        for step, number in called:
            at = first_step[caller] + step
            steps[at] = {**steps[at], "child": first[number]}
    if specs:
        whole["flows"] = specs
    whole.update({"steps": steps, "bodies": bodies, "expressions": expressions})
    linked: CompiledFlow = whole
    return linked
