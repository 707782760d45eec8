"""Agents: a model with instructions and tools, which steps run until it has an answer."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from flowengine.flow.models.base import OneOf, Part, Problem
from flowengine.flow.models.modifiers import Retry
from flowengine.flow.models.schemas import Schema
from flowengine.flow.models.types import (
    GENERATED_ID,
    ID,
    AsSchema,
    Checked,
    EnvironmentUses,
    NotNegative,
    Positive,
    Template,
    Text,
    Value,
    constant_text,
    in_generated,
    wrong,
)

_AGENT_NAME = rf"{ID}(\.{ID})?"
_TOOL_PATTERN = r"[a-z*?\[][A-Za-z0-9_*?\[\]!-]*(\.[A-Za-z0-9_*?\[\]!-]+)*"
_CALLED = r"[A-Za-z0-9_.-]{1,64}"
_FUNCTION = r"[^\s:]+:[^\s:]+"
_MODEL_NAME = r"[^\s/]+/\S+"


def _matching(
    pattern: str, what: str, hint: str | None = None, *, generated: str | None = None
) -> Checked:
    def check(value: Any) -> str:
        text = constant_text(value)
        expected = generated if generated and in_generated.get() else pattern
        if not re.fullmatch(expected, text):
            wrong(what, value, hint)
        return text

    return Checked(check)


AgentName = Annotated[
    str,
    _matching(_AGENT_NAME, "the name of an agent", generated=GENERATED_ID),
    AsSchema({"type": "string", "pattern": f"^{_AGENT_NAME}$"}),
]
"""An agent that is named: `name` or `alias.name`."""
ToolPattern = Annotated[
    str,
    _matching(_TOOL_PATTERN, "the name of a tool, or a glob"),
    AsSchema({"type": "string", "pattern": f"^{_TOOL_PATTERN}$"}),
]


def _function(value: Any) -> Any:
    """Return the name of a function, or in what was generated how the function is found."""
    if in_generated.get() and isinstance(value, dict):
        return value
    text = constant_text(value)
    if not re.fullmatch(_FUNCTION, text):
        wrong("a function, as module:function", value)
    return text


FunctionName = Annotated[
    Any, Checked(_function), AsSchema({"type": "string", "pattern": f"^{_FUNCTION}$"})
]
CalledTool = Annotated[
    str,
    _matching(_CALLED, "a name that models can call", "letters, digits, '_', '-' and '.'"),
    AsSchema({"type": "string", "pattern": f"^{_CALLED}$"}),
]
ModelName = Annotated[
    str,
    _matching(
        _MODEL_NAME, "a model such as openai/gpt-4o", "write it as provider/model", generated=r"\S+"
    ),
    AsSchema({"type": "string", "pattern": f"^{_MODEL_NAME}$"}),
]


class Instructions(Part):
    """What an agent is told before anything else."""

    NOUN = "'instructions'"
    MAIN = "text"
    RULES = (OneOf(("text", "file", "python")),)

    text: Template | None = Field(
        default=None,
        description="The text; sees `inputs`, `state`, `execution` and `now`.",
        examples=["Answer questions about ${{ inputs.product }}."],
    )
    file: Text | None = Field(
        default=None,
        description="A file with the text, relative to the flow file; it holds no expressions.",
        examples=["prompts/researcher.md"],
    )
    python: FunctionName | None = Field(
        default=None,
        description="A Python function, `module:function`, that returns the text: called before "
        "every turn, with the context variables if it has a parameter.",
        examples=["prompts:of_today"],
    )


class ToolUse(Part):
    """A tool that an agent may call."""

    NOUN = "a tool of an agent"
    MAIN = "tool"

    tool: ToolPattern = Field(
        description="A name, or a glob over names.", examples=["search", "github.get_*"]
    )
    as_: CalledTool | None = Field(
        default=None,
        alias="as",
        description="The name by which the model calls it, and rules and approvals name it.",
        examples=["find_order"],
    )


class MaxTurns(Part):
    """How often an agent's models may be called in one step."""

    NOUN = "'max_turns'"
    MAIN = "count"

    count: Positive = Field(default=30, description="Calls of a model.", examples=[10])
    last: Literal["fail", "answer"] = Field(
        default="fail",
        description="The last call: like the others, or without tools, so that it is an answer.",
        examples=["answer"],
    )


class ContextWindow(Part):
    """What happens when a conversation outgrows its model."""

    NOUN = "'context'"
    MAIN = "reduce"

    max_tokens: Positive | None = Field(
        default=None,
        description="Tokens that a request may have, estimated; as many as fit the model.",
        examples=[50_000],
    )
    reduce: Text = Field(
        default="drop",
        description="What is done about the oldest messages: `drop` leaves them out, `summarize` "
        "has the model summarize them, or the name of a tool that does.",
        examples=["summarize"],
    )


class Check(Part):
    """A tool that checks what an agent is asked, or its answer, and raises what is wrong."""

    NOUN = "a check"
    RULES = (OneOf(("before", "after")),)

    before: Text | None = Field(
        default=None,
        description="The tool that checks what the agent is asked: it gets `prompt`.",
        examples=["on_topic"],
    )
    after: Text | None = Field(
        default=None,
        description="The tool that checks the answer: it gets `answer` and, if it takes one, "
        "`prompt`.",
        examples=["cites_sources"],
    )
    then: Literal["tell", "end"] | None = Field(
        default=None,
        description="What is done with what it raises: `tell` the model, or `end` the step as "
        "`not_resolved`. Default: `end` before, `tell` after.",
        examples=["end"],
    )


