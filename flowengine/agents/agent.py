"""What an agent in Python is, the results of its tools, and the response of a run."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    ModelWrapValidatorHandler,
    field_serializer,
    model_validator,
)
from pydantic import ValidationError as InvalidFields
from typing_extensions import TypeForm, TypeVar

from flowengine.agents.agent_mistakes import check_names, missing_attribute, wrong_values
from flowengine.agents.agent_tools import (
    AgentAsTool,
    AgentWithTools,
    environment_names,
    is_tool,
    takes_deps,
)
from flowengine.agents.function_schemas import check_name, read_tool
from flowengine.agents.models.port import MODEL_VARIABLE
from flowengine.agents.termination import TURNS
from flowengine.errors import UsageError
from flowengine.sdk import ValidationError
from flowengine.sdk.python.argument_checks import in_words
from flowengine.sdk.python.conversions import Misfit, conversion_to
from flowengine.sdk.python.schema_forms import is_plain
from flowengine.sdk.python.tagged_unions import schema_for_models, tagged
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.texts.json_values import plain
from flowengine.sdk.values.plain_values import to_plain

Out = TypeVar("Out", default=Any)
"""The type of an agent's answers."""
Deps = TypeVar("Deps", default=Any)
"""The class of the object that its functions take."""

AT_LIMIT = ("fail", "answer")
_CHECK = "say {'before': function} or {'after': function}"
_HOOK = "say {'before': 'call', 'call': function}, with 'before' or 'after' a 'turn' or a 'call'"
_DATA = (str, int, float, bool, bytes, list, dict, tuple, set)


def turn_limit(spec: int | Mapping[str, Any]) -> dict[str, Any]:
    """Return the turn limit for a value of `max_turns`, in long form.

    Args:
        spec: A number, or `{"count": 10, "then": "answer"}`. `then` decides about the last turn:
            it fails, or the model answers without tools.

    Raises:
        UsageError: The value has another form.
    """
    given = dict(spec) if isinstance(spec, Mapping) else {"count": spec}
    limit = {"count": TURNS, "then": "fail", **given}
    turns = limit["count"]
    if len(limit) > 2 or type(turns) is not int or turns < 1 or limit["then"] not in AT_LIMIT:
        raise UsageError(
            f"max_turns is {spec!r}",
            hint="give a whole number from 1 on, or {'count': 10, 'then': 'answer'}",
        )
    return limit


Termination = Literal[
    "", "resolved", "not_resolved", "max_turns", "budget", "no_progress", "tools_not_executed"
]


Instructions = str | Callable[..., str]


@dataclass(frozen=True)
class Handoff:
    """An agent that another one can hand off to, and its input.

    Args:
        agent: The other agent.
        args: Form of the arguments that the model passes: a type with fields, such as a pydantic
            model, or a JSON Schema of an object. They become the context variable `handoff`.
        context: The part of the earlier conversation that the other agent sees: `all`, `text`
            (without calls and results), `args` (the call of the handoff alone), a number of newest
            messages, or a function that takes `messages` and returns a summary.
    """

    agent: AgentDefinition
    args: Any = None
    context: str | int | Callable[..., str] = "all"


