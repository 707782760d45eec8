"""The structural hash: what a flow means, not how its file looks.

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
from typing import Any

from flowengine.kernel.graph.specs import CompiledFlow

CONDITIONS = frozenset({"when", "until", "before", "match"})
"""Keys of specs whose int is the number of an expression."""
OPAQUE = frozenset(
    {"task", "meters", "adapter", "raises", "names", "named", "forgets", "sources", "ways"}
)
"""Keys of specs that hold no expressions."""
UNORDERED = frozenset({"set", "defaults"})
"""Keys whose pairs of name and value are evaluated as if at once, in any order."""
NAMED = frozenset({"outputs", "signals", "with"})
"""Keys of maps whose keys are names that the file gives: none of them is a key of these lists."""
PLACES = frozenset({"at", "tool", "declared", "teller", "says", "ways", "ahead"})
"""Keys for positions, names, descriptions, and parts that may be loaded early."""
_UNREAD = frozenset({"folder", "floats"})
"""Keys of tasks: where the file lies, as its modules are beside it anyway, and parameters that are
floats, which flows compiled by earlier versions have."""
CONSTANT = ("inputs", "state", "secrets", "environments", "limits", "budget")
"""Sections that hold no numbers of expressions where they hold plain data."""


def structural_hash(compiled: CompiledFlow) -> str:
    """Return the hash of a compiled flow.

    Args:
        compiled: The flow in plain form.

    Returns:
        SHA-256, in hexadecimal digits.
    """
    expressions = [_digest(_without_place(one)) for one in compiled.get("expressions", [])]
    return _digest(meaning(compiled, expressions))


def meaning(compiled: CompiledFlow, expressions: list[str]) -> dict[str, Any]:
    """Return a compiled flow without places, with its expressions in place of their numbers.

    Args:
        compiled: The flow in plain form.
        expressions: The text that stands for each expression.
    """
    whole: dict[str, Any] = {**compiled, "expressions": []}
    for section, content in whole.items():
        if section == "steps":
            whole[section] = [_step(step, expressions) for step in content]
        elif section == "state":
            whole[section] = {key: _state(spec) for key, spec in content.items()}
        elif section == "flows":
            whole[section] = [_flow(spec, expressions) for spec in content]
        elif section not in CONSTANT:
            whole[section] = _entry(section, content, expressions)
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


def _flow(spec: dict[str, Any], expressions: list[str]) -> dict[str, Any]:
    """Return the declarations of a subflow. Its steps and bodies are among all others."""
    hashes: dict[str, Any] = {}
    for section, content in spec.items():
        if section == "state":
            hashes[section] = {key: _state(value) for key, value in content.items()}
        elif section in CONSTANT:
            hashes[section] = content
        elif section != "expressions":  # their number does not change the meaning
            hashes[section] = _entry(section, content, expressions)
    return hashes


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_place(record: Any) -> Any:
    if isinstance(record, dict):
        return {key: value for key, value in record.items() if key not in PLACES}
    return record


def _step(step: dict[str, Any], expressions: list[str]) -> dict[str, Any]:
    spec: dict[str, Any] = _spec(_without_place(step), expressions)
    if "task" in spec:
        spec["task"] = {key: value for key, value in spec["task"].items() if key not in _UNREAD}
    if "preview" in spec:
        spec["preview"] = spec["preview"]["function"]
    return spec


def _state(spec: Any) -> Any:
    reducer = spec.get("reducer")
    if not isinstance(reducer, dict):
        return spec
    return {**spec, "reducer": {"python": reducer["python"]}}  # as of tasks, without the directory


def _spec(node: Any, expressions: list[str]) -> Any:
    """Return a part of the compiled form with its expressions in place."""
    if isinstance(node, dict):
        return {key: _entry(key, part, expressions) for key, part in node.items()}
    if isinstance(node, list):
        value = _value(node, expressions)
        return [_spec(item, expressions) for item in node] if value is None else value
    return node


def _entry(key: str, node: Any, expressions: list[str]) -> Any:
    if key in OPAQUE:
        return node
    if key in CONDITIONS and isinstance(node, int):
        return expressions[node]
    if key in UNORDERED:
        return sorted([name, _spec(value, expressions)] for name, value in node)
    if key in NAMED and isinstance(node, dict):
        return {name: _spec(value, expressions) for name, value in node.items()}
    return _spec(node, expressions)


def _value(node: list[Any], expressions: list[str]) -> list[Any] | None:
    """Return a value with its expressions in place. None: the list is not a value."""
    match node:
        case ["const" | "given", _]:
            return node
        case ["expr", int(number)]:
            return ["expr", expressions[number]]
        case ["text" | "secret" as tag, list(parts)]:
            return [tag, [expressions[part] if isinstance(part, int) else [part] for part in parts]]
        case ["list" | "with" | "arguments" as tag, list(items)]:
            return [tag, [_spec(item, expressions) for item in items]]
        case ["map", dict(entries)]:
            return ["map", {key: _spec(entry, expressions) for key, entry in entries.items()}]
    return None
