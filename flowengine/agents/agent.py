"""Agents as Python objects: what they are, what their tools may return, what a run gives back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from flowengine.agents.equipment import Equipped
from flowengine.agents.flow_environments import environment_names
from flowengine.agents.function_schemas import read_tool
from flowengine.errors import UsageError
from flowengine.sdk import ValidationError

Termination = Literal[
    "", "resolved", "not_resolved", "max_turns", "budget", "no_progress", "tools_not_executed"
]
Instructions = str | Callable[..., str]


def case_resolved(result: str) -> str:
    """End the work: the case is resolved.

    Args:
        result: The result.
    """
    return result


def case_not_resolved(reason: str) -> str:
    """End the work: the case cannot be resolved.

    Args:
        reason: Why not.
    """
    return reason


CASE_TOOLS = (case_resolved, case_not_resolved)


class Agent(Equipped):
    """A model with instructions and tools.

    A tool is a Python function; its type hints are its schema. One that returns an agent, or a
    `Result` with one, hands the conversation over to it. An agent that has `case_resolved` or
    `case_not_resolved` among its functions ends by calling one of them, any other by an answer
    without calls.
    """

    model: str = "gpt-4o"
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
    """How often the same call may fail in the same way, one time after the other, before the agent
    is told; if it goes on, it makes no progress. 0: as often as it likes."""
    returns: Any = None
    """What an answer has to be: a type, such as a pydantic model or a dataclass, of which the
    response has an instance; or a JSON Schema. None: text."""
    context: dict[str, Any] | None = None
    """What happens when the conversation no longer fits the model: `{"max_tokens": 50_000,
    "reduce": "drop"}`, or `"summarize"`. Both keys may be left out: as many tokens as fit the
    model, `drop`. None: the run fails."""

    @model_validator(mode="after")
    def _can_be_called(self) -> Agent:
        self.check()
        return self

    def check(self) -> None:
        """Check what a run would fail at; its functions may have changed since it was built.

        Raises:
            UsageError: What is wrong; the message names agent, function and parameter.
        """
        if not self.name.strip():
            raise UsageError("an agent has no name", hint="give it one: Agent(name=…)")
        if not self.model.strip():
            raise UsageError(f"agent {self.name!r}: no model is named", hint="say 'provider/model'")
        self._check_equipment()
        seen: set[str] = {one.name for one in self.ready}
        for function in self.functions:
            try:
                names = environment_names(self, function)
                name, _ = read_tool(function, environments=names)
            except UsageError as error:
                raise UsageError(f"agent {self.name!r}: {error.message}", hint=error.hint) from None
            if name in seen:
                raise UsageError(
                    f"agent {self.name!r} has two functions of the name {name!r}",
                    hint="rename one: a model calls them by their names",
                )
            seen.add(name)
        servers = {one.name for one in self.servers}
        for what, named in (("approvals", self.approvals), ("limits", self.limits)):
            wrong = next((name for name in named if name not in seen | servers), None)
            if wrong is not None:
                raise UsageError(
                    f"agent {self.name!r}: {what} names {wrong!r}, which is no function of it",
                    hint=f"it has {', '.join(sorted(seen)) or 'none'}",
                )
        for name in self.limits:
            self.limits_of(name)
        self.answer_schema()
        self._check_context()
        known = {"auto", "none", "required", *seen}
        of_server = (self.tool_choice or "").partition(".")[0] in servers
        if self.tool_choice is not None and self.tool_choice not in known and not of_server:
            raise UsageError(
                f"agent {self.name!r}: tool_choice {self.tool_choice!r} is no tool of it",
                hint=f"say one of {', '.join(sorted(known))}",
            )

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

    def _check_context(self) -> None:
        said = self.context or {}
        most, how = said.get("max_tokens"), said.get("reduce", "drop")
        whole = most is None or (type(most) is int and most > 0)
        if not (set(said) <= {"max_tokens", "reduce"} and whole and how in ("drop", "summarize")):
            raise UsageError(
                f"agent {self.name!r}: context is {self.context!r}",
                hint="say {'max_tokens': 50_000, 'reduce': 'drop'}, or 'summarize'",
            )


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
        image: An image for the model, as bytes or a `data:` URL.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    value: Any = ""
    agent: Agent | None = None
    context_variables: dict[str, Any] = Field(default_factory=dict)
    image: bytes | str | None = None


class Response(BaseModel):
    """What a run gives back.

    Attributes:
        messages: The new messages, as plain dicts.
        agent: The one that was active last.
        context_variables: As they are in the end, live objects included.
        history: All messages, those of the caller included.
        termination: Why the run ended; empty while it waits for something.
        result: The answer, or what `case_resolved` was given.
        reason: Why it did not end as `resolved`.
        usage: Tokens and cost of all calls of models together, and under `models` those of each.
        execution: Id of the execution; `Engine.show` tells all of it.
        waits: What it waits for, such as approvals.
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
