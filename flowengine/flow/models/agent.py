"""Agents: models with instructions and tools, which steps run until they have an answer."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from flowengine.flow.models.base import ExclusiveKeys, MappingProblem, Part
from flowengine.flow.models.modifiers import Retry
from flowengine.flow.models.types import (
    GENERATED_ID,
    ID,
    AsSchema,
    CheckedType,
    EnvironmentUses,
    NotNegative,
    OnCrash,
    Positive,
    Template,
    Text,
    Value,
    constant_text,
    in_generated,
    wrong,
)
from flowengine.sdk.python_modules import NO_FILES, may_read_files


class IsSchema(NamedTuple):
    """Marks a field that holds a JSON Schema, which the loader then looks into."""

    more: frozenset[str] = frozenset()
    """Keys beside those of JSON Schema."""


def _schema(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        wrong("a JSON Schema such as {type: string}", value)
    return value


Schema = Annotated[
    dict[str, Any],
    CheckedType(_schema),
    AsSchema({"$ref": "#/$defs/Schema"}),
    IsSchema(),
]
"""A JSON Schema, draft 2020-12, as plain data."""
StateSchema = Annotated[
    dict[str, Any],
    CheckedType(_schema),
    AsSchema({"$ref": "#/$defs/StateSchema"}),
    IsSchema(frozenset({"reducer", "signal"})),
]
"""The same of a state key, with `reducer` and `signal`."""


_AGENT_NAME = rf"{ID}(\.{ID})?"
_TOOL_PATTERN = r"[a-z*?\[][A-Za-z0-9_*?\[\]!-]*(\.[A-Za-z0-9_*?\[\]!-]+)*"
_CALLED = r"[A-Za-z0-9_.-]{1,64}"
_FUNCTION = r"[^\s:]+:[^\s:]+"
_MODEL_NAME = r"[^\s/]+/\S+"
_SCRIPT = r"scripted/.*\.(ya?ml|json)"


def _matching(
    pattern: str, what: str, hint: str | None = None, *, generated: str | None = None
) -> CheckedType:
    def check(value: Any) -> str:
        text = constant_text(value)
        expected = generated if generated and in_generated.get() else pattern
        if not re.fullmatch(expected, text):
            wrong(what, value, hint)
        return text

    return CheckedType(check)


AgentName = Annotated[
    str,
    _matching(_AGENT_NAME, "the name of an agent", generated=GENERATED_ID),
    AsSchema({"type": "string", "pattern": f"^{_AGENT_NAME}$"}),
]
"""The name of an agent: `name` or `alias.name`."""
ToolPattern = Annotated[
    str,
    _matching(_TOOL_PATTERN, "the name of a tool, or a glob"),
    AsSchema({"type": "string", "pattern": f"^{_TOOL_PATTERN}$"}),
]


def _function(value: Any) -> Any:
    """Return the name of a function, or in generated flows its location."""
    if in_generated.get() and isinstance(value, dict):
        return value
    text = constant_text(value)
    if not re.fullmatch(_FUNCTION, text):
        wrong("a function, as module:function", value)
    return text


FunctionName = Annotated[
    Any, CheckedType(_function), AsSchema({"type": "string", "pattern": f"^{_FUNCTION}$"})
]
CalledTool = Annotated[
    str,
    _matching(_CALLED, "a name that models can call", "letters, digits, '_', '-' and '.'"),
    AsSchema({"type": "string", "pattern": f"^{_CALLED}$"}),
]
_named_model = _matching(
    _MODEL_NAME, "a model such as openai/gpt-4o", "write it as provider/model", generated=r"\S+"
)


def _model(value: Any) -> str:
    """Return the name of a model, which can be that of a script in a file."""
    text: str = _named_model.check(value)
    if not may_read_files() and re.fullmatch(_SCRIPT, text):
        wrong("a model of a provider", value, NO_FILES)
    return text


ModelName = Annotated[
    str,
    CheckedType(_model),
    AsSchema({"type": "string", "pattern": f"^{_MODEL_NAME}$"}),
]


def is_model_name(text: str) -> bool:
    """Return whether a text can name a model."""
    return re.fullmatch(_MODEL_NAME, text) is not None


class Instructions(Part):
    """The instructions of an agent."""

    NOUN = "'instructions'"
    MAIN = "text"
    RULES = (ExclusiveKeys(("text", "file", "python")),)

    text: Template | None = Field(
        default=None,
        description="The text. Its expressions see `inputs`, `state`, `execution` and `now`.",
        examples=["Answer questions about ${{ inputs.product }}."],
    )
    file: Text | None = Field(
        default=None,
        description="A file with the text, relative to the flow file. It contains no expressions.",
        examples=["prompts/researcher.md"],
    )
    python: FunctionName | None = Field(
        default=None,
        description="A Python function, `module:function`, that returns the text. It is called "
        "before each turn, with the context variables if it has a parameter.",
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
        description="The name that the model, rules and approvals use.",
        examples=["find_order"],
    )


class MaxTurns(Part):
    """Maximum number of model calls of an agent in one step."""

    NOUN = "'max_turns'"
    MAIN = "count"

    count: Positive = Field(
        default=30, description="The number of calls of a model.", examples=[10]
    )
    last: Literal["fail", "answer"] = Field(
        default="fail",
        description="The last call: with tools like the others, or without tools, so "
        "that it returns an answer.",
        examples=["answer"],
    )


class ContextWindow(Part):
    """The reduction of a conversation that exceeds the model's context window."""

    NOUN = "'context'"
    MAIN = "reduce"

    max_tokens: Positive | None = Field(
        default=None,
        description="Maximum tokens of a request, estimated. Default: the context window of the "
        "model.",
        examples=[50_000],
    )
    reduce: Text = Field(
        default="drop",
        description="How the oldest messages are reduced: `drop` omits them, `summarize` has the "
        "model summarize them, and the name of a tool has that tool summarize them.",
        examples=["summarize"],
    )
    clear: Positive | None = Field(
        default=None,
        description="The number of newest replies whose results stay when older long results are "
        "replaced by notes, before any message is left out. The model reads one again with "
        "`read_result`.",
        examples=[3],
    )


