"""Tools: a decorated function, a class with `execute`, or an agent, and their definitions."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import marshal
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from pydantic import TypeAdapter, ValidationError

from flowengine.agents.agent_tools import AgentAsTool
from flowengine.agents.tool_marks import Approval, ToolOptions, tool, tool_options
from flowengine.errors import InputError, UsageError
from flowengine.runner.chain import Runner
from flowengine.sdk import Effect, ToolError
from flowengine.sdk.environments.models import largest_result
from flowengine.sdk.python.argument_checks import seconds_of
from flowengine.sdk.python.conversions import conversion
from flowengine.sdk.python.docstrings import parse
from flowengine.sdk.python.live_signature import (
    given_parameters,
    name_of,
    read_function,
    resolved_hints,
)
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.texts.validation_messages import faults
from flowengine.sdk.values.validation import Validator, as_plain, shared
from flowengine.tool_environment.context import ToolContext
from flowengine.tool_environment.errors import RegistrationError

CONTEXT = "ctx"
"""Name of a parameter that receives the context, as does one annotated with `ToolContext`."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Tool:
    """Base of tools that are classes. Every call has a new instance.

    `execute` takes the arguments by name. A parameter named `ctx`, or annotated with `ToolContext`,
    receives the context. The other methods are optional, and each can be a coroutine.
    """

    name: str = ""
    """Default: the name of the class, in snake case."""
    description: str = ""
    """Default: the docstring of `execute`, or of the class."""
    supports_parallel_execution: bool = False
    """Whether it can run in parallel with other calls."""
    approval: Approval = "ask"
    """`ask`: the authority decides. `required`: likewise, but never automatically. `none`: no
    approval."""
    effect: Effect = "once"
    timeout: float | None = None
    """Maximum seconds for one call."""
    resources: Mapping[str, Mapping[str, Any] | None] | None = None
    """Managed environments that it needs: name → spec. None: as declared by the environment."""
    limits: Mapping[str, Any] | None = None
    """`{"output": "64KiB"}`: the size of a result sent to the model. A file contains all of it."""
    written_by: str | None = None
    """Author of its results, as an address or a name, if the author is not trusted. Results and
    failures are then sent to the model in a marked block."""
    environment: Any = None
    """The environment that the instance belongs to."""

    def init(self, environment: Any) -> Any:
        """Prepare the tool once, when it is registered.

        Attributes that it sets on `self` are available in the instances of all calls.

        Args:
            environment: The environment that registers it.
        """

    def load_ui(self, partial: dict[str, Any]) -> Any:
        """Return a view for interfaces while the arguments arrive, without side effects.

        Args:
            partial: The arguments so far.
        """

    def preview(self, args: dict[str, Any]) -> Any:
        """Return a description of the call's effects, as text for approvers.

        Args:
            args: The arguments, with secrets masked.
        """

    def dispose(self) -> Any:
        """Release the resources of the instance."""


class FunctionTool(Tool):
    """A function as a tool.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.execute = function
        given = {"name": None, **(tool_options(function) or {})}
        if given["name"] is None:
            given["name"] = name_of(function)
        vars(self).update({name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, eq=False)
class ToolDefinition:
    """The definition of a tool in an environment."""

    name: str
    description: str
    options: Tool
    """Has the options as attributes."""
    schema: dict[str, Any]
    """JSON Schema of the arguments, which are an object."""
    validator: Validator
    converter: Callable[[dict[str, Any]], dict[str, Any]] | None
    """Converts checked arguments to the types of the parameters. None: they stay as they are."""
    context: list[str]
    """The parameters that receive the context."""
    source: Any
    """The registered function, class or instance."""
    make: Callable[[], Tool]
    """Returns a new instance."""
    function: Callable[..., Any]
    """The function to run, of the class or the module."""

    def convert(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked and converted arguments.

        Raises:
            InputError: They do not fit.
            StepError: They do not fit.
        """
        plain = as_plain(dict(args), "arguments")
        checked: dict[str, Any] = self.validator.check(plain, "the arguments do not fit")
        return checked if self.converter is None else self.converter(checked)

    @cached_property
    def version(self) -> str:
        """Digest of its declaration and code, to which an approval is limited."""
        options = self.options
        declared = [self.name, self.description, self.schema, options.approval, options.effect,
                    options.supports_parallel_execution, options.timeout]  # fmt: skip
        digest = hashlib.sha256(json.dumps(declared, sort_keys=True).encode())
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        digest.update(marshal.dumps(code) if code is not None else repr(self.function).encode())
        return digest.hexdigest()


