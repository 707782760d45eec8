"""The tool offered in the tests of calls."""

from __future__ import annotations

from flowengine.agents.text_calls.marked_form import ToolOffer

ADD = ToolOffer(
    "add",
    "Adds two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
