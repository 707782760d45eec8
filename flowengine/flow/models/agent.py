"""Agents: models with instructions and tools, which steps run until they have an answer."""

import re
from typing import Annotated, Any, Literal, NamedTuple

from flowengine.flow.models.base import ExclusiveKeys, Field, KeyExcludes, Part
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
    matching,
    one_or_many,
    one_or_many_schema,
    wrong,
)
from flowengine.sdk.python.imported_modules import NO_FILES, may_read_files


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
AnswerSchema = Annotated[
    dict[str, Any],
    CheckedType(_schema),
    AsSchema({"$ref": "#/$defs/AnswerSchema"}),
    IsSchema(frozenset({"python"})),
]
"""The same of an answer, with `python`."""


_AGENT_NAME = rf"{ID}(\.{ID})?"
_TOOL_PATTERN = r"[a-z*?\[][A-Za-z0-9_*?\[\]!-]*(\.[A-Za-z0-9_*?\[\]!-]+)*"
_CALLED = r"[A-Za-z0-9_.-]{1,64}"
_FUNCTION = r"[^\s:]+:[^\s:]+"
_MODEL_NAME = r"[^\s/]+/\S+"
_SCRIPT = r"scripted/(.*\.(?:ya?ml|json))"


AgentName = Annotated[
    str,
    matching(_AGENT_NAME, "the name of an agent", generated=GENERATED_ID),
    AsSchema({"type": "string", "pattern": f"^{_AGENT_NAME}$"}),
]
"""The name of an agent: `name` or `alias.name`."""
ToolPattern = Annotated[
    str,
    matching(_TOOL_PATTERN, "the name of a tool, or a glob"),
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
    matching(_CALLED, "a name that models can call", "letters, digits, '_', '-' and '.'"),
    AsSchema({"type": "string", "pattern": f"^{_CALLED}$"}),
]
_named_model = matching(
    _MODEL_NAME, "a model such as openai/gpt-4o", "write it as provider/model", generated=r"\S+"
)


def _model(value: Any) -> str:
    """Return the name of a model, which can be that of a script in a file."""
    text: str = _named_model.check(value)
    if not may_read_files() and script_of(text) is not None:
        wrong("a model of a provider", value, NO_FILES)
    return text


def script_of(model: str) -> str | None:
    """Return the path of the script of replies that a model names, if it names one."""
    script = re.fullmatch(_SCRIPT, model)
    return None if script is None else script[1]


_NAMED_MODEL = {"type": "string", "pattern": f"^{_MODEL_NAME}$"}
ModelName = Annotated[str, CheckedType(_model), AsSchema(_NAMED_MODEL)]
ModelNames = Annotated[
    list[str],
    CheckedType(one_or_many(_model)),
    one_or_many_schema(_NAMED_MODEL),
]
"""A model, or several: the first one is called, and the others are its fallbacks, in order."""


def is_model_name(text: str) -> bool:
    """Return whether a text can name a model."""
    return re.fullmatch(_MODEL_NAME, text) is not None


class Instructions(Part):
    """The instructions of an agent."""

    NOUN = "'instructions'"
    MAIN = "text"
    RULES = (ExclusiveKeys(("text", "file", "python")),)

    text: Template | None = Field(
        default=None, examples=["Answer questions about ${{ inputs.product }}."]
    )
    """The text. Its expressions see `inputs`, `state`, `execution` and `now`."""
    file: Text | None = Field(default=None, examples=["prompts/researcher.md"])
    """A file with the text, relative to the flow file. It contains no expressions."""
    python: FunctionName | None = Field(default=None, examples=["prompts:of_today"])
    """A Python function, `module:function`, that returns the text. It is called before each turn,
    with the context variables if it has a parameter."""


class ToolUse(Part):
    """A tool that an agent may call."""

    NOUN = "a tool of an agent"
    MAIN = "tool"

    tool: ToolPattern = Field(examples=["search", "github.get_*"])
    """A name, or a glob over names."""
    as_: CalledTool | None = Field(default=None, key="as", examples=["find_order"])
    """The name that the model, rules and approvals use."""


class MaxTurns(Part):
    """Maximum number of model calls of an agent in one step."""

    NOUN = "'max_turns'"
    MAIN = "count"

    count: Positive = Field(default=30, examples=[10])
    """The number of calls of a model."""
    then: Literal["fail", "answer"] = Field(default="fail", examples=["answer"])
    """The effect of the limit: the agent fails, or its last call is made without tools, so that it
    returns an answer."""


