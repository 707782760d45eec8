"""Agents as Python objects: what they are, what their tools may return, what a run gives back."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from flowengine.agents.agent_as_tool import AgentAsTool, is_tool
from flowengine.agents.agent_tools import AgentWithTools
from flowengine.agents.first_messages import VARIABLE
from flowengine.agents.flow_environments import environment_names
from flowengine.agents.function_schemas import check_name, read_tool
from flowengine.agents.turn_limit import TURNS, turn_limit
from flowengine.argument_checks import check_keywords
from flowengine.errors import UsageError
from flowengine.sdk import ValidationError

Termination = Literal[
    "", "resolved", "not_resolved", "max_turns", "budget", "no_progress", "tools_not_executed"
]


Instructions = str | Callable[..., str]

INSTEAD = {
    "examples": "put them before the user's message: run(agent, [*examples, message])",
    "handle_mm_func": "a tool returns Result(image=…), and the model is shown it",
}
"""What to write instead of fields that agents have elsewhere."""


class Agent(AgentWithTools):
    """A model with instructions and tools.

    A tool is a Python function; its type hints are its schema. One that returns an agent, or a
    `Result` with one, hands the conversation over to it; so does the tool `transfer_to_NAME` that
    the model gets for each agent of `handoffs`. An agent that has `case_resolved` or
    `case_not_resolved` among its tools ends by calling one of them, any other by an answer without
    calls.
    """

    model: str = Field(default_factory=lambda: os.environ.get(VARIABLE) or "gpt-4o")
    """Default: the one that the variable `FLOWENGINE_MODEL` names, otherwise `gpt-4o`."""
    instructions: Instructions = "You are a helpful agent."
    """Text, or a function that returns it: called before every turn, with the context variables if
    it has a parameter."""
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or the name of a tool that must be called."""
    parallel_tool_calls: bool = True
    context_variables_description: str = ""
    """Added to the instructions."""

    description: str = ""
    fallbacks: list[str] = Field(default_factory=list)
    """Models that are tried in order when one cannot answer."""
    retry: dict[str, Any] | int | None = None
    """Of one call of a model, as `retry` in a flow file; default: 3 attempts, pauses of 4 to 10
    seconds."""
    function_calling: Literal["native", "text"] | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    """Passed to the provider: `temperature`, `max_tokens`, …"""
    repeats: int = Field(default=3, ge=0)
    """How many times in a row the same call may fail in the same way before the agent is told; if
    it calls it again, its work ends. 0: no limit."""
    returns: Any = None
    """What an answer has to be: a type, such as a pydantic model or a dataclass, of which the
    response has an instance; or a JSON Schema. None: text."""
    context: dict[str, Any] | str | Callable[..., str] | None = None
    """What happens when the conversation no longer fits the model: `{"max_tokens": 50_000,
    "reduce": "drop"}`. Default of `max_tokens`: as many as fit the model. `reduce` is `drop`,
    `summarize`, or a function that takes `messages` and perhaps `summary` and returns the new
    summary. A text stands for `{"reduce": text}`. None: the run fails."""
    checks: list[Any] = Field(default_factory=list)
    """Functions that check what the agent is asked, `{"before": on_topic}`, and its answers,
    `{"after": cites_sources}`: they pass by returning and fail by raising. `"then": "end"` ends the
    work, `"tell"` tells the model; default: `end` before, `tell` after."""
    skills: list[str | PathLike[str]] = Field(default_factory=list)
    """Folders with a `SKILL.md`, as paths or globs; relative ones start at the current folder."""
    handoffs: list[Agent] = Field(default_factory=list, repr=False)
    """Agents to which it may hand the conversation over; two may name each other."""

    @model_validator(mode="before")
    @classmethod
    def _has_such_fields(cls, given: Any) -> Any:
        """Name the field that is meant instead of one that there is not."""
        if not isinstance(given, dict):
            return given
        for name in given.keys() - cls.model_fields.keys():
            if name in INSTEAD:
                raise UsageError(f"an agent has no {name!r}", hint=INSTEAD[name])
        check_keywords("an agent", given, cls.model_fields)
        return given

    @model_validator(mode="after")
    def _can_be_called(self) -> Agent:
        self.check()
        return self

    def check(self) -> None:
        """Check what a run would fail at, as far as it is about its functions.

        They may have changed since it was built. Everything else is checked by the compiler of
        the flow that runs it.

        Raises:
            UsageError: What is wrong; the message names agent, function and parameter.
        """
        if not self.name.strip():
            raise UsageError("an agent has no name", hint="give it one: Agent(name=…)")
        with self._named():
            self.answer_schema()
            self.check_tools()
            names = [one.name for one in self.ready]
            for function in self.tools:
                name = self._tool_name(function)
                if name in names:
                    raise UsageError(
                        f"agent {self.name!r} has two functions named {name!r}",
                        hint="rename one: a model calls them by their names",
                    )
                names.append(name)
            for place, check in enumerate(self.checks):
                if not isinstance(check, dict):
                    raise UsageError(
                        f"checks[{place}] is {check!r}",
                        hint="say {'before': function} or {'after': function}",
                    )
            for function in self.beside:
                self._tool_name(function)

    def _tool_name(self, function: Any) -> str:
        """Return the name of a function or agent that is a tool; refuse what no model can call."""
        if isinstance(function, AgentAsTool):
            check_name(function.name)
            turn_limit(function.max_turns)
            return function.name
        return read_tool(function, environments=environment_names(self, function))[0]

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Have errors name the agent."""
        try:
            yield
        except UsageError as error:
            message, named = error.message, f"agent {self.name!r}"
            if not message.startswith(named):
                message = f"{named}: {message}"
            raise UsageError(message, hint=error.hint) from None

    @property
    def beside(self) -> list[Any]:
        """Functions that it does not call by itself: those that check, or summarize."""
        reduce = self.context.get("reduce") if isinstance(self.context, dict) else self.context
        named = [one for check in self.checks if isinstance(check, dict) for one in check.values()]
        return [one for one in (*named, reduce) if is_tool(one)]

    def answer_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema that an answer has to fit; None: it is text.

        Raises:
            UsageError: `returns` has none.
        """
        if self.returns is None or isinstance(self.returns, dict):
            return self.returns
        from flowengine.sdk.python_functions.live_types import schema_of

        try:
            return schema_of(self.returns)
        except Exception as error:
            raise UsageError(
                f"agent {self.name!r}: returns={self.returns!r} has no JSON Schema: {error}",
                hint="say a pydantic model, a dataclass, another plain type, or a JSON Schema",
            ) from None

    def as_tool(
        self, name: str = "", description: str = "", *, max_turns: int | Mapping[str, Any] = TURNS
    ) -> AgentAsTool:
        """Return a tool for the `functions` of another agent, which asks this one.

        This agent sees the prompt it is given, not the conversation. Its functions get the context
        variables of the agent that calls it; what they change stays with it.

        Args:
            name: Of the tool; default: that of the agent, such as `tax_expert` for "Tax expert".
            description: For the model that calls it; default: that of the agent.
            max_turns: As of `Runner.run`, for each call.

        Returns:
            The tool.
        """
        called = name or re.sub(r"[^A-Za-z0-9_-]+", "_", self.name).strip("_").lower()
        return AgentAsTool(self, called, description or self.description, max_turns)

    def answer(self, value: Any) -> Any:
        """Return an answer as an instance of `returns`, if that is a type.

        Raises:
            ValidationError: It fits the schema, and the type wants more than that.
        """
        if self.returns is None or isinstance(self.returns, dict):
            return value
        from pydantic import TypeAdapter
        from pydantic import ValidationError as Invalid

        try:
            return TypeAdapter(self.returns).validate_python(value)
        except Invalid as error:
            raise ValidationError(
                f"the answer of agent {self.name!r} fits the schema of its type, but not the "
                f"type: {error}"
            ) from error


