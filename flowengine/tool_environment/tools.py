"""Tools, as a decorated function or a class with `execute`, and their definitions."""

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

from flowengine.agents.agent_tools import AgentAsTool
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
    """Options of a tool, besides its function."""

    name: str | None = None
    description: str | None = None
    supports_parallel_execution: bool = False
    approval: Approval | None = None
    """None: unspecified. A tool environment then asks its authority, and an agent requires no
    approval."""
    effect: Effect = "once"
    timeout: float | None = None
    isolated: bool = False
    max_running: int | None = None
    resources: Mapping[str, Mapping[str, Any] | None] | None = None
    limits: Mapping[str, Any] | None = None
    written_by: str | None = None
    preview: Callable[[dict[str, Any]], Any] | None = None
    """For a function: takes the arguments. A class has a method of this name."""


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
    isolated: bool = False
    """Whether to run it in a separate process, which contains a crash."""
    max_running: int | None = None
    """Maximum concurrent calls of the tool. None: the limit of the environment."""
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
        function: The function, if the decorator is used without parentheses.
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
    """The definition of a tool in an environment."""

    name: str
    description: str
    options: ToolOptions
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
        """Digest of its metadata and code, to which an approval is limited."""
        digest = hashlib.sha256(json.dumps(self.metadata(), sort_keys=True).encode())
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        digest.update(marshal.dumps(code) if code is not None else repr(self.function).encode())
        return digest.hexdigest()


def has_preview(instance: Any) -> bool:
    """Return whether an instance of a tool describes the effects of its calls."""
    find = getattr(instance, "preview", None)
    return find is not None and getattr(find, "__func__", None) is not Tool.preview


def create_tool_instance(definition: Any) -> Tool:
    """Create a tool from a function, a class, or an instance of one.

    Args:
        definition: A decorated function, a class with `execute`, or an instance.

    Returns:
        A new instance.
    """
    return define(definition).make()


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
    """Return a function that copies an instance in its present state."""
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
        for name in ToolOptions.__dataclass_fields__  # a class has attributes of the same names
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
    """Reject functions that another process could not import, or could not be passed."""
    if not inspect.isfunction(source) or not source.__qualname__.isidentifier():
        raise RegistrationError(
            f"tool '{name}': isolated tools are functions of a module, which another process can "
            "import"
        )
    if signature.context is not None:
        raise RegistrationError(f"tool '{name}': an isolated tool cannot take a context")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