class AgentLimits(Part):
    """Bounds of what an agent does."""

    NOUN = "'limits' of an agent"

    calls: Positive | None = Field(
        default=None,
        description="How many calls of tools it may make in an execution, by all steps together.",
        examples=[20],
    )


class Agent(Part):
    """A model with instructions and tools."""

    NOUN = "an agent"

    model: ModelName | None = Field(
        default=None,
        description="The model; `defaults.model`, else `FLOWENGINE_MODEL`.",
        examples=["openai/gpt-4o"],
    )
    instructions: Instructions = Field(
        description="What it is told before anything else.",
        examples=["You find sources."],
    )
    title: Text | None = Field(
        default=None,
        description="What people and functions call it. Default: its name here.",
        examples=["Tax expert"],
    )
    description: Text | None = Field(
        default=None,
        description="What it is for, told to agents that may call it or hand over to it.",
        examples=["Finds sources"],
    )
    tools: list[ToolUse] = Field(
        default_factory=list,
        description="Tools that it may call, as names or globs.",
        examples=[["search", "github.get_*", {"tool": "lib.search", "as": "search_library"}]],
    )
    skills: list[Text] = Field(
        default_factory=list,
        description="Folders with a `SKILL.md`, as paths or globs relative to the flow file. It is "
        "told their names and descriptions, and reads the rest when it needs it.",
        examples=[["./skills/*"]],
    )
    handoffs: list[AgentName] = Field(
        default_factory=list,
        description="Agents that it may hand the conversation over to.",
        examples=[["writer"]],
    )
    tool_handoffs: list[AgentName] = Field(
        default_factory=list,
        description="Agents that its tools may hand the conversation over to, by returning one; "
        "`handoffs` gives it a tool for each.",
        examples=[["billing"]],
    )
    returns: Schema | None = Field(
        default=None,
        description="JSON Schema of the final answer; text.",
        examples=[{"type": "object", "properties": {"title": {"type": "string"}}}],
    )
    max_turns: MaxTurns = Field(
        default_factory=MaxTurns,
        description="How often models may be called in one step, handoffs included.",
        examples=[10],
    )
    repeats: NotNegative = Field(
        default=3,
        description="How many times in a row the same call may fail in the same way before the "
        "agent is told; if the agent calls it again, its work ends. 0: no limit.",
        examples=[5],
    )
    fallbacks: list[ModelName] = Field(
        default_factory=list,
        description="Models that are tried in order when one cannot answer.",
        examples=[["openai/gpt-4o-mini"]],
    )
    retry: Retry | None = Field(
        default=None,
        description="Of one call of a model; 3 attempts with pauses of 4 to 10 seconds.",
        examples=[5],
    )
    tool_choice: Text | None = Field(
        default=None,
        description="`auto`, `none`, `required`, or the name of a tool that must be called.",
        examples=["required"],
    )
    parallel_tool_calls: bool = Field(
        default=True, description="Whether one reply may hold several calls.", examples=[False]
    )
    function_calling: Literal["native", "text"] | None = Field(
        default=None,
        description="How the model is offered tools; by what is known of it.",
        examples=["text"],
    )
    settings: dict[str, Value] = Field(
        default_factory=dict,
        description="Passed to the provider; may name secrets.",
        examples=[{"temperature": 0, "api_key": "${{ secrets.KEY }}"}],
    )
    context: ContextWindow | None = Field(
        default=None,
        description="What happens when the conversation no longer fits the model; it fails.",
        examples=[{"max_tokens": 50_000, "reduce": "summarize"}],
    )
    checks: list[Check] = Field(
        default_factory=list,
        description="Tools that check what the agent is asked, and its answer, in this order.",
        examples=[[{"before": "on_topic"}, {"after": "cites_sources"}]],
    )
    limits: AgentLimits | None = Field(
        default=None, description="Bounds of its calls.", examples=[{"calls": 20}]
    )
    finish: Literal["answer", "tools"] = Field(
        default="answer",
        description="What ends the step: a reply without calls, or one of the tools "
        "`case_resolved` and `case_not_resolved`, which the agent is then given.",
        examples=["tools"],
    )

    environments: EnvironmentUses = Field(
        default=None,
        description="Environments that its tools get; no model sees them.",
        examples=[["sandbox"], {"db": "orders"}],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[Problem]:
        """Add what excludes one another."""
        yield from super().problems(given)
        if given.get("finish") == "tools" and "returns" in given:
            message = "'returns' is the form of an answer, but this agent ends by a tool"
            yield Problem("returns", "E103", message, "leave out 'finish', or 'returns'")


class InlineAgent(Agent):
    """An agent that is declared where a step or tool runs it."""

    instructions: Instructions | None = Field(  # type: ignore[assignment]
        default=None,
        description="What it is told before anything else; nothing.",
        examples=["You find sources."],
    )
    prompt: Value = Field(
        default=None,
        description="What it is asked, in place of `with.prompt`.",
        examples=["Summarize ${{ inputs.text }}"],
    )
    chat: bool | None = Field(
        default=None,
        description="Each answer is shown to a person, who says what comes next.",
        examples=[True],
    )
