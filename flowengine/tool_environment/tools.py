"""Tools: a decorated function, or a class with `execute`; and what an environment knows of one."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import marshal
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, overload

from flowengine.agents.agent_as_tool import AgentAsTool
from flowengine.sdk import Effect
from flowengine.sdk.python_functions.docstrings import parse
from flowengine.sdk.python_functions.live_signature import name_of
from flowengine.sdk.tool_limits import largest_result
from flowengine.tool_environment.errors import RegistrationError
from flowengine.tool_environment.signatures import ToolSignature, read

Approval = Literal["ask", "none", "required"]
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class ToolOptions:
    """What a tool says of itself beside its function."""

    name: str | None = None
    description: str | None = None
    supports_parallel_execution: bool = False
    approval: Approval | None = None
    """None: nothing is said. A tool environment asks its authority then, an agent asks nobody."""
    effect: Effect = "once"
    timeout: float | None = None
    isolated: bool = False
    max_running: int | None = None
    resources: Mapping[str, Mapping[str, Any] | None] | None = None
    limits: Mapping[str, Any] | None = None
    written_by: str | None = None
    preview: Callable[[dict[str, Any]], Any] | None = None
    """Of a function: takes the arguments; a class has a method of this name."""


class Tool:
    """Base of tools that are classes. Every call gets a new instance.

    `execute` takes the arguments by name; a parameter named `ctx`, or annotated with `ToolContext`,
    takes the context. The other methods are optional, and each may be a coroutine.
    """

    name: str = ""
    """Default: the name of the class, in snake case."""
    description: str = ""
    """Default: what the docstring of `execute` says, or that of the class."""
    supports_parallel_execution: bool = False
    """Whether it may run beside other calls."""
    approval: Approval = "ask"
    """`ask`: the authority decides; `required`: and nothing approves by itself; `none`."""
    effect: Effect = "once"
    timeout: float | None = None
    """Seconds that one call may run."""
    isolated: bool = False
    """Run it in a process of its own, so that a crash ends only that."""
    max_running: int | None = None
    """How many of its calls run at once; None: as many as the environment allows."""
    resources: Mapping[str, Mapping[str, Any] | None] | None = None
    """Managed environments that it needs: name → spec; None: as the environment declares it."""
    limits: Mapping[str, Any] | None = None
    """`{"output": "64KiB"}`: how much of a result the model is sent. A file has all of it."""
    written_by: str | None = None
    """Who writes what it returns, as an address or a name, if it is not to be trusted: a model is
    shown its results, and why it failed, in a marked block."""
    environment: Any = None
    """The environment that the instance belongs to."""

    def init(self, environment: Any) -> Any:
        """Prepare once, when the tool is registered.

        What it sets on `self` is there in the instances of all calls.

        Args:
            environment: Where it is registered.
        """

    def load_ui(self, partial: dict[str, Any]) -> Any:
        """Return what an interface shows while the arguments arrive; a view, without effects.

        Args:
            partial: The arguments so far.
        """

    def preview(self, args: dict[str, Any]) -> Any:
        """Return what a call would do, as text for people who are asked about it.

        Args:
            args: The arguments, secrets masked.
        """

    def dispose(self) -> Any:
        """Release what the instance holds."""


@overload
def tool(function: _Function, /) -> _Function: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    supports_parallel_execution: bool = False,
    approval: Approval | None = None,
    effect: Effect = "once",
    timeout: float | None = None,
    isolated: bool = False,
    max_running: int | None = None,
    resources: Mapping[str, Mapping[str, Any] | None] | None = None,
    limits: Mapping[str, Any] | None = None,
    written_by: str | None = None,
    preview: Callable[[dict[str, Any]], Any] | None = None,
) -> Callable[[_Function], _Function]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Mark a function as a tool. It can still be called as before.

    Args:
        function: The function, where the decorator is used without parentheses.
        **options: As the attributes of `Tool`.

    Returns:
        The same function, or a decorator.
    """
    if function is not None:
        function.__flowengine_tool__ = ToolOptions()
        return function

    def mark(marked: _Function) -> _Function:
        marked.__flowengine_tool__ = ToolOptions(**options)  # type: ignore[attr-defined]
        return marked

    return mark


