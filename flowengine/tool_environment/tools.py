"""Tools: a decorated function, a class with `execute`, or a tool of an MCP server."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import logging
import marshal
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, Unpack, get_args, overload

from flowengine.agents.agent_tools import AgentAsTool, tool_options
from flowengine.agents.server_tools import UNUSABLE, description_of, fault_of, parameters_of
from flowengine.errors import InputError, UsageError
from flowengine.runner.chain import Runner
from flowengine.sdk import Effect, StepError, ToolError
from flowengine.sdk.argument_checks import check_function, check_keywords, seconds_of
from flowengine.sdk.browser_tools import OfferedTool
from flowengine.sdk.exception_text import describe
from flowengine.sdk.models import largest_result
from flowengine.sdk.python_functions.conversions import conversion
from flowengine.sdk.python_functions.docstrings import parse
from flowengine.sdk.python_functions.live_signature import (
    given_parameters,
    name_of,
    read_function,
    resolved_hints,
)
from flowengine.sdk.tool_calls import Image
from flowengine.sdk.validation import as_plain, shared
from flowengine.tool_environment.context import ToolContext
from flowengine.tool_environment.errors import RegistrationError

# Signatures of tool functions: the schema for models, and the conversion of arguments.

CONTEXT = "ctx"
"""Name of a parameter that receives the context, as does one annotated with `ToolContext`."""


class ArgumentFault(Exception):
    """Arguments do not fit. The message lists every fault."""


class ToolSignature(NamedTuple):
    """The signature of a function."""

    schema: dict[str, Any]
    """JSON Schema of the arguments, which are an object."""
    description: str
    """The description from its docstring."""
    convert: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Returns checked and converted arguments, or raises `ArgumentFault`."""
    context: str | None
    """The parameter that receives the context."""


def read(
    function: Callable[..., Any], name: str, declared: Mapping[str, Any] | None = None
) -> ToolSignature:
    """Read the signature of a function.

    Args:
        function: The function.
        name: Name of the tool, for messages.
        declared: The schema that the tool declares itself. Default: derived from the type hints.

    Returns:
        The signature.

    Raises:
        RegistrationError: Its arguments cannot be passed by name, or have no JSON Schema.
    """
    try:
        context = _context_of(function)
        around = () if context is None else (context,)
        signature = read_function(function, environments=around)
        typed = conversion(function, skip=around) if declared is None else None
        schema = dict(signature.args or {"type": "object"}) if declared is None else dict(declared)
        validator = shared(schema)
    except (UsageError, InputError) as error:
        raise RegistrationError(f"tool '{name}': {error.message}", hint=error.hint) from None

    def convert(args: Mapping[str, Any]) -> dict[str, Any]:
        try:
            plain = as_plain(dict(args), "arguments")
            checked: dict[str, Any] = validator.check(plain, "the arguments do not fit")
            return checked if typed is None else typed(checked)
        except (InputError, StepError) as error:
            raise ArgumentFault(error.message) from None

    return ToolSignature(schema, signature.description, convert, context)


def _context_of(function: Callable[..., Any]) -> str | None:
    hints = resolved_hints(function)
    for parameter in given_parameters(function):
        hint = hints.get(parameter.name, inspect.Parameter.empty)
        if hint is ToolContext:
            return parameter.name
        if parameter.name == CONTEXT and hint is inspect.Parameter.empty:
            return parameter.name
    return None


# Tools, as a decorated function or a class with `execute`, and their definitions.

Approval = Literal["ask", "none", "required"]
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ToolOptions(TypedDict, total=False):
    """Options of `@tool`: attributes of `Tool`, and the preview of a function."""

    name: str | None
    description: str | None
    supports_parallel_execution: bool
    approval: Approval | None
    """Left out: a tool environment asks its authority, and an agent requires no approval."""
    effect: Effect
    timeout: float | str | None
    """Seconds, or a duration such as `500ms`."""
    resources: Mapping[str, Mapping[str, Any] | None] | None
    limits: Mapping[str, Any] | None
    written_by: str | None
    preview: Callable[[dict[str, Any]], Any] | None
    """Takes the arguments."""


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