def instructions_of(
    name: str, instructions: Any, description: str, context_variables: Mapping[str, Any]
) -> str:
    """Return the instructions of an agent for its next turn.

    Args:
        name: Of the agent.
        instructions: Text, or a function that returns it.
        description: Of the context variables; may be empty.
        context_variables: As they are now.

    Returns:
        The text.

    Raises:
        ValidationError: The function raised, or returned no text.
    """
    text = instructions
    if callable(instructions):
        try:
            takes = inspect.signature(instructions).parameters
            text = instructions(dict(context_variables)) if takes else instructions()
        except Exception as error:
            raise ValidationError(
                f"the instructions of agent {name!r} raised {type(error).__name__}: {error}",
                retryable=False,
            ) from error
    if not isinstance(text, str):
        raise ValidationError(
            f"the instructions of agent {name!r} are a {type(text).__name__}: return a str",
            retryable=False,
        )
    return f"{text}\n\n{description}" if description else text


class Result(BaseModel):
    """What a tool returns to say more than its value.

    Attributes:
        value: What the model is told.
        agent: Who takes over.
        context_variables: Changes of the context variables; plain data.
        image: An image for the model, as bytes or a `data:` URL; or several.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    value: Any = ""
    agent: Agent | None = None
    context_variables: dict[str, Any] = Field(default_factory=dict)
    image: bytes | str | list[bytes | str] | None = None


class Response(BaseModel):
    """What a run gives back; if it waits, what it has done so far.

    Attributes:
        messages: The new messages, as plain dicts. While calls of the last reply wait, it has the
            results of the others.
        agent: The one that was active last.
        context_variables: As they are now, live objects included.
        history: All messages, those of the caller included.
        termination: Why the run ended; empty while it waits for something.
        result: The answer, or what `case_resolved` was given; None while it waits.
        reason: Why it did not end as `resolved`.
        usage: Tokens and cost of all calls of models together, and under `models` those of each.
        execution: Id of the execution; `Engine.show` tells all of it.
        waits: What it waits for, such as approvals, with the keys of `WaitInfo`: `id`, `title`,
            `tool`, `subject` (the arguments of the call), `preview`, …
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    messages: list[dict[str, Any]] = Field(default_factory=list)
    agent: Agent | None = None
    context_variables: dict[str, Any] = Field(default_factory=dict)
    history: list[dict[str, Any]] = Field(default_factory=list)
    termination: Termination = ""
    result: Any = None
    reason: str = ""
    usage: dict[str, Any] = Field(default_factory=dict)
    execution: str = ""
    waits: list[dict[str, Any]] = Field(default_factory=list)