class ContextWindow(Part):
    """The reduction of a conversation that exceeds the model's context window."""

    NOUN = "'context'"
    MAIN = "reduce"

    tokens: Positive | None = Field(default=None, examples=[50_000])
    """Maximum tokens of a request, estimated. Default: the context window of the model."""
    reduce: Text = Field(default="drop", examples=["summarize"])
    """How the oldest messages are reduced: `drop` omits them, `summarize` has the model summarize
    them, and the name of a tool has that tool summarize them."""
    keep: Positive | None = Field(default=None, examples=[3])
    """The number of newest replies whose results stay when older long results are replaced by
    notes, before any message is left out. The model reads one again with `read_result`."""


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
    RULES = (
        KeyExcludes("args", "tool", "they are the arguments of the tool. Leave one out", (False,)),
    )

    agent: AgentName = Field(examples=["billing"])
    """The other agent."""
    args: Schema | None = Field(
        default=None, examples=[{"type": "object", "properties": {"reason": {"type": "string"}}}]
    )
    """JSON Schema of the arguments, an object, that the model passes. They become the context
    variable `handoff`."""
    context: Annotated[
        Any,
        CheckedType(_sees),
        AsSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}),
    ] = Field(default="all", examples=["text", 10])
    """The part of the earlier conversation that the other agent sees: `all`, `text` (without calls
    and results), `args` (the call of the handoff alone), the number of newest messages, or the name
    of a tool that summarizes it."""
    tool: bool = Field(default=True, examples=[False])
    """Whether the model has a tool for it. Otherwise tools hand over to the agent, by returning it.
    """


class Check(Part):
    """A tool that checks the prompt or the answer of an agent, and raises an error on a fault."""

    NOUN = "a check"
    RULES = (ExclusiveKeys(("before", "after")),)

    before: Text | None = Field(default=None, examples=["on_topic"])
    """The tool that checks the prompt of the agent. It receives `prompt`."""
    after: Text | None = Field(default=None, examples=["cites_sources"])
    """The tool that checks the answer. It receives `answer` and, if it has the parameter, `prompt`.
    """
    then: Literal["tell", "end"] | None = Field(default=None, examples=["end"])
    """The effect of an error that it raises: `tell` sends it to the model, `end` ends the step as
    `not_resolved`. Default: `end` before, `tell` after."""
    parallel: bool = Field(default=False, examples=[True])
    """Before: whether the model is asked while the check of the prompt runs. Nothing of its reply
    is used or shown before the check has passed. After: whether the check also judges text that
    arrives, and nothing is shown before it has passed. An error closes the request."""


class Hook(Part):
    """A tool that stands around the turns or the calls of an agent."""

    NOUN = "a hook"
    RULES = (ExclusiveKeys(("before", "after")),)

    before: Literal["turn", "call"] | None = Field(default=None, examples=["call"])
    """`turn`: it is called before each call of the model, and can choose the model and the tools of
    the turn, add a message, answer, or refuse. `call`: it sees each tool call before rules and
    approvers do, and can change the arguments, have approvers asked, answer in place of the tool,
    or refuse."""
    after: Literal["turn", "call"] | None = Field(default=None, examples=["turn"])
    """`turn`: it sees each reply before its calls are made, and can refuse the reply, or answer in
    its place. `call`: it sees the result of each tool call before the model does, and can replace
    or withhold it."""
    call: Text = Field(examples=["within_region"])
    """The tool that is called."""
    tools: list[Text] = Field(default=[], examples=[["refund", "github.delete_*"]])
    """Names or globs of the called tools, as the model knows them. Default: all. A handoff is a
    call of `transfer_to_NAME`."""


class Code(Part):
    """Programs of the model, which call the tools of the agent."""

    NOUN = "'code'"
    MAIN = "in"

    in_: Text = Field(key="in", examples=["box"])
    """The environment of the agent in which programs run, of kind `python`."""
    direct: list[Text] = Field(default=[], examples=[["search"]])
    """Names or globs of the tools that the model calls itself, not in programs."""


class AgentLimits(Part):
    """Limits on an agent's tool calls."""

    NOUN = "'limits' of an agent"

    calls: Positive | None = Field(default=None, examples=[20])
    """The maximum number of its tool calls in an execution, in all steps together."""


