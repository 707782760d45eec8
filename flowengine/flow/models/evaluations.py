"""Evaluation files: a flow, its cases, their judges and the required scores (docs/evals.md)."""

from typing import Annotated

from flowengine.flow.models.agent import ModelName
from flowengine.flow.models.base import Field, Part
from flowengine.flow.models.expected import ExpectingCase, Words
from flowengine.flow.models.flow import Amount
from flowengine.flow.models.types import AsSchema, CheckedType, Positive, Value, number

Share = Annotated[
    float,
    CheckedType(number(0, 1, "a number from 0 to 1")),
    AsSchema({"type": "number", "minimum": 0, "maximum": 1}),
]


class EvalCase(ExpectingCase):
    """One case of an evaluation. Each variant runs it `repeat` times."""

    expected: Value = Field(default=None, examples=["18"])
    """The reference answer, for the judge."""


class Rows(Part):
    """Cases in the rows of a file."""

    NOUN = "'data'"
    MAIN = "file"

    file: Words = Field(examples=["questions.jsonl"])
    """A JSONL or CSV file, relative to this one. CSV needs a line with the names of the columns."""
    inputs: dict[str, Words] | None = Field(default=None, examples=[{"question": "question"}])
    """Input of the flow → column. Default: the columns with names of inputs."""
    expected: Words | None = Field(default=None, examples=["answer"])
    """The column with the reference answer."""
    name: Words | None = Field(default=None, examples=["id"])
    """The column with the names of the cases. Default: file and line."""
    limit: Positive | None = Field(default=None, examples=[50])
    """How many rows are read, from the top."""


class Variant(Part):
    """What is compared: a model, or another version of the flow."""

    NOUN = "a variant"
    NAMED = "name"

    name: Words = Field(examples=["small"])
    """Its name in the results."""
    model: ModelName | None = Field(default=None, examples=["openai/gpt-5-mini"])
    """The model of every agent, as with `flowengine run --model`."""
    flow: Words | None = Field(default=None, examples=["./shorter.yaml"])
    """Path of the flow, relative to this file. Default: `flow` of the evaluation."""


class EvalBudget(Part):
    """When no further trial begins. Running trials continue."""

    NOUN = "'budget'"

    cost_usd: Amount | None = Field(default=None, examples=[5])
    """The cost of all model calls, in US dollars."""
    tokens: Positive | None = Field(default=None, examples=[200000])
    """The tokens of all model calls."""


class EvalFile(Part):
    """An evaluation of a flow."""

    NOUN = "an evaluation"

    flow: Words | None = Field(default=None, examples=["./support.yaml"])
    """Path of the flow, relative to this file. Default: `NAME.yaml` for `NAME.eval.yaml`."""
    judge: Words | None = Field(default=None, examples=["./judge.yaml"])
    """Path of a flow that judges each result, relative to this file. Each of its outputs is a
    verdict: true or false, a number from 0 to 1, or `{passed, score, reason}`."""
    variants: list[Variant] = Field(
        default=[], examples=[[{"name": "small", "model": "openai/gpt-5-mini"}]]
    )
    """The variants. The first is the baseline. Default: the unchanged flow."""
    cases: list[EvalCase] = Field(default=[], examples=[[{"name": "it works"}]])
    """The cases."""
    data: Rows | None = Field(default=None, examples=["questions.jsonl"])
    """Further cases from a file."""
    repeat: Positive = Field(default=1, examples=[5])
    """How often each variant runs each case."""
    concurrency: Positive = Field(default=4, examples=[8])
    """How many trials run at once."""
    budget: EvalBudget | None = Field(default=None, examples=[{"cost_usd": 5}])
    """When no further trial begins."""
    require: dict[str, Share] = Field(
        default={"passed": 1.0}, examples=[{"passed": 0.9, "polite": 0.8}]
    )
    """The minimum for every variant: the share of trials that have `passed`, and the mean of each
    verdict by name. Otherwise the exit code is 1."""
