"""The budget of a flow, which limits the total usage of all its calls."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from flowengine.flow.models.base import MappingProblem, Part, listed
from flowengine.flow.models.types import (
    AsSchema,
    CheckedType,
    Positive,
    PositiveDuration,
    constant_text,
    one_or_many,
    wrong,
)

AMOUNTS = ("tokens", "cost_usd")
BOUNDS = ("tool_calls", "wall_time", *AMOUNTS)


def _person(value: Any) -> str:
    text = constant_text(value)
    if not text.startswith(("user:", "group:")):
        wrong("a name such as 'user:ana' or 'group:finance'", value)
    return text


_PERSON = {"type": "string", "pattern": r"^(user:|group:)", "not": {"pattern": r"\$\{\{"}}
Assignees = Annotated[
    list[str],
    CheckedType(one_or_many(_person)),
    AsSchema({"anyOf": [{"type": "array", "items": _PERSON, "minItems": 1}, _PERSON]}),
]


def _amount(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value <= MOST_DOLLARS:
        wrong(f"a number above 0, up to {MOST_DOLLARS}", value)
    return float(value)


def _percent(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch(PERCENT, value):
        wrong("a percentage from 1% to 99%", value)
    return int(value.removesuffix("%"))


MOST_DOLLARS = 1_000_000
PERCENT = r"[1-9][0-9]?%"
Amount = Annotated[
    float,
    CheckedType(_amount),
    AsSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MOST_DOLLARS}),
]
Percent = Annotated[
    int, CheckedType(_percent), AsSchema({"type": "string", "pattern": f"^{PERCENT}$"})
]


class Budget(Part):
    """Limits on the total usage of all calls of a flow, including those of its subflows."""

    NOUN = "'budget'"
    RULES_AS_SCHEMA = (
        {"anyOf": [{"required": [key]} for key in BOUNDS]},
        {
            "if": {"required": ["assignees"]},
            "then": {"required": ["then"], "properties": {"then": {"const": "ask"}}},
        },
        {
            "if": {"required": ["fallback_at"]},
            "then": {"anyOf": [{"required": [key]} for key in AMOUNTS]},
        },
    )

    tool_calls: Positive | None = Field(
        default=None,
        description="The maximum number of tool calls and program runs. Each attempt counts.",
        examples=[300],
    )
    wall_time: PositiveDuration | None = Field(
        default=None, description="The maximum running time, without waits.", examples=["2h"]
    )
    tokens: Positive | None = Field(
        default=None,
        description="The maximum number of tokens of all models together.",
        examples=[200000],
    )
    cost_usd: Amount | None = Field(
        default=None,
        description="The maximum cost of all models together, in US dollars.",
        examples=[5],
    )
    fallback_at: Percent | None = Field(
        default=None,
        description="The fraction of `tokens` or `cost_usd` from which cheaper models are used.",
        examples=["80%"],
    )
    then: Literal["stop", "ask"] = Field(
        default="stop",
        description="The effect of an exhausted budget: the error `BudgetExceeded`, or a "
        "request to raise it.",
        examples=["ask"],
    )
    assignees: Assignees | None = Field(
        default=None,
        description="Users and groups that may raise it. Default: anyone.",
        examples=[["group:finance"]],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require that a budget limits something, and that only `then: ask` has assignees."""
        yield from super().problems(given)
        if not given.keys() & set(BOUNDS):
            hint = "add 'tool_calls: 100' or 'wall_time: 1h'"
            yield MappingProblem(None, "E104", f"a budget needs {listed(BOUNDS)}", hint)
        if "fallback_at" in given and not given.keys() & set(AMOUNTS):
            message = "'fallback_at' is a part of 'tokens' or 'cost_usd'"
            yield MappingProblem("fallback_at", "E103", message, "add one of them, or leave it out")
        if "assignees" in given and given.get("then", "stop") == "stop":
            message = "'assignees' require 'then: ask' in the budget"
            yield MappingProblem("assignees", "E103", message, "add 'then: ask', or leave them out")