class Agent(Part):
    """A model with instructions and tools."""

    NOUN = "an agent"
    RULES = (KeyExcludes("returns", "finish", "it ends by a tool then. Leave one out", ("tools",)),)

    model: ModelNames | None = Field(
        default=None, examples=["openai/gpt-4o", ["openai/gpt-4o", "openai/gpt-4o-mini"]]
    )
    """The model, or a list: the others are its fallbacks, in order. Default: `defaults.model`, else
    `FLOWENGINE_MODEL`."""
    instructions: Instructions = Field(examples=["You find sources."])
    """The instructions for the model."""
    title: Text | None = Field(default=None, examples=["Tax expert"])
    """The name that users and functions see. Default: its name here."""
    description: Text | None = Field(default=None, examples=["Finds sources"])
    """Its purpose, for agents that may call it or hand over to it."""
    tools: list[ToolUse] = Field(
        default=[],
        examples=[["search", "github.get_*", {"tool": "lib.search", "as": "search_library"}]],
    )
    """Tools that it may call, as names or globs."""
    code: Code | None = Field(default=None, examples=["box", {"in": "box", "direct": ["search"]}])
    """Lets the model write programs that call the tools. Only a program's return value enters the
    conversation."""
    defer: list[Text] = Field(default=[], examples=[["github.*"]])
    """Names or globs of those of its tools that the model is offered only once it has found them,
    by `find_tools`."""
    skills: list[Text] = Field(default=[], examples=[["./skills/*"]])
    """Directories with a `SKILL.md`, as paths or globs relative to the flow file. The model
    receives their names and descriptions, and reads the rest when it needs it."""
    handoffs: list[Handoff] = Field(
        default=[], examples=[["writer", {"agent": "billing", "context": "text"}]]
    )
    """Agents to which it may hand over the conversation."""
    returns: AnswerSchema | None = Field(
        default=None,
        examples=[
            {"type": "object", "properties": {"title": {"type": "string"}}},
            {"python": "models:Report"},
        ],
    )
    """JSON Schema of the final answer, or a Python type as `python`. Default: text."""
    max_turns: MaxTurns = Field(default=MaxTurns(), examples=[10])
    """The maximum number of model calls in one step, including handoffs."""
    repeats: NotNegative = Field(default=3, examples=[5])
    """How many times in a row the same call may fail in the same way before the agent is warned. If
    the agent then repeats the call, its work ends. 0 means no limit."""
    retry: Retry | None = Field(default=None, examples=[5])
    """Retries of one model call. Default: 3 attempts with pauses of 4 to 10 seconds."""
    on_crash: OnCrash = Field(default="retry", examples=["ask"])
    """The treatment of a model call that a crash interrupted: `retry` requests it again, `ask` asks
    an operator, `fail` fails the step."""
    function_calling: Literal["native", "text"] | None = Field(default=None, examples=["text"])
    """How tools are offered to the model. Default: depends on the model."""
    settings: dict[str, Value] = Field(
        default={}, examples=[{"temperature": 0, "api_key": "${{ secrets.KEY }}"}]
    )
    """Settings passed to the provider. They may name secrets. `tool_choice` is `auto`, `none`,
    `required`, or the name of a tool that must be called. `parallel_tool_calls` is whether a reply
    may contain several calls."""
    context: ContextWindow | None = Field(
        default=None, examples=[{"tokens": 50_000, "reduce": "summarize"}]
    )
    """The reduction of a conversation that exceeds the context window. Default: the agent fails."""
    checks: list[Check] = Field(
        default=[], examples=[[{"before": "on_topic"}, {"after": "cites_sources"}]]
    )
    """Tools that check prompts and answers of the agent, in this order."""
    hooks: list[Hook] = Field(
        default=[], examples=[[{"before": "call", "call": "within_region", "tools": ["refund"]}]]
    )
    """Tools that stand around its turns and calls. The first one is the outermost."""
    limits: AgentLimits | None = Field(default=None, examples=[{"calls": 20}])
    """Limits on its calls."""
    finish: Literal["answer", "tools"] = Field(default="answer", examples=["tools"])
    """How the step ends: with a reply without calls, or with a call of `case_resolved` or
    `case_not_resolved`, two tools that the agent then has."""

    environments: EnvironmentUses = Field(default=None, examples=[["sandbox"], {"db": "orders"}])
    """Environments for its tools. Models do not see them."""

    @property
    def led_to(self) -> list[str]:
        """The agents that it may hand over to itself, or its tools."""
        return [handoff.agent for handoff in self.handoffs]


class InlineAgent(Agent):
    """An agent that is declared in the step or tool that runs it."""

    instructions: Instructions | None = Field(  # type: ignore[assignment]
        default=None, examples=["You find sources."]
    )
    """The instructions for the model. Default: none."""
    prompt: Value = Field(default=None, examples=["Summarize ${{ inputs.text }}"])
    """The prompt, in place of `with.prompt`."""
    chat: bool | None = Field(default=None, examples=[True])
    """Shows each answer to a user, whose reply is the next message."""
