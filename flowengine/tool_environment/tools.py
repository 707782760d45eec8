"""Tools: a decorated function or a class derived from `Tool`, and their definitions."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import marshal
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

from flowengine.agents.tool_marks import Approval, tool, tool_options
from flowengine.errors import InputError, UsageError
from flowengine.sdk import Effect, Processes, StepError, ToolError
from flowengine.sdk.python.conversions import conversion
from flowengine.sdk.python.docstrings import parse
from flowengine.sdk.python.live_signature import (
    given_parameters,
    name_of,
    read_function,
    resolved_hints,
)
from flowengine.sdk.python.user_code import lasting
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.tools.tool_calls import Image, media_type
from flowengine.sdk.values.plain_values import to_plain
from flowengine.sdk.values.validation import Validator, as_plain, shared

CONTEXT = "ctx"
"""Name of a parameter that receives the context, as does one annotated with `ToolContext`."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")

PRODUCED = 256 * 1024
"""Maximum characters kept of a tool's partial output."""
SHELL = "shell"
"""The environment of `execute_command`, which is of the kind `shell` or `bash`."""


class Aborted(Exception):
    """Raised by `AbortSignal.check` in a tool that must stop."""


class AbortSignal:
    """Signals a tool to stop. Every call has its own signal, which any thread can use."""

    def __init__(self) -> None:
        self._stops: Future[None] = lasting()

    @property
    def aborted(self) -> bool:
        """Whether the tool must stop."""
        return self._stops.done()

    def abort(self) -> bool:
        """Tell the tool to stop. Return False if that was done before."""
        try:
            self._stops.set_result(None)
        except InvalidStateError:
            return False
        return True

    def check(self) -> None:
        """Raise `Aborted` if the tool must stop.

        Raises:
            Aborted: The tool must stop.
        """
        if self.aborted:
            raise Aborted("the call was aborted")

    def wait(self, timeout: float | None = None) -> bool:
        """Block the thread until the tool must stop, and return whether it must.

        Args:
            timeout: Maximum seconds to wait.
        """
        wait([self._stops], timeout)
        return self.aborted

    async def async_wait(self) -> None:
        """Wait in a coroutine until the tool must stop."""
        await asyncio.wrap_future(self._stops)


@dataclass(eq=False)
class ToolContext:
    """The context of a running tool."""

    tool_call_id: str
    """Id of the call."""
    execution_id: str
    """Id of the execution that the environment belongs to."""
    signal: AbortSignal
    """Signals the tool to stop."""
    parallel: bool
    """Whether other calls may run concurrently."""
    state: dict[str, Any]
    """Values that this tool keeps from call to call, as long as the environment exists."""
    resources: Mapping[str, Any]
    """The resources that the tool declares, by name."""
    report: Callable[[Any], None]
    """Reports progress to clients, as plain data."""
    processes: Processes
    """Runs programs, which end with the call, together with their child processes."""
    _produced: list[str]
    _size: int = 0

    def write(self, text: str) -> None:
        """Append to the partial output, which is the content of the result if the call is stopped.

        Args:
            text: The next piece.
        """
        if (room := PRODUCED - self._size) > 0:
            self._size += len(text)
            self._produced.append(text[:room])


