"""Steps that replace the same state keys, possibly at the same time (W306)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowengine.flow.check import net as nets
from flowengine.flow.check.findings import Finding
from flowengine.flow.check.net import Step
from flowengine.kernel.graph.specs import CompiledFlow

Where = tuple[Step, tuple[str | int, ...]]
"""The step that writes, and the path inside it."""


def replaced_by(flow: CompiledFlow, step: Step) -> dict[str, Where]:
    """Return the state keys that a step replaces itself.

    Args:
        step: Number of the step.

    Returns:
        Key → place of the write.
    """
    state = flow.get("state", {})
    spec = flow["steps"][step]
    writes: dict[str, Where] = {}
    places: list[tuple[tuple[str | int, ...], list[list[Any]]]] = [(("set",), spec.get("set", []))]
    places += [
        (("on_error", n, "set"), handler.get("set", []))
        for n, handler in enumerate(spec.get("on_error", []))
    ]
    for where, pairs in places:
        for key, _ in pairs:
            if state.get(key, {}).get("reducer", "replace") == "replace":
                writes.setdefault(key, (step, (*where, key)))
    return writes


def writers(flow: CompiledFlow, body: int) -> dict[Step, dict[str, Where]]:
    """Return the steps of a body that replace state keys, themselves or inside.

    Args:
        body: Number of the body.

    Returns:
        Step → key → place of the write.
    """
    writes: dict[Step, dict[str, Where]] = {}
    for step in flow["bodies"][body]["steps"]:
        keys: dict[str, Where] = {}
        pending = [step]
        while pending:
            one = pending.pop()
            for key, where in replaced_by(flow, one).items():
                keys.setdefault(key, where)
            child = flow["steps"][one].get("child")
            if child is not None:
                pending.extend(reversed(flow["bodies"][child]["steps"]))
        if keys:
            writes[step] = keys
    return writes


def check_items(flow: CompiledFlow) -> Iterator[Finding]:
    """Yield the state keys that several items of a map replace.

    Yields:
        A warning for each key and map.
    """
    reported: set[Where] = set()
    for number, spec in enumerate(flow["steps"]):
        if spec.get("body", -1) < 0 or not replaced_by(flow, number):
            continue
        mapped = [s for s in (number, *nets.enclosing(flow, number)) if _is_map(flow, s)]
        if not mapped:
            continue
        name = flow["steps"][mapped[0]]["id"]
        for key, where in replaced_by(flow, number).items():
            outside = mapped == [number] and where[1][0] == "on_error"
            if outside or where in reported:
                continue
            reported.add(where)
            message = f"every item of the map {name!r} replaces state.{key}: StateConflict"
            yield Finding("W306", number, message, "give it a reducer, such as append", where[1])


def _is_map(flow: CompiledFlow, step: Step) -> bool:
    """Return whether a step is a map whose items may be at work at the same time."""
    spec = flow["steps"][step]
    if "map" not in spec or ("lock" in spec and "shared" not in spec["lock"]):
        return False
    return spec["map"].get("concurrency") != ["const", 1] or _may_wait(flow, step)


def _may_wait(flow: CompiledFlow, step: Step) -> bool:
    """Return whether an item of a map may wait, so that the next one begins in between."""
    pending = [step]
    while pending:
        spec = flow["steps"][pending.pop()]
        waits = spec.get("action") in {"wait", "approval", "flow"}
        if waits or spec.get("asks") or "approval" in spec:
            return True
        child = spec.get("child")
        if child is not None:
            pending.extend(flow["bodies"][child]["steps"])
    return False