@overload
def tool(function: _Function, /) -> _Function: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[_Function], _Function]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Mark a function as a tool. It can still be called as before.

    Args:
        function: The function, if the decorator is used without parentheses.
        **options: As the attributes of `Tool`.

    Returns:
        The same function, or a decorator.
    """
    check_keywords("a tool", options, ToolOptions.__annotations__)
    if "timeout" in options:
        options["timeout"] = seconds_of(options["timeout"], "the timeout of a tool")

    def mark(marked: Any) -> Any:
        check_function(marked, "write @tool above the function")
        marked.__flowengine_tool__ = options
        return marked

    return mark if function is None else mark(function)


class FunctionTool(Tool):
    """A function as a tool.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.execute = function
        given = (tool_options(function) or {}).items()
        vars(self).update({name: value for name, value in given if value is not None})


@dataclass(frozen=True)
class ToolDefinition:
    """The definition of a tool in an environment."""

    name: str
    description: str
    options: Tool
    """Has the options as attributes."""
    signature: ToolSignature
    source: Any
    """The registered function, class or instance."""
    make: Callable[[], Tool]
    """Returns a new instance."""
    function: Callable[..., Any]
    """The function to run, of the class or the module."""

    def metadata(self) -> dict[str, Any]:
        """Return public metadata of the tool as plain data."""
        return {
            "name": self.name,
            "description": self.description,
            "args": copy.deepcopy(self.signature.schema),
            "parallel": self.options.supports_parallel_execution,
            "approval": self.options.approval,
            "effect": self.options.effect,
            "timeout": self.options.timeout,
        }

    @cached_property
    def schema(self) -> str:
        """The JSON Schema of its arguments, as text."""
        return json.dumps(self.signature.schema, sort_keys=True)

    @cached_property
    def version(self) -> str:
        """Digest of its metadata and code, to which an approval is limited."""
        digest = hashlib.sha256(json.dumps(self.metadata(), sort_keys=True).encode())
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
    if callable(source) and not isinstance(source, type) and not hasattr(source, "execute"):
        name = (tool_options(source) or {}).get("name")
        name = name_of(source) if name is None else name
        return _defined(source, FunctionTool(source), lambda: FunctionTool(source), source, name)
    kind = source if isinstance(source, type) else type(source)
    execute = getattr(source, "execute", None)
    if not callable(execute):
        raise RegistrationError(
            f"{source!r} is not a tool: it is not a function, and has no 'execute'",
            hint="give a function, or a class or object with a method 'execute'",
        )
    if source is kind:
        make: Callable[[], Any] = kind
        bound = _made(kind).execute
    else:
        make, bound = _copier(source), execute
    name = getattr(source, "name", "") or _snake(kind.__name__)
    return _defined(source, source, make, bound, name)


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


def _made(kind: type) -> Any:
    try:
        return kind()
    except Exception as error:
        raise RegistrationError(
            f"tool class {kind.__name__} cannot be made without arguments: {describe(error)}",
            hint="register an instance of it instead",
        ) from None


def _copier(source: Any) -> Callable[[], Any]:
    """Return a function that copies an instance in its present state."""
    try:
        pristine = copy.deepcopy(source)
    except Exception as error:
        raise RegistrationError(
            f"tool {type(source).__name__}: the instance cannot be copied for each call: "
            f"{describe(error)}",
            hint="register the class, and open live objects in 'init'",
        ) from None
    return lambda: copy.deepcopy(pristine)


def _options_of(source: Any) -> Tool:
    """Return an object with the options that are attributes of a tool, or of `Tool`."""
    options = Tool()
    for name in ToolOptions.__annotations__:
        setattr(options, name, getattr(source, name, getattr(options, name)))
    return options


