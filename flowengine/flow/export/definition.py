"""The definition of a compiled flow as text, to compare versions of it.

The text shows what a flow means. It is not a flow file: short forms are expanded, and defaults are
filled in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.flow.export.expanded_yaml import to_yaml
from flowengine.flow.structural_hash import meaning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.kernel.graph.specs import CompiledFlow

_NUMBERS = frozenset({"bodies", "body", "evaluator", "expressions", "format"})
"""Keys that only number the parts of a flow."""
_TARGETS = frozenset({"to", "sources"})
"""Keys whose numbers are steps."""


def definition(compiled: CompiledFlow) -> str:
    """Return the definition of a flow as YAML, with the names of steps and the text of expressions.

    Args:
        compiled: The flow in plain form.
    """
    expressions = [f"${{{{ {one['at'][2]} }}}}" for one in compiled.get("expressions", [])]
    steps = [step["id"] for step in compiled["steps"]]
    whole = _readable(meaning(compiled, expressions), steps)
    return to_yaml(
        {**{key: whole[key] for key in whole if key != "steps"}, "steps": whole["steps"]}
    )


def _readable(node: Any, steps: Sequence[str]) -> Any:
    """Return a part of a flow with values as they are written in files."""
    match node:
        case dict():
            ordered = {
                key: node[key] for key in ("id", *node) if key in node and key not in _NUMBERS
            }
            return {
                key: _named(value, steps) if key in _TARGETS else _readable(value, steps)
                for key, value in ordered.items()
            }
        case ["const" | "given" | "expr", value]:
            return value
        case ["text" | "secret", list(parts)]:
            return "".join(part if isinstance(part, str) else str(part[0]) for part in parts)
        case ["list", list(items)]:
            return [_readable(item, steps) for item in items]
        case ["map", dict(entries)]:
            return {key: _readable(entry, steps) for key, entry in entries.items()}
        case list():
            return [_readable(item, steps) for item in node]
    return node


def _named(target: Any, steps: Sequence[str]) -> Any:
    """Return the ids of steps instead of their numbers."""
    if isinstance(target, list):
        return [_named(one, steps) for one in target]
    if isinstance(target, int):
        return steps[target] if target >= 0 else "none"
    return _readable(target, steps)