def _sees(value: Any) -> Any:
    """Return the part of a conversation that an agent sees: a number of messages, or a word."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if not isinstance(value, str):
        wrong("'all', 'text', 'args', a number of messages, or the name of a tool", value)
    return constant_text(value)


class Handoff(Part):
    """An agent that another one may hand over to, and its input."""

    NOUN = "a handoff"
    MAIN = "agent"

    agent: AgentName = Field(description="The other agent.", examples=["billing"])
    args: Schema | None = Field(
        default=None,
        description="JSON Schema of the arguments, an object, that the model passes. They become "
        "the context variable `handoff`.",
        examples=[{"type": "object", "properties": {"reason": {"type": "string"}}}],
    )
    sees: Annotated[
        Any,
        CheckedType(_sees),
        AsSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}),
    ] = Field(
        default="all",
        description="The part of the earlier conversation that the other agent sees: `all`, "
        "`text` (without calls and results), `args` (the call of the handoff alone), the number "
        "of newest messages, or the name of a tool that summarizes it.",
        examples=["text", 10],
    )


class Check(Part):
    """A tool that checks the prompt or the answer of an agent, and raises an error on a fault."""

    NOUN = "a check"
    RULES = (ExclusiveKeys(("before", "after")),)

    before: Text | None = Field(
        default=None,
        description="The tool that checks the prompt of the agent. It receives `prompt`.",
        examples=["on_topic"],
    )
    after: Text | None = Field(
        default=None,
        description="The tool that checks the answer. It receives `answer` and, if it has the "
        "parameter, `prompt`.",
        examples=["cites_sources"],
    )
    then: Literal["tell", "end"] | None = Field(
        default=None,
        description="The effect of an error that it raises: `tell` sends it to the "
        "model, `end` ends the step as `not_resolved`. Default: `end` "
        "before, `tell` after.",
        examples=["end"],
    )
    beside: bool = Field(
        default=False,
        description="Before: whether the model is asked while the check of the prompt runs. "
        "Nothing of its reply is used or shown before the check has passed. After: whether the "
        "check also judges text that arrives, and nothing is shown before it has passed. An error "
        "closes the request.",
        examples=[True],
    )


class Hook(Part):
    """A tool that stands around the turns or the calls of an agent."""

    NOUN = "a hook"
    RULES = (ExclusiveKeys(("before_turn", "after_turn", "before_call", "after_call")),)

    before_turn: Text | None = Field(
        default=None,
        description="The tool that is called before each call of the model. It can choose the "
        "model and the tools of the turn, add a message, answer, or refuse.",
        examples=["choose_model"],
    )
    after_turn: Text | None = Field(
        default=None,
        description="The tool that sees each reply before its calls are made. It can refuse the "
        "reply, or answer in its place.",
        examples=["no_links"],
    )
    before_call: Text | None = Field(
        default=None,
        description="The tool that sees each call before rules and approvers do. It can change the "
        "arguments, have approvers asked, answer in place of the tool, or refuse.",
        examples=["within_region"],
    )
    after_call: Text | None = Field(
        default=None,
        description="The tool that sees the result of each call before the model does. It can "
        "replace or withhold it.",
        examples=["shorten"],
    )
    tools: list[Text] = Field(
        default=[],
        description="Names or globs of the called tools, as the model knows them. Default: all. "
        "A handoff is a call of `transfer_to_NAME`.",
        examples=[["refund", "github.delete_*"]],
    )


class Code(Part):
    """Programs of the model, which call the tools of the agent."""

    NOUN = "'code'"
    MAIN = "in"

    in_: Text = Field(
        alias="in",
        description="The environment of the agent in which programs run, of kind `python`.",
        examples=["box"],
    )
    direct: list[Text] = Field(
        default=[],
        description="Names or globs of the tools that the model calls itself, not in programs.",
        examples=[["search"]],
    )


class AgentLimits(Part):
    """Limits on an agent's tool calls."""

    NOUN = "'limits' of an agent"

    calls: Positive | None = Field(
        default=None,
        description="The maximum number of its tool calls in an execution, in all steps together.",
        examples=[20],
    )