def overrides(instance: Any, method: str) -> bool:
    """Return whether an instance has an optional method of `Tool` itself."""
    own = getattr(instance, method, None)
    return own is not None and getattr(own, "__func__", None) is not getattr(Tool, method)


def define(source: Any) -> ToolDefinition:
    """Return the definition of a tool.

    Args:
        source: A function, a class with `execute`, an instance of one, or an agent as a tool.

    Returns:
        The definition.

    Raises:
        RegistrationError: It is not a tool, for the reason in the message.
    """
    if isinstance(source, ToolDefinition):
        return source
    if isinstance(source, AgentAsTool):
        described = source.description or f"Asks {source.agent.name}, who answers."
        ask = tool(name=source.name, description=described)(_asking(source))
        return replace(define(ask), source=source)
    execute = getattr(source, "execute", None)
    if execute is None and callable(source) and not isinstance(source, type):
        make: Callable[[], Any] = partial(FunctionTool, source)
        instance = make()
        name, doc = instance.name, ""
    elif callable(execute):
        instance, make = _instance(source)
        kind = type(instance)
        own_name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()
        name, doc = getattr(instance, "name", "") or own_name, parse(kind.__doc__)[0]
    else:
        raise RegistrationError(
            f"{source!r} is not a tool: it is not a function, and has no 'execute'",
            hint="give a function, or a class or object with a method 'execute'",
        )
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RegistrationError(
            f"{name!a:.100} is not a valid tool name: up to 64 letters, digits, '_', '-' and '.'"
        )
    run, declared = instance.execute, getattr(instance, "parameters", None)
    try:
        options = _options_of(instance)
        context = _context_of(run)
        signature = read_function(run, environments=context)
        converter = None if declared else conversion(run, skip=context)
        schema = dict(declared or signature.args or {"type": "object"})
        validator = shared(schema)
        if schema.get("type") != "object":
            raise UsageError("its schema is not a JSON Schema of an object")
    except ValidationError as error:
        raise RegistrationError(f"tool '{name}': {faults(error)}") from None
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"tool '{name}': {error}") from None
    except (UsageError, InputError) as error:
        raise RegistrationError(f"tool '{name}': {error.message}", hint=error.hint) from None
    return ToolDefinition(
        name, options.description or signature.description or doc, options, schema, validator,
        converter, context, source, make, inspect.unwrap(getattr(run, "__func__", run)),
    )  # fmt: skip


def _asking(source: AgentAsTool) -> Callable[..., Any]:
    """Return the function of an agent that is a tool.

    Args:
        source: The result of `Agent.as_tool`.
    """

    async def ask(prompt: str) -> Any:
        """Ask the agent.

        Args:
            prompt: The request, with all necessary information.
        """
        agent: Any = source.agent
        response = await Runner().run_async(agent, prompt, max_turns=source.max_turns)
        if response.termination == "resolved":
            return response.result
        why = response.reason or response.termination or "it waits for a decision"
        raise ToolError(f"{agent.name} has no answer: {why}", retryable=False)

    return ask


def _instance(source: Any) -> tuple[Any, Callable[[], Any]]:
    """Return an instance of a class or of an instance's present state, and what makes others."""
    try:
        make = source if isinstance(source, type) else partial(copy.deepcopy, copy.deepcopy(source))
        return make(), make
    except Exception as error:
        raise RegistrationError(
            f"tool {source!r}: there cannot be an instance for each call: {describe(error)}",
            hint="register a class that is made without arguments, and open live objects in 'init'",
        ) from None


_OPTIONS = TypeAdapter(ToolOptions)


def _options_of(instance: Any) -> Tool:
    """Return the checked options of an instance, as the attributes of an object."""
    options = Tool()
    names = [name for name in ToolOptions.__annotations__ if hasattr(instance, name)]
    vars(options).update({name: getattr(instance, name) for name in names})
    _OPTIONS.validate_python(vars(options), strict=True)
    options.timeout = seconds_of(options.timeout, "timeout")
    largest_result(options.limits)
    return options


def _context_of(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that receive the context."""
    hints = resolved_hints(function)

    def takes_it(parameter: inspect.Parameter) -> bool:
        hint = hints.get(parameter.name, parameter.empty)
        return hint is ToolContext or (parameter.name == CONTEXT and hint is parameter.empty)

    return [each.name for each in given_parameters(function) if takes_it(each)]