class AgentDefinition(AgentWithTools, Generic[Out, Deps]):
    """What an agent is: the fields and checks of `Agent`, which runs it."""

    if not TYPE_CHECKING:

        def __init__(self, /, *positional: Any, **fields: Any) -> None:
            if positional:
                raise UsageError(
                    "an agent is given its fields by name",
                    hint=f"write Agent(name={in_words(positional[0])}, instructions='…')",
                )
            super().__init__(**fields)

        def __getattr__(self, name: str) -> Any:
            if (message := missing_attribute("an agent", name)) is not None:
                raise AttributeError(message)
            return super().__getattr__(name)

    model: str | Annotated[list[str], Field(min_length=1)] = Field(
        default_factory=lambda: os.environ.get(MODEL_VARIABLE) or "gpt-4o"
    )
    """The model, or a list: the others are its fallbacks, in order. Default: the value of
    `FLOWENGINE_MODEL`, otherwise `gpt-4o`."""
    instructions: Instructions = "You are a helpful agent."
    """Text, or a function that returns it. The function is called before every turn. If it has a
    parameter, it receives the context variables."""
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or the name of a tool that must be called."""
    parallel_tool_calls: bool = True
    context_variables_description: str = ""
    """Description of the context variables, appended to the instructions."""

    description: str = ""
    retry: dict[str, Any] | int | None = None
    """Retries of a model call, as `retry` in a flow file. Default: 3 attempts, 4 to 10 seconds
    apart."""
    on_crash: Literal["retry", "ask", "fail"] = "retry"
    """Treatment of a model call that a crash interrupted: request it again, ask an operator, or
    fail."""
    function_calling: Literal["native", "text"] | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings passed to the provider: `temperature`, `max_tokens`, …"""
    repeats: int = Field(default=3, ge=0)
    """Number of identical failures of the same call, in a row, after which the model is warned. If
    the model repeats the call, its work ends. 0: unlimited."""
    if TYPE_CHECKING:
        returns: TypeForm[Out] = cast("TypeForm[Out]", None)  # a union would lose `A | B`
    else:
        returns: Any = None
    """Form of the answer: a JSON Schema, or a type such as a pydantic model or a dataclass, whose
    instance the response contains. None: text."""
    deps: type[Deps] | None = None
    """The class of an object that a run is given as `deps`. Tools, checks and instructions receive
    it through a parameter of this class. It is never stored, and the model never sees it."""
    context: dict[str, Any] | str | Callable[..., str] | None = None
    """`{"tokens": 50_000, "reduce": "drop"}`: how to reduce a conversation that no longer fits the
    model. `tokens` defaults to the limit of the model. `reduce` is `drop`, `summarize`, or a
    function that takes `messages`, optionally `summary`, and returns the new summary. A string is
    short for `{"reduce": string}`. With `"keep": 3`, long results that came before the newest 3
    replies become notes first. None: a run that exceeds the limit fails."""
    checks: list[Any] = Field(default_factory=list)
    """Functions that check the prompts of the agent, `{"before": on_topic}`, and its answers,
    `{"after": cites_sources}`. A check passes by returning and fails by raising. After a failure,
    `"then": "end"` ends the work, and `"then": "tell"` sends the error to the model. Default: `end`
    for prompts, `tell` for answers."""
    hooks: list[Any] = Field(default_factory=list)
    """Functions around its turns and calls: `{"before": "call", "call": f, "tools": ["refund_*"]}`.
    `before` and `after` are `turn` or `call`. Each function takes the arguments that it names, and
    returns None or the changes. The first one is the outermost."""
    defer: list[str] = Field(default_factory=list)
    """Names or globs of those of its tools that the model is offered only once it has found them,
    by the tool `find_tools` that it receives then."""
    code: str | dict[str, Any] | None = None
    """`"box"` or `{"in": "box", "direct": ["search"]}`: the model writes programs that call the
    tools, all but those in `direct`. They run in this one of the `environments`, of kind `python`.
    Only a program's return value enters the conversation."""
    skills: list[str | PathLike[str]] = Field(default_factory=list)
    """Directories with a `SKILL.md`, as paths or globs, relative to the current directory."""
    handoffs: list[AgentDefinition | InstanceOf[Handoff]] = Field(default_factory=list, repr=False)
    """Agents that this agent can hand the conversation off to. Two agents can name each other. A
    `Handoff` also declares arguments, and how much the other agent sees."""

    @model_validator(mode="wrap")
    @classmethod
    def _has_such_fields(
        cls, given: Any, handler: ModelWrapValidatorHandler[AgentDefinition]
    ) -> AgentDefinition:
        """Reject unknown fields, suggesting the one that was probably meant, and wrong values."""
        if not isinstance(given, dict):
            return handler(given)
        check_names("an agent", given, cls.model_fields)
        try:
            return handler(given)
        except InvalidFields as error:
            raise wrong_values(error, given, default=cls.model_fields["name"].default) from None

    @model_validator(mode="after")
    def _can_be_called(self) -> AgentDefinition:
        self.check()
        return self

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields by which agents differ, for `repr`."""
        yield from (("name", self.name), ("model", self.model))
        given = (*self.tools, *self.ready)
        tools = [getattr(tool, "name", None) or getattr(tool, "__name__", "…") for tool in given]
        yield from (("tools", tools),) if tools else ()
        handoffs = [agent.name for agent in self.handoff_targets]
        yield from (("handoffs", handoffs),) if handoffs else ()

    def check(self) -> None:
        """Check the functions of the agent, which may have changed since its creation.

        The compiler of the flow that runs the agent checks everything else.

        Raises:
            UsageError: A run would fail. The message names the agent, the function and its
                parameter.
        """
        if not self.name.strip():
            raise UsageError("an agent has no name", hint="give it one: Agent(name=…)")
        if self.deps in _DATA:
            raise UsageError(
                f"agent {self.name!r}: deps is {in_words(self.deps)}, whose values models give",
                hint="write a class with the values that the functions need: Agent(deps=Deps)",
            )
        with self._named():
            self.answer_schema()
            self.check_tools()
            names = [tool.name for tool in self.ready]
            for function in self.tools:
                name = self._tool_name(function)
                if name in names:
                    raise UsageError(
                        f"agent {self.name!r} has two functions named {name!r}",
                        hint="rename one: a model calls them by their names",
                    )
                names.append(name)
            for field, form in (("checks", _CHECK), ("hooks", _HOOK)):
                for place, entry in enumerate(getattr(self, field)):
                    if not isinstance(entry, Mapping):
                        raise UsageError(f"{field}[{place}] is {in_words(entry)}", hint=form)
            for function in self.helper_functions:
                self._tool_name(function)

    def _tool_name(self, function: Any) -> str:
        """Return the name of a tool, and reject a function that no model can call."""
        if isinstance(function, AgentAsTool):
            check_name(function.name)
            turn_limit(function.max_turns)
            return function.name
        return read_tool(function, environments=environment_names(self, function))[0]

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add the name of the agent to the messages of errors."""
        try:
            yield
        except UsageError as error:
            message, named = error.message, f"agent {self.name!r}"
            if not message.startswith(named):
                message = f"{named}: {message}"
            raise UsageError(message, hint=error.hint) from None

    @property
    def handoff_targets(self) -> list[AgentDefinition]:
        """The agents of `handoffs`."""
        return [one.agent if isinstance(one, Handoff) else one for one in self.handoffs]

    @property
    def helper_functions(self) -> list[Any]:
        """Functions that run without the model calling them: checks, hooks and summarizers."""
        reduce = self.context.get("reduce") if isinstance(self.context, dict) else self.context
        entries = [entry for entry in (*self.checks, *self.hooks) if isinstance(entry, Mapping)]
        values = [value for entry in entries for value in entry.values()]
        values += [entry.context for entry in self.handoffs if isinstance(entry, Handoff)]
        return [value for value in (*values, reduce) if is_tool(value)]

    def deps_parameters(self) -> list[str]:
        """Return the names of the parameters that receive `deps`, of all functions."""
        asked = [self.instructions] if callable(self.instructions) else []
        functions = (*self.tools, *self.helper_functions, *asked)
        return [
            name
            for function in functions
            if not isinstance(function, AgentAsTool)
            for name in takes_deps(self.deps, function)
        ]

    def answer_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the answer, or None for text.

        Raises:
            UsageError: `returns` has no JSON Schema.
        """
        return self.form_of("returns", self.returns)

    def form_of(self, field: str, returns: Any) -> dict[str, Any] | None:
        """Return the JSON Schema of a form that the agent declares.

        Args:
            field: The field that declares it, for the message.
            returns: A type, a JSON Schema, or None.

        Raises:
            UsageError: The type has no JSON Schema.
        """
        if returns is None or isinstance(returns, dict):
            return returns

        try:
            return schema_for_models(returns)
        except UsageError as error:
            raise UsageError(
                f"agent {self.name!r}: {field}: {error.message}", hint=error.hint
            ) from None
        except Exception as error:
            raise UsageError(
                f"agent {self.name!r}: {field}: {in_words(returns)} has no JSON Schema: {error}",
                hint="use a pydantic model, a dataclass, another plain type, or a JSON Schema",
            ) from None

    def as_tool(
        self,
        name: str = "",
        description: str = "",
        *,
        max_turns: int | Mapping[str, Any] = TURNS,
        background: bool | Mapping[str, int] = False,
    ) -> AgentAsTool:
        """Return this agent as a tool for another agent.

        This agent receives the prompt of the call, not the conversation. Its functions receive the
        context variables of the calling agent. Changes they make are not visible to the calling
        agent.

        Args:
            name: Name of the tool. Default: derived from the name of the agent, such as
                `tax_expert` for "Tax expert".
            description: Description for the calling model. Default: that of the agent.
            max_turns: Turn limit of each call, as for `Runner.run`.
            background: Whether a call starts a separate execution, which the calling agent does not
                wait for. `{"max": 50, "count": 500}` sets its bounds.

        Returns:
            The tool.
        """
        called = name or re.sub(r"[^A-Za-z0-9_-]+", "_", self.name).strip("_").lower()
        description = description or self.description
        return AgentAsTool(self, called, description, max_turns, background)

    def answer(self, value: Any) -> Any:
        """Return an answer as an instance of `returns`, if that is a type.

        Raises:
            ValidationError: The answer fits the schema of the type, but not the type itself.
        """
        if self.returns is None or isinstance(self.returns, dict):
            return value

        try:
            return typed_answer(self.returns, value)
        except Misfit as misfit:
            raise ValidationError(
                f"the answer of agent {self.name!r} fits the schema of its type, but not the "
                f"type: {misfit}"
            ) from misfit


def typed_answer(type: Any, value: Any) -> Any:
    """Return an answer as an instance of a type.

    Raises:
        Misfit: The type refuses it. The message lists every fault.
    """
    convert = conversion_to(tagged(type, reads_plain=True))
    return value if convert is None else convert(value)


def instructions_of(
    name: str,
    instructions: Any,
    description: str,
    context_variables: Mapping[str, Any],
    objects: Mapping[str, Any] = {},
) -> str:
    """Return the instructions of an agent for its next turn.

    Args:
        name: Name of the agent.
        instructions: Text, or a function that returns it.
        description: Description of the context variables, possibly empty.
        context_variables: Their current values.
        objects: Objects for parameters with their names. Another one gets the variables.

    Returns:
        The text.

    Raises:
        ValidationError: The function raised, or returned no text.
    """
    text = instructions
    if callable(instructions):
        try:
            takes = inspect.signature(instructions).parameters
            given = {name: objects[name] for name in takes if name in objects}
            first = next((name for name in takes if name not in given), None)
            if given and first is not None:
                text = instructions(**given, **{first: dict(context_variables)})
            else:
                text = instructions(*[dict(context_variables)] * (first is not None), **given)
        except Exception as error:
            raise ValidationError(
                f"the instructions of agent {name!r} raised {describe(error)}",
                retryable=False,
            ) from error
    if not isinstance(text, str):
        raise ValidationError(
            f"the instructions of agent {name!r} are a {type(text).__name__}: return a str",
            retryable=False,
        )
    return f"{text}\n\n{description}" if description else text


class Result(BaseModel):
    """The result of a tool, with effects on the run.

    Attributes:
        value: The result for the model.
        agent: The agent that takes over.
        context_variables: Changes of the context variables, as plain data.
        image: One or several images for the model, as bytes or `data:` URLs.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    value: Any = ""
    agent: AgentDefinition | None = None
    context_variables: dict[str, Any] = Field(default_factory=dict)
    image: bytes | str | list[bytes | str] | None = None


