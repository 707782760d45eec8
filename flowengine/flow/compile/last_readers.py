"""The last step that uses the output of another one, after which the state drops that output.

Only steps in the flow's own list are considered, and only if no token returns to them: a step that
has ended is then never evaluated again for its token. Outputs used by the flow as a whole (its
outputs, its handlers, `finally`, compensations) are kept to the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from flowengine.flow.structural_hash import CONDITIONS, OPAQUE
from flowengine.kernel.graph.linked import may_repeat
from flowengine.kernel.graph.specs import CompiledFlow


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
    whole = {key: part for key, part in flow.items() if key not in ("steps", "expressions")}
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


def expressions_in(node: Any, key: str = "") -> Iterator[int]:
    """Yield the numbers of the expressions in a part of the compiled form."""
    if key in OPAQUE:
        return
    if key in CONDITIONS and isinstance(node, int):
        yield node
    elif isinstance(node, dict):
        for inner, part in node.items():
            yield from expressions_in(part, inner)
    elif isinstance(node, list):
        match node:
            case ["const", _]:
                return
            case ["expr", int(number)]:
                yield number
            case ["text" | "secret", list(parts)]:
                yield from (part for part in parts if isinstance(part, int))
            case _:
                for part in node:
                    yield from expressions_in(part)
