"""Generation of example arguments from a schema, to show a model a correct call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.agents.text_calls.records import ToolOffer
from flowengine.agents.text_calls.text_values import allowed_types, choices_of

_BY_TYPE: tuple[tuple[str, Any], ...] = (
    ("string", "text"),
    ("boolean", True),
    ("array", []),
    ("object", {}),
)


def example_arguments(tool: ToolOffer) -> dict[str, Any]:
    """Return arguments of the right types for all required parameters of a tool.

    Args:
        tool: The tool.
    """
    schema = tool.schema
    declared = schema["properties"]
    names = [name for name in schema.get("required", ()) if name in declared]
    return {
        name: _example(declared[name], schema, place) for place, name in enumerate(names, start=1)
    }


def _example(schema: Any, root: Mapping[str, Any], place: int) -> Any:
    if isinstance(schema, Mapping):
        if schema.get("examples"):
            return schema["examples"][0]
        if "default" in schema:
            return schema["default"]
        if choices := choices_of(schema, root):
            return choices[0]
    types = allowed_types(schema, root)
    if types & {"integer", "number"} and "string" not in types:
        return place
    return next((value for name, value in _BY_TYPE if name in types), None)
