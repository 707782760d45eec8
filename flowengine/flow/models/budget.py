"""The budget of a flow: what all its calls together may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from flowengine.flow.models.base import Part, Problem
from flowengine.flow.models.types import (
    AsSchema,
    Positive,
    PositiveDuration,
    constant_text,
    one_or_many,
    wrong,
)

BOUNDS = ("tool_calls", "wall_time")
WITH_MODELS = ("tokens", "cost_usd")
"""Bounds that come with agents."""


def _person(value: Any) -> str:
    text = constant_text(value)
    if not text.startswith(("user:", "group:")):
        wrong("a name such as 'user:ana' or 'group:finance'", value)
    return text


_PERSON = {"type": "string", "pattern": r"^(user:|group:)", "not": {"pattern": r"\$\{\{"}}
Assignees = Annotated[
    list[str],
    PlainValidator(one_or_many(_person)),
    AsSchema({"anyOf": [{"type": "array", "items": _PERSON, "minItems": 1}, _PERSON]}),
]


class Budget(Part):
    """What all calls of a flow together may use, in what it runs too."""

    NOUN = "'budget'"
    RULES_AS_SCHEMA = (
        {"anyOf": [{"required": [key]} for key in BOUNDS]},
        {
            "if": {"required": ["assignees"]},
            "then": {"required": ["then"], "properties": {"then": {"const": "ask"}}},
        },
    )

    tool_calls: Positive | None = Field(
        default=None,
        description="How often `call`, `python`, `http` and `run` may run, each attempt.",
        examples=[300],
    )
    wall_time: PositiveDuration | None = Field(
        default=None, description="How long it may run, not counting waits.", examples=["2h"]
    )
    then: Literal["stop", "ask"] = Field(
        default="stop",
        description="What happens when it is used up: `BudgetExceeded`, or people are asked.",
        examples=["ask"],
    )
    assignees: Assignees | None = Field(
        default=None, description="Who may raise it. Default: anyone.", examples=[["group:finance"]]
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[Problem]:
        """Add that a budget bounds something, and that only a question has assignees."""
        yield from super().problems(given)
        if not given.keys() & {*BOUNDS, *WITH_MODELS}:
            hint = "add 'tool_calls: 100' or 'wall_time: 1h'"
            yield Problem(None, "E104", "a budget needs 'tool_calls' or 'wall_time'", hint)
        if "assignees" in given and given.get("then", "stop") == "stop":
            message = "'assignees' are asked only where the budget says 'then: ask'"
            yield Problem("assignees", "E103", message, "add 'then: ask', or leave them out")