class FunctionTool(Tool):
    """A function as a tool.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.execute = function
        options = getattr(function, "__flowengine_tool__", ToolOptions())
        if options.preview is not None:
            self.preview = options.preview  # type: ignore[method-assign, assignment]


@dataclass(frozen=True)
class ToolDefinition:
    """What an environment knows of a tool."""

    name: str
    description: str
    options: ToolOptions
    signature: ToolSignature
    source: Any
    """What was registered: a function, a class or an instance."""
    make: Callable[[], Tool]
    """Returns a new instance."""
    function: Callable[..., Any]
    """What runs, of the class or the module."""

    def metadata(self) -> dict[str, Any]:
        """Return what may be told of it, as plain data."""
        return {
            "name": self.name,
            "description": self.description,
            "args": copy.deepcopy(self.signature.schema),
            "parallel": self.options.supports_parallel_execution,
            "approval": self.options.approval or "ask",
            "effect": self.options.effect,
            "timeout": self.options.timeout,
        }

    @cached_property
    def schema(self) -> str:
        """The JSON Schema of its arguments, as text."""
        return json.dumps(self.signature.schema, sort_keys=True)

    @cached_property
    def version(self) -> str:
        """Digest of its metadata and code: what an approval holds for."""
        digest = hashlib.sha256(json.dumps(self.metadata(), sort_keys=True).encode())
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        digest.update(marshal.dumps(code) if code is not None else repr(self.function).encode())
        return digest.hexdigest()


def create_tool_instance(definition: Any) -> Tool:
    """Make a tool from a function, a class, or an instance of one.

    Args:
        definition: A decorated function, a class with `execute`, or an instance.

    Returns:
        A new instance.
    """
    return define(definition).make()


def define(source: Any) -> ToolDefinition:
    """Read what a tool says of itself.

    Args:
        source: A function, a class with `execute`, an instance of one, or an agent as a tool.

    Returns:
        What an environment has to know.

    Raises:
        RegistrationError: It is not a tool; the message says why.
    """
    if isinstance(source, ToolDefinition):
        return source
    if isinstance(source, AgentAsTool):
        from flowengine.tool_environment.agent_tools import asking

        ask = asking(source)
        described = source.description or f"Asks {source.agent.name}, who answers."
        named = ToolOptions(name=source.name, description=described)
        return replace(_defined(ask, named, lambda: FunctionTool(ask), ask, ""), source=source)
    if callable(source) and not isinstance(source, type) and not hasattr(source, "execute"):
        options = getattr(source, "__flowengine_tool__", ToolOptions())
        return _defined(source, options, lambda: FunctionTool(source), source, name_of(source))
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
    return _defined(source, _options_of(source), make, bound, _snake(kind.__name__))


def _made(kind: type) -> Any:
    try:
        return kind()
    except Exception as error:
        raise RegistrationError(
            f"tool class {kind.__name__} cannot be made without arguments: {error}",
            hint="register an instance of it instead",
        ) from None


def _copier(source: Any) -> Callable[[], Any]:
    """Return what makes copies of an instance as it is now."""
    try:
        pristine = copy.deepcopy(source)
    except Exception as error:
        raise RegistrationError(
            f"tool {type(source).__name__}: the instance cannot be copied for each call: {error}",
            hint="register the class, and open what is live in 'init'",
        ) from None
    return lambda: copy.deepcopy(pristine)


def _options_of(source: Any) -> ToolOptions:
    base = Tool if isinstance(source, type) else Tool()
    named = {
        name: getattr(source, name, getattr(base, name))
        for name in ToolOptions.__dataclass_fields__  # attributes of a class have the same names
        if name != "preview"
    }
    if not named["name"]:
        named["name"] = None
    return ToolOptions(**named)


def _defined(
    source: Any, options: ToolOptions, make: Callable[[], Tool], bound: Callable[..., Any], own: str
) -> ToolDefinition:
    name: Any = options.name if options.name is not None else own
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RegistrationError(
            f"{name!a:.100} is not a valid tool name: up to 64 letters, digits, '_', '-' and '.'"
        )
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
    if options.isolated:
        _check_isolated(source, signature, name)
    return ToolDefinition(
        name,
        described,
        replace(options, name=name, description=described),
        signature,
        source,
        make,
        inspect.unwrap(getattr(bound, "__func__", bound)),
    )


def _check(name: str, options: ToolOptions) -> None:
    wrong = ""
    if options.approval not in {None, "ask", "none", "required"}:
        wrong = f"approval {options.approval!r}: it is ask, none or required"
    elif options.effect not in {"pure", "idempotent", "once"}:
        wrong = f"effect {options.effect!r}: it is pure, idempotent or once"
    elif options.timeout is not None and not _is_positive(options.timeout):
        wrong = f"timeout {options.timeout!r}: it is a number of seconds above 0"
    elif options.max_running is not None and not _is_positive(options.max_running):
        wrong = f"max_running {options.max_running!r}: it is a number above 0"
    elif options.resources is not None and not isinstance(options.resources, Mapping):
        wrong = f"resources {options.resources!r}: it is a map from names to specs"
    elif options.preview is not None and not callable(options.preview):
        wrong = f"preview {options.preview!r}: it is a function that takes the arguments"
    elif options.written_by is not None and not isinstance(options.written_by, str):
        wrong = f"written_by {options.written_by!r}: it is a text"
    else:
        try:
            largest_result(options.limits)
        except ValueError as error:
            wrong = str(error)
    if wrong:
        raise RegistrationError(f"tool '{name}': {wrong}")


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _check_isolated(source: Any, signature: ToolSignature, name: str) -> None:
    """Refuse what another process could not import, or could not be given."""
    if not inspect.isfunction(source) or not source.__qualname__.isidentifier():
        raise RegistrationError(
            f"tool '{name}': isolated tools are functions of a module, which another process can "
            "import"
        )
    if signature.context is not None:
        raise RegistrationError(f"tool '{name}': an isolated tool cannot take a context")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