def _defined(
    source: Any, attributes: Any, make: Callable[[], Tool], bound: Callable[..., Any], name: Any
) -> ToolDefinition:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RegistrationError(
            f"{name!a:.100} is not a valid tool name: up to 64 letters, digits, '_', '-' and '.'"
        )
    options = _options_of(attributes)
    _check(name, options)
    declared = None if bound is source else getattr(source, "parameters", None)
    if declared is not None and not (
        isinstance(declared, Mapping) and declared.get("type") == "object"
    ):
        raise RegistrationError(f"tool '{name}': its schema is not a JSON Schema of an object")
    signature = read(bound, name, declared)
    described = options.description or signature.description
    if not described and bound is not source:
        kind = source if isinstance(source, type) else type(source)
        described = parse(kind.__doc__)[0]
    function = inspect.unwrap(getattr(bound, "__func__", bound))
    return ToolDefinition(name, described, options, signature, source, make, function)


def _check(name: str, options: Tool) -> None:
    for option, fits, what in _RULES:
        value = getattr(options, option)
        if not fits(value):
            raise RegistrationError(f"tool '{name}': {option} {value!r}: it is {what}")
    try:
        largest_result(options.limits)
    except ValueError as error:
        raise RegistrationError(f"tool '{name}': {error}") from None


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("approval", lambda value: value in get_args(Approval), "ask, none or required"),
    ("effect", lambda value: value in get_args(Effect), "pure, idempotent or once"),
    ("timeout", lambda value: value is None or _is_positive(value), "a number of seconds above 0"),
    ("resources", lambda value: isinstance(value, Mapping | None), "a map from names to specs"),
    ("preview", callable, "a function that takes the arguments"),
    ("written_by", lambda value: isinstance(value, str | None), "a text"),
)
"""Option, whether a value fits, and the values that do."""


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# MCP tools as tools of an environment, with the same approval, observers and abort.


class McpTool(Tool):
    """One tool of a server. Its description is limited as for agents in flows.

    Args:
        server: Name of the managed environment with the session.
        listed: The tool as listed by the server.

    Raises:
        RegistrationError: The schema of its arguments cannot be used.
    """

    def __init__(self, server: str, listed: Mapping[str, Any]) -> None:
        self.server = server
        self.tool = str(listed["name"])
        self.name = f"{server}.{self.tool}"
        self.description = description_of(str(listed.get("description") or ""))
        try:
            self.parameters = parameters_of(listed.get("inputSchema") or {})
        except UNUSABLE as error:
            raise RegistrationError(
                f"the tool {self.name!a:.100} of a server cannot be used: {fault_of(error)}"
            ) from None
        self.digest = OfferedTool.of(listed).digest
        self.resources = {server: None}
        self.written_by = self.name

    async def execute(self, ctx: ToolContext, **args: Any) -> Any:
        """Call the tool on its server, unless it has changed since it was listed."""
        session = ctx.resources[self.server]
        answer = await session.async_call_tool(self.tool, args, digest=self.digest)
        if answer.is_error:
            raise ToolError(answer.text or "the tool failed without a reason")
        for part in answer.content:
            if part.get("type") == "image":
                return Image(media_type=part["mimeType"], data=part["data"])
        return answer.structured if answer.structured is not None else answer.text


def mcp_tools(server: str, listed: Iterable[Mapping[str, Any]]) -> list[McpTool]:
    """Return the tools of an MCP server, to be registered in an environment.

    If the server has changed the description or schema of a tool since, the tool is no longer
    called. Create tools from the new list, and register those.

    Args:
        server: Name of the managed environment of the kind `mcp`, as declared by the environment.
        listed: The result of the session's `list_tools()`.

    Returns:
        A tool for each usable entry, named `server.tool`. Others are left out, with a warning.
    """
    tools: list[McpTool] = []
    for entry in listed:
        try:
            tools.append(McpTool(server, entry))
        except RegistrationError as error:
            logging.getLogger("flowengine.tools").warning("%s. It is left out", error)
    return tools