class Tool:
    """Base of tools that are classes. Every call has a new instance.

    `execute` takes the arguments by name. A parameter named `ctx`, or annotated with `ToolContext`,
    receives the context. The other methods are optional, and each can be a coroutine.
    """

    execute: Callable[..., Any]
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
        options = {"name": name_of(function), **(tool_options(function) or {})}
        vars(self).update({name: value for name, value in options.items() if value is not None})
        self.execute = function


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
    make: Callable[[], Tool]
    """Returns a new instance."""
    version: str
    """Digest of its declaration and code, to which an approval is limited."""

    def convert(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked and converted arguments.

        Raises:
            InputError: They do not fit.
        """
        try:
            plain = as_plain(dict(args), "arguments")
            checked: dict[str, Any] = self.validator.check(plain, "the arguments do not fit")
            return checked if self.converter is None else self.converter(checked)
        except StepError as error:
            raise InputError(error.message) from None

    def fields(self, returned: Any) -> dict[str, Any]:
        """Convert the return value of the tool to fields of its result: `content`, or `images`.

        Raises:
            ToolError: It cannot be converted to data. The message names the tool and the type.
        """
        if isinstance(returned, bytes) and media_type(returned[:16]) is not None:
            returned = Image.model_validate(returned)
        if isinstance(returned, Image):
            return {"images": [returned.model_dump()]}
        is_bytes = isinstance(returned, bytes)
        value = returned.decode(errors="backslashreplace") if is_bytes else returned
        try:
            return {"content": to_plain(value, number_keys=True)}
        except StepError as error:
            kind = f"{type(returned).__module__}.{type(returned).__qualname__}"
            raise ToolError(f"tool '{self.name}' returned a {kind}: {error.message}") from None


def overrides(instance: Any, method: str) -> bool:
    """Return whether an instance has an optional method of `Tool` itself."""
    own = getattr(instance, method)
    return getattr(own, "__func__", None) is not getattr(Tool, method)


def define(source: Any) -> ToolDefinition:
    """Return the definition of a tool.

    Args:
        source: A function, or a class derived from `Tool`.

    Raises:
        UsageError: It is not a tool, for the reason in the message.
    """
    make: Callable[[], Tool] = partial(FunctionTool, source)
    name = doc = ""
    if isinstance(source, type) and issubclass(source, Tool):
        make, doc = source, parse(source.__doc__)[0]
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", source.__name__).lower()
    try:
        instance = make()
        name, run = instance.name or name, instance.execute
        if not NAME.fullmatch(name):
            raise UsageError("its name must be a letter and up to 63 letters, digits, and '_-.'")
        context = _context_of(run)
        signature = read_function(run, environments=context)
        schema = dict(signature.args or {"type": "object"})
        description = instance.description or signature.description or doc
        code = getattr(inspect.unwrap(getattr(run, "__func__", run)), "__code__", None)
        declared = (description, repr(schema), instance.approval, instance.effect, code)
        version = hashlib.sha256(marshal.dumps(declared, 2)).hexdigest()  # 2: without counts
        return ToolDefinition(
            name, description, instance, schema, shared(schema), conversion(run, skip=context),
            context, make, version,
        )  # fmt: skip
    except Exception as error:
        why, hint = getattr(error, "message", describe(error)), getattr(error, "hint", None)
        raise UsageError(f"{name or source!a:.100} is not a tool: {why}", hint=hint) from None


def _context_of(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that receive the context."""
    hints = {CONTEXT: ToolContext, **resolved_hints(function)}
    names = [parameter.name for parameter in given_parameters(function)]
    return [name for name in names if hints.get(name) is ToolContext]


@tool(resources={SHELL: None})
async def execute_command(command: str, ctx: ToolContext) -> dict[str, Any]:
    """Run a command in the shell and return its exit code and output.

    When the call is stopped, the command ends with all its child processes.

    Args:
        command: The shell command.
        ctx: The context of the call.

    Returns:
        `exit_code`, `stdout` and `stderr`. A terminal has both streams in `stdout`.

    Raises:
        StepError: The environment cannot run commands.
    """
    shell = ctx.resources[SHELL]
    run = getattr(shell, "async_run_in_turn", None) or getattr(shell, "async_run", None)
    if run is None:
        raise StepError(f"the environment '{SHELL}' runs no commands: take the kind shell or bash")

    def wrote(_: str, text: str) -> None:
        ctx.write(text)
        ctx.report(text)

    result = await run(command, on_output=wrote)
    own = hasattr(result, "stdout")
    return {
        "exit_code": result.exit_code,
        "stdout": result.stdout if own else result.output,
        "stderr": result.stderr if own else "",
    }
