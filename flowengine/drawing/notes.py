"""The text in a box: the action of a step, its join, and its modifiers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from flowengine import registry
from flowengine.flow.expressions.overloads import STANDARD_METHODS
from flowengine.kernel.graph.specs import CompiledFlow, HandlerSpec, StepSpec

LONGEST = 60


def condition(number: int, expressions: Sequence[Any]) -> str:
    """Return a condition as text.

    Args:
        number: Number of its expression.
        expressions: All expressions of the flow.
    """
    return cut(_node(expressions[number]["node"]))


def value(tree: Any, expressions: Sequence[Any]) -> str:
    """Return a value of the compiled flow as text.

    Args:
        tree: See `flowengine.kernel.graph.compiled`.
        expressions: All expressions of the flow.
    """
    kind = tree[0]
    if kind == "const":
        return cut(json.dumps(tree[1], ensure_ascii=False))
    if kind == "expr":
        return condition(tree[1], expressions)
    return "…"


def _node(node: Any) -> str:
    """Return an expression's tree as source text."""
    kind, *rest = node
    if kind == "cel":
        return _fragment(*rest)
    maker = _NODES.get(kind)
    return maker(*rest) if maker else "…"


def _fragment(text: str, slots: Any) -> str:
    """Return a piece of CEL with its slots filled in, and without casts of constants."""
    for name, node in slots.items():
        text = re.sub(rf"\b{name}\b", lambda _, node=node: _node(node), text)  # type: ignore[misc]
    return re.sub(r"\bdyn\(([^()]*)\)", r"\1", text)


def _operation(name: str, nodes: Sequence[Any]) -> str:
    if name in _BINDING and len(nodes) > 1:
        left, right = (_within(node, _BINDING[name] + place) for place, node in enumerate(nodes))
        return f"{left} {name} {right}"
    if name in _BINDING:
        return f"{name}{_operand(nodes[0])}"
    if name in STANDARD_METHODS:
        first, *others = nodes
        return f"{_operand(first)}.{name}({', '.join(map(_node, others))})"
    return f"{name}({', '.join(map(_node, nodes))})"


def _bare(node: Any) -> Any:
    """Return an operand without the types that are declared for it."""
    return _bare(node[1]) if node[0] == "as" else node


def _within(node: Any, binding: int) -> str:
    """Return an operand, in parentheses if it is an operator that binds less than its own."""
    inner = _bare(node)
    is_looser = inner[0] == "op" and _BINDING.get(inner[1], 9) < binding and len(inner[2]) > 1
    return _operand(inner) if is_looser or inner[0] in ("and", "or", "if") else _node(inner)


def _path(root: str, keys: Sequence[Any]) -> str:
    text = root
    for key in keys:
        text += f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_key(key)}]"
    return text


def _key(key: Any) -> str:
    return _node(key[0]) if isinstance(key, list) else json.dumps(key, ensure_ascii=False)


def _loop(name: str, over: Any, variable: str, nodes: Sequence[Any]) -> str:
    return f"{_node(over)}.{name}({', '.join([variable, *map(_node, nodes)])})"


def _null(inner: Any, equal: bool) -> str:
    return f"{_node(inner)} {'==' if equal else '!='} null"


def _compare(sign: str, left: Any, constant: Any, _type: str) -> str:
    return f"{_node(left)} {sign} {_constant(constant)}"


def _constant(constant: Any) -> str:
    return json.dumps(constant, ensure_ascii=False)


def _operand(node: Any) -> str:
    """Return a part of a condition, in parentheses where necessary."""
    text = _node(node)
    simple = ("path", "get", "call", "const", "has", "default", "not", "loop", "list", "map")
    inner = _bare(node)
    is_call = inner[0] == "op" and inner[1] not in _BINDING
    return text if inner[0] in simple or is_call else f"({text})"


def _joined(sign: str) -> Callable[[Sequence[Any]], str]:
    return lambda nodes: f" {sign} ".join(
        _node(node) if node[0] in ("compare", "null", "op") else _operand(node) for node in nodes
    )


_BINDING = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 1),
    **dict.fromkeys(("+", "-"), 2),
    **dict.fromkeys(("*", "/", "%"), 3),
}
"""Operator → how tightly it binds."""

