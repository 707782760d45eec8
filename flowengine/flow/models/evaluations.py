"""Evaluation files: a flow, its cases, their judges and the required scores (docs/evals.md)."""

from typing import Annotated, Any

from flowengine.flow.models.agent import ModelName
from flowengine.flow.models.base import Field, Part
from flowengine.flow.models.expected import ExpectingCase, Words
from flowengine.flow.models.flow import Amount
from flowengine.flow.models.types import AsSchema, CheckedType, Positive, Value, wrong


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        wrong("a number from 0 to 1", value)
    return float(value)


Share = Annotated[
    float, CheckedType(_share), AsSchema({"type": "number", "minimum": 0, "maximum": 1})
]


class EvalCase(ExpectingCase):
    """One case of an evaluation. Each variant runs it `repeat` times."""

    expected: Value = Field(
        default=None,
        description="The reference answer, for the judge.",
        examples=["18"],
    )


class Rows(Part):
    """Cases in the rows of a file."""

    NOUN = "'data'"
    MAIN = "file"

    file: Words = Field(
        description="A JSONL or CSV file, relative to this one. CSV needs a line with the names of "
        "the columns.",
        examples=["questions.jsonl"],
    )
    inputs: dict[str, Words] | None = Field(
        default=None,
        description="Input of the flow → column. Default: the columns with names of inputs.",
        examples=[{"question": "question"}],
    )
    expected: Words | None = Field(
        default=None, description="The column with the reference answer.", examples=["answer"]
    )
    name: Words | None = Field(
        default=None,
        description="The column with the names of the cases. Default: file and line.",
        examples=["id"],
    )
    limit: Positive | None = Field(
        default=None, description="How many rows are read, from the top.", examples=[50]
    )


class Variant(Part):
    """What is compared: a model, or another version of the flow."""

    NOUN = "a variant"
    NAMED = "name"

    name: Words = Field(description="Its name in the results.", examples=["small"])
    model: ModelName | None = Field(
        default=None,
        description="The model of every agent, as with `flowengine run --model`.",
        examples=["openai/gpt-5-mini"],
    )
    flow: Words | None = Field(
        default=None,
        description="Path of the flow, relative to this file. Default: `flow` of the evaluation.",
        examples=["./shorter.yaml"],
    )


class EvalBudget(Part):
    """When no further trial begins. Running trials continue."""

    NOUN = "'budget'"

    cost_usd: Amount | None = Field(
        default=None, description="The cost of all model calls, in US dollars.", examples=[5]
    )
    tokens: Positive | None = Field(
        default=None, description="The tokens of all model calls.", examples=[200000]
    )


class EvalFile(Part):
    """An evaluation of a flow."""

    NOUN = "an evaluation"

    flow: Words | None = Field(
        default=None,
        description="Path of the flow, relative to this file. Default: `NAME.yaml` for "
        "`NAME.eval.yaml`.",
        examples=["./support.yaml"],
    )
    judge: Words | None = Field(
        default=None,
        description="Path of a flow that judges each result, relative to this file. Each of its "
        "outputs is a verdict: true or false, a number from 0 to 1, or `{passed, score, reason}`.",
        examples=["./judge.yaml"],
    )
    variants: list[Variant] = Field(
        default=[],
        description="The variants. The first is the baseline. Default: the unchanged flow.",
        examples=[[{"name": "small", "model": "openai/gpt-5-mini"}]],
    )
    cases: list[EvalCase] = Field(
        default=[], description="The cases.", examples=[[{"name": "it works"}]]
    )
    data: Rows | None = Field(
        default=None, description="Further cases from a file.", examples=["questions.jsonl"]
    )
    repeat: Positive = Field(
        default=1, description="How often each variant runs each case.", examples=[5]
    )
    concurrency: Positive = Field(
        default=4, description="How many trials run at once.", examples=[8]
    )
    budget: EvalBudget | None = Field(
        default=None,
        description="When no further trial begins.",
        examples=[{"cost_usd": 5}],
    )
    require: dict[str, Share] = Field(
        default={"passed": 1.0},
        description="The minimum for every variant: the share of trials that have `passed`, and "
        "the mean of each verdict by name. Otherwise the exit code is 1.",
        examples=[{"passed": 0.9, "polite": 0.8}],
    )