class Agent(Part):
    """A model with instructions and tools."""

    NOUN = "an agent"

    model: ModelName | None = Field(
        default=None,
        description="The model. Default: `defaults.model`, else `FLOWENGINE_MODEL`.",
        examples=["openai/gpt-4o"],
    )
    instructions: Instructions = Field(
        description="The instructions for the model.",
        examples=["You find sources."],
    )
    title: Text | None = Field(
        default=None,
        description="The name that users and functions see. Default: its name here.",
        examples=["Tax expert"],
    )
    description: Text | None = Field(
        default=None,
        description="Its purpose, for agents that may call it or hand over to it.",
        examples=["Finds sources"],
    )
    tools: list[ToolUse] = Field(
        default=[],
        description="Tools that it may call, as names or globs.",
        examples=[["search", "github.get_*", {"tool": "lib.search", "as": "search_library"}]],
    )
    code: Code | None = Field(
        default=None,
        description="Lets the model write programs that call the tools. Only a program's return "
        "value enters the conversation.",
        examples=["box", {"in": "box", "direct": ["search"]}],
    )
    defer: list[Text] = Field(
        default=[],
        description="Names or globs of those of its tools that the model is offered only once it "
        "has found them, by `find_tools`.",
        examples=[["github.*"]],
    )
    skills: list[Text] = Field(
        default=[],
        description="Directories with a `SKILL.md`, as paths or globs relative to the "
        "flow file. The model receives their names and descriptions, and "
        "reads the rest when it needs it.",
        examples=[["./skills/*"]],
    )
    handoffs: list[Handoff] = Field(
        default=[],
        description="Agents to which it may hand over the conversation.",
        examples=[["writer", {"agent": "billing", "sees": "text"}]],
    )
    tool_handoffs: list[AgentName] = Field(
        default=[],
        description="Agents that its tools may hand the conversation over to, by "
        "returning one. With `handoffs`, it has a tool for each instead.",
        examples=[["billing"]],
    )
    returns: Schema | None = Field(
        default=None,
        description="JSON Schema of the final answer. Default: text.",
        examples=[{"type": "object", "properties": {"title": {"type": "string"}}}],
    )
    returns_type: FunctionName | None = Field(
        default=None,
        description="A Python type that validates answers which match `returns`. An answer that it "
        "refuses is sent back to the model.",
        examples=["models:Report"],
    )
    max_turns: MaxTurns = Field(
        default_factory=MaxTurns,
        description="The maximum number of model calls in one step, including handoffs.",
        examples=[10],
    )
    repeats: NotNegative = Field(
        default=3,
        description="How many times in a row the same call may fail in the same way "
        "before the agent is warned. If the agent then repeats the call, its "
        "work ends. 0 means no limit.",
        examples=[5],
    )
    fallbacks: list[ModelName] = Field(
        default=[],
        description="Fallback models, tried in order.",
        examples=[["openai/gpt-4o-mini"]],
    )
    retry: Retry | None = Field(
        default=None,
        description="Retries of one model call. Default: 3 attempts with pauses of 4 to "
        "10 seconds.",
        examples=[5],
    )
    on_crash: OnCrash = Field(
        default="retry",
        description="The treatment of a model call that a crash interrupted: `retry` requests it "
        "again, `ask` asks an operator, `fail` fails the step.",
        examples=["ask"],
    )
    tool_choice: Text | None = Field(
        default=None,
        description="`auto`, `none`, `required`, or the name of a tool that must be called.",
        examples=["required"],
    )
    parallel_tool_calls: bool = Field(
        default=True, description="Whether a reply may contain several calls.", examples=[False]
    )
    function_calling: Literal["native", "text"] | None = Field(
        default=None,
        description="How tools are offered to the model. Default: depends on the model.",
        examples=["text"],
    )
    settings: dict[str, Value] = Field(
        default={},
        description="Settings passed to the provider. They may name secrets.",
        examples=[{"temperature": 0, "api_key": "${{ secrets.KEY }}"}],
    )
    context: ContextWindow | None = Field(
        default=None,
        description="The reduction of a conversation that exceeds the context window. Default: the "
        "agent fails.",
        examples=[{"max_tokens": 50_000, "reduce": "summarize"}],
    )
    checks: list[Check] = Field(
        default=[],
        description="Tools that check prompts and answers of the agent, in this order.",
        examples=[[{"before": "on_topic"}, {"after": "cites_sources"}]],
    )
    hooks: list[Hook] = Field(
        default=[],
        description="Tools that stand around its turns and calls. The first one is the outermost.",
        examples=[[{"before_call": "within_region", "tools": ["refund"]}]],
    )
    limits: AgentLimits | None = Field(
        default=None, description="Limits on its calls.", examples=[{"calls": 20}]
    )
    finish: Literal["answer", "tools"] = Field(
        default="answer",
        description="How the step ends: with a reply without calls, or with a call of "
        "`case_resolved` or `case_not_resolved`, two tools that the agent then has.",
        examples=["tools"],
    )

    environments: EnvironmentUses = Field(
        default=None,
        description="Environments for its tools. Models do not see them.",
        examples=[["sandbox"], {"db": "orders"}],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Check keys that exclude each other."""
        yield from super().problems(given)
        if given.get("finish") == "tools" and "returns" in given:
            message = "'returns' is the form of an answer, but this agent ends by a tool"
            yield MappingProblem("returns", "E103", message, "leave out 'finish', or 'returns'")


class InlineAgent(Agent):
    """An agent that is declared in the step or tool that runs it."""

    instructions: Instructions | None = Field(  # type: ignore[assignment]
        default=None,
        description="The instructions for the model. Default: none.",
        examples=["You find sources."],
    )
    prompt: Value = Field(
        default=None,
        description="The prompt, in place of `with.prompt`.",
        examples=["Summarize ${{ inputs.text }}"],
    )
    chat: bool | None = Field(
        default=None,
        description="Shows each answer to a user, whose reply is the next message.",
        examples=[True],
    )