_NODES: dict[str, Any] = {
    "op": _operation,
    "as": lambda node, *_types: _node(node),
    "map": lambda items: f"{{{', '.join(f'{_key(key)}: {_node(node)}' for key, node in items)}}}",
    "const": _constant,
    "compare": _compare,
    "and": _joined("&&"),
    "or": _joined("||"),
    "not": lambda inner: f"!{_operand(inner)}",
    "path": _path,
    "get": lambda base, keys: _path(_node(base), keys),
    "call": lambda name, nodes: f"{name}({', '.join(map(_node, nodes))})",
    "default": lambda nodes: f"default({', '.join(map(_node, nodes))})",
    "has": lambda inner: f"has({_node(inner)})",
    "if": lambda test, yes, no: f"{_node(test)} ? {_node(yes)} : {_node(no)}",
    "list": lambda nodes: f"[{', '.join(map(_node, nodes))}]",
    "null": _null,
    "loop": _loop,
}


def cut(text: str) -> str:
    """Return text that fits into a box or beside an arrow.

    Args:
        text: Any text, also of several lines.
    """
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


class Notes:
    """Describes the steps of a flow in short lines.

    Args:
        flow: As plain data.
    """

    def __init__(self, flow: CompiledFlow) -> None:
        self.flow = flow
        self.steps = flow["steps"]
        self.expressions = flow["expressions"]

    def of(self, step: StepSpec) -> Iterator[str]:
        """Yield the lines about a step below its name, most important first.

        Yields:
            Lines.
        """
        if "says" in step:
            yield from filter(None, (step["says"],))
            return
        for part in (
            self._join, self._when, self._does, self._asks, self._map, self._loop, self._lock,
            self._bounds, self._writes, self._handlers,
        ):  # fmt: skip
            if "caller" not in step or part not in (self._lock, self._writes, self._handlers):
                yield from part(step)

    def _handlers(self, step: StepSpec) -> Iterator[str]:
        yield from self.handlers(step.get("on_error", []), "on")

    def action(self, step: StepSpec) -> str:
        """Return the text about a step's action.

        Args:
            step: The step, or its compensation.
        """
        if step["action"] == "flow":
            number = self.flow["bodies"][step["child"]].get("flow", 0)
            if step.get("kind", "flow") != "flow":  # one that was generated
                return f"{step['kind']} {self.flow['flows'][number - 1]['id'].partition('.')[2]}"
            return f"flow {self.flow['flows'][number - 1]['id'] if number else self.flow['id']}"
        return registry.label(step.get("kind", step["action"]), step.get("task", {}))

    def trigger(self, step: StepSpec) -> str:
        """Return the text about a step's trigger.

        Args:
            step: A step with a trigger.
        """
        trigger = step["trigger"]
        if "state" in trigger:
            return f"write to {trigger['state']}"
        names = (" and " if trigger.get("all") else " or ").join(trigger["signals"])
        match = f" if {self._condition(trigger['match'])}" if "match" in trigger else ""
        return f"{names}{match}{', transient' if trigger.get('transient') else ''}"

    def handlers(self, handlers: Iterable[HandlerSpec], word: str) -> Iterator[str]:
        """Yield the handlers of errors that lead to no other step.

        Args:
            word: Start of a line.

        Yields:
            Lines.
        """
        what = {
            "output": "continue",
            "fail": "raise another",
            "continue": "continue",
            "raise": "undo",
        }
        for handler in handlers:
            if handler.get("do") == "next":
                continue
            types = ", ".join(handler.get("types", [])) or "error"
            then = what[handler.get("do", "raise")]
            undo = "undo, " if handler.get("compensate") and then != "undo" else ""
            yield f"{word} {types}: {undo}{then}"

    def _condition(self, number: int) -> str:
        return condition(number, self.expressions)

    def _value(self, tree: Any) -> str:
        text = value(tree, self.expressions)
        return text.strip('"') if tree[0] == "const" else text

    def _join(self, step: StepSpec) -> Iterator[str]:
        join = step.get("join")
        if join is None:
            return
        if join["kind"] != "count":
            yield f"join {join['kind']}"
            return
        late = f", late {join['late']}" if "late" in join else ""
        yield f"join {self._value(join['need'])}{late}"

    def _when(self, step: StepSpec) -> Iterator[str]:
        if "when" in step:
            yield f"when {self._condition(step['when'])}"

    def _does(self, step: StepSpec) -> Iterator[str]:
        action = step["action"]
        if action == "wait":
            yield from self._wait(step)
        elif action == "cancel":
            yield self._cancel(step)
        elif action in ("task", "approval", "fail", "flow"):
            yield self.action(step)

    def _asks(self, step: StepSpec) -> Iterator[str]:
        if "approval" in step:
            tag, parts = step["approval"]
            when = parts.get("when") if tag == "map" else None
            if when is not None and when[0] == "expr":
                yield f"asks first if {self._condition(when[1])}"
            else:
                yield "asks first"

    def _wait(self, step: StepSpec) -> Iterator[str]:
        alternatives = step["wait"]["alternatives"]
        if len(alternatives) == 1:
            yield f"wait {self._awaited(alternatives[0])}"
            return
        yield f"wait, {step['wait']['mode']} of"
        for alternative in alternatives:
            yield f"{alternative['id']}: {self._awaited(alternative)}"

    def _awaited(self, alternative: Any) -> str:
        """Return the text about an alternative of a wait."""
        if "after" in alternative:
            return f"for {self._value(alternative['after'])}"
        if "until" in alternative:
            return f"until {self._value(alternative['until'])}"
        if "when" in alternative:
            return f"when {self._condition(alternative['when'])}"
        count = f", {self._value(alternative['count'])} times" if "count" in alternative else ""
        match = f" if {self._condition(alternative['match'])}" if "match" in alternative else ""
        transient = ", transient" if alternative.get("transient") else ""
        return f"signal {alternative['signal']}{match}{count}{transient}"

    def _cancel(self, step: StepSpec) -> str:
        cancel = step["cancel"]
        names = [self.steps[target]["id"] for target in cancel.get("targets", [])]
        outcome = cancel["outcome"]
        how = f" as {outcome}" if outcome != "cancelled" else ""
        return f"cancels {', '.join(names) or 'the execution'}{how}"

    def _map(self, step: StepSpec) -> Iterator[str]:
        if "map" not in step:
            return
        spec = step["map"]
        name = (spec.get("names") or ["item"])[0]
        at_once = f", {self._value(spec['concurrency'])} at once" if "concurrency" in spec else ""
        yield f"map {name} in {self._value(spec['over'])}{at_once}"
        if spec.get("each"):
            yield "each item continues on its own"
        if "need" in spec:
            late = f", late {spec['late']}" if "late" in spec else ""
            yield f"join {self._value(spec['need'])}{late}"
        if "more" in spec:
            yield f"more items by {spec['more']}"

    def _loop(self, step: StepSpec) -> Iterator[str]:
        if "loop" not in step:
            return
        loop = step["loop"]
        word = "until" if "until" in loop else "while"
        tested = loop["until"] if "until" in loop else loop["before"]
        every = f", every {self._value(loop['every'])}" if "every" in loop else ""
        yield f"loop {word} {self._condition(tested)}, max {self._value(loop['max'])}{every}"

    def _lock(self, step: StepSpec) -> Iterator[str]:
        if "lock" in step:
            lock = step["lock"]
            permits = lock["permits"]
            many = f", {permits} at once" if permits != 1 else ""
            yield f"lock {self._value(lock['key'])}{many}"

    def _bounds(self, step: StepSpec) -> Iterator[str]:
        if "needs" in step:
            yield f"needs {', '.join(step['needs'])}"
        attempts = step.get("retry", {}).get("attempts", 1)
        if attempts != 1:
            yield f"retry {attempts}"
        if "timeout" in step:
            yield f"timeout {self._value(step['timeout'])}"
        if "deadline" in step:
            yield f"deadline {self._value(step['deadline'])}"

    def _writes(self, step: StepSpec) -> Iterator[str]:
        if step.get("set"):
            yield f"sets {', '.join(key for key, _value in step['set'])}"
        if step.get("emit"):
            yield f"emits {', '.join(item['signal'] for item in step['emit'])}"
