"""The structural hash: the meaning of a flow, not the form of its file.

Two files with the same hash define the same flow. The hash does not include comments, blanks,
quotes, the order of keys, or the name and place of the file. A waiting execution therefore
continues with a file that was only reformatted, and a changed flow is detected.

The hash is that of the compiled form without places, with keys sorted, and with each expression in
place of its number: numbers follow the order of the file.

A store needs a finer distinction, since executions run the form that it returns. The same text in
two directories has the same meaning but runs different Python modules, and host rules refer to the
names of tools. `form_hash` includes both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from flowengine.kernel.graph.specs import CompiledFlow

CONDITIONS = frozenset({"when", "until", "before", "match"})
"""Keys of specs whose int is the number of an expression."""
OPAQUE = frozenset({"task", "meters", "adapter", "raises", "names", "named", "forgets", "sources",
                    "outcomes", "exchange"})  # fmt: skip
"""Keys of specs that hold no expressions."""
PAIRS = frozenset({"set", "defaults"})
"""Keys whose pairs of name and value are evaluated as if at once, in any order."""
DECLARED = frozenset({"outputs", "signals"})
"""Keys of declarations by name. Only `value` and `key` of a declaration are values, and the rest is
plain data, such as a JSON Schema."""
PLACES = frozenset({"at", "tool", "declared", "teller", "says", "ahead"})
"""Keys for positions, names, descriptions, and parts that may be loaded early."""
CONSTANT = ("inputs", "state", "secrets", "environments", "limits", "budget")
"""Sections that hold no numbers of expressions where they hold plain data."""


class ExpressionPlaces:
    """A walk through parts of a compiled flow, to put something else in place of expressions.

    Args:
        put: Returns what replaces the number of an expression.
    """

    def __init__(self, put: Callable[[int], Any]) -> None:
        self._put = put

    def part(self, node: Any, key: str = "") -> Any:
        """Return a part with its expressions replaced.

        Args:
            node: The part.
            key: The key that it has in a spec, if any.
        """
        if isinstance(node, str) or key in OPAQUE:
            return node
        if key in CONDITIONS and isinstance(node, int):
            return self._put(node)
        if key in PAIRS:
            return self.pairs([[name, self.part(value)] for name, value in node])
        if key in DECLARED and isinstance(node, dict):
            return {name: self._declaration(spec) for name, spec in node.items()}
        if isinstance(node, dict):
            return {inner: self.part(value, "" if key == "with" else inner)
                    for inner, value in node.items()}  # fmt: skip
        match node:
            case ["const" | "given", _]:
                return node
            case ["expr", int(number)]:
                return ["expr", self._put(number)]
            case ["text" | "secret" as tag, list(parts)]:
                return [tag, [self._put(p) if isinstance(p, int) else self.text(p) for p in parts]]
            case ["map", dict(entries)]:
                return ["map", {name: self.part(value) for name, value in entries.items()}]
            case list():
                return [self.part(item) for item in node]
        return node

    def pairs(self, pairs: list[list[Any]]) -> list[list[Any]]:
        """Return pairs of name and value."""
        return pairs

    def text(self, part: Any) -> Any:
        """Return a part of a template that is not an expression."""
        return part

    def _declaration(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {k: self.part(v) if k in ("value", "key") else v for k, v in spec.items()}


class _Meaning(ExpressionPlaces):
    """Has the same result for parts with the same meaning."""

    def pairs(self, pairs: list[list[Any]]) -> list[list[Any]]:
        return sorted(pairs)

    def text(self, part: Any) -> Any:
        return [part]


def structural_hash(compiled: CompiledFlow) -> str:
    """Return the hash of a compiled flow.

    Args:
        compiled: The flow in plain form.

    Returns:
        SHA-256, in hexadecimal digits.
    """
    expressions = [_digest(_without_place(one)) for one in compiled["expressions"]]
    return _digest(meaning(compiled, expressions))


def meaning(compiled: CompiledFlow, expressions: list[str]) -> dict[str, Any]:
    """Return a compiled flow without places, with its expressions in place of their numbers.

    Args:
        compiled: The flow in plain form.
        expressions: The text that stands for each expression.
    """
    places = _Meaning(expressions.__getitem__)
    whole = _declarations({**compiled, "steps": [], "expressions": []}, places)
    whole["steps"] = [_step(step, places) for step in compiled["steps"]]
    if "flows" in compiled:
        # their steps, bodies and expressions are among all others
        parts = [
            {k: v for k, v in spec.items() if k != "expressions"} for spec in compiled["flows"]
        ]
        whole["flows"] = [_declarations(spec, places) for spec in parts]
    return whole


def form_hash(compiled: CompiledFlow, hash: str) -> str:
    """Return what names a compiled flow in a store.

    Args:
        compiled: The flow in plain form.
        hash: Its structural hash.

    Returns:
        That hash. Another one for each place of the code beside its files, and for other names of
        the tools that it calls.
    """
    tools = [step["tool"] for step in compiled["steps"] if "tool" in step]
    flows = [compiled, *compiled.get("flows", ())]
    reducers = [spec.get("reducer") for flow in flows for spec in flow.get("state", {}).values()]
    with_code = [*(step.get("task", {}) for step in compiled["steps"]), *reducers]
    folders = [one["folder"] for one in with_code if isinstance(one, dict) and "folder" in one]
    return _digest([hash, tools, folders]) if tools or folders else hash


def _declarations(flow: Mapping[str, Any], places: ExpressionPlaces) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for section, content in flow.items():
        if section == "state":
            whole[section] = {key: _state(spec) for key, spec in content.items()}
        else:
            whole[section] = content if section in CONSTANT else places.part(content, section)
    return whole


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_place(record: Any) -> Any:
    if isinstance(record, dict):
        return {key: value for key, value in record.items() if key not in PLACES}
    return record


def _step(step: Any, places: ExpressionPlaces) -> dict[str, Any]:
    spec: dict[str, Any] = places.part(_without_place(step))
    if "task" in spec:  # the modules are beside the file, wherever it lies
        spec["task"] = {key: value for key, value in spec["task"].items() if key != "folder"}
    if "preview" in spec:
        spec["preview"] = spec["preview"]["function"]
    return spec


def _state(spec: Any) -> Any:
    reducer = spec.get("reducer")
    if not isinstance(reducer, dict):
        return spec
    return {**spec, "reducer": {"python": reducer["python"]}}  # as of tasks, without the directory