class Response(BaseModel, Generic[Out]):
    """The response of a run. If the run waits, its progress so far.

    As JSON, it has the name of the agent, and the context variables without live objects.

    Attributes:
        messages: The new messages, as plain dicts. While some calls of the last reply wait, they
            include the results of the others.
        agent: The agent that was active last, an `Agent`. None: no reply has named one yet.
        context_variables: Their current values, live objects included.
        history: All messages, including those of the caller.
        termination: Why the run ended. Empty while it waits.
        output: The answer, or the argument of `case_resolved`. None while the run waits.
        reason: Why the run did not end as `resolved`.
        usage: Tokens and cost of all model calls, and under `models` those of each model.
        execution: Id of the execution, for `Engine.executions.show`.
        waits: Open approvals and questions, with the keys of `WaitInfo`: `id`, `title`, `tool`,
            `subject` (the arguments of the call), `preview`, …
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if (message := missing_attribute("a response", name)) is not None:
                raise AttributeError(message)
            return super().__getattr__(name)

    messages: list[dict[str, Any]] = Field(default_factory=list)
    agent: Any = None
    context_variables: dict[str, Any] = Field(default_factory=dict)
    history: list[dict[str, Any]] = Field(default_factory=list)
    termination: Termination = ""
    if TYPE_CHECKING:
        output: Out = cast("Out", None)
    else:
        output: Any = None
    reason: str = ""
    usage: dict[str, Any] = Field(default_factory=dict)
    execution: str = ""
    waits: list[dict[str, Any]] = Field(default_factory=list)

    @field_serializer("agent", when_used="json")
    def _name_of(self, agent: Any) -> str | None:
        return None if agent is None else agent.name

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the outcome, for `repr`. The messages would fill pages."""
        if self.waits:
            yield "waits", [wait.get("title") or wait.get("type") for wait in self.waits]
        else:
            yield from (("output", self.output), ("termination", self.termination))
        if self.agent is not None:
            yield "agent", self.agent.name
        yield from (("messages", len(self.messages)), ("execution", self.execution))

    @field_serializer("output", when_used="json")
    def _plain_output(self, output: Any) -> Any:
        return json.loads(json.dumps(to_plain(output, number_keys=True), default=plain))

    @field_serializer("context_variables", when_used="json")
    def _data_of(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in variables.items() if is_plain(value)}
