"""The one package that step kinds and environments import.

A *step kind* implements an action key of a flow file (`http`, `run`, ...): a class with `execute`,
found by its entry point in the group `flowengine.nodes`. An *environment* is a place where commands
run (`host`, ...): a class with `run`, found in the group `flowengine.envs`. The interface of
managed environments is in `flowengine.sdk.environments`. The built-in ones are written against this
package alone.

    class Greeting(StepKind):
        async def execute(self, context, task, input):
            return f"Hello, {input['name']}!"

Functions called by `python` steps need nothing from here. To receive more than their arguments,
they take a parameter annotated with `StepContext`. They may raise `StepError`.

| package | contents, each importing only from those below it |
|---|---|
| `web` | requests to servers, to checked addresses |
| `values` | plain data, and its JSON Schemas |
| `python` | functions and types of Python, and calls of users' code |
| `tools` | calls of tools, and rules about commands |
| `environments` | the interface of managed environments |
| `steps` | the interface of step kinds, and the context of an attempt |
| `processes`, `files` | those of this machine |
| `texts` | received, and written for people, models and as JSON |
| `errors` | what steps and environments raise |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.errors import (
    EnvironmentBusy,
    EnvironmentClosed,
    EnvironmentFailure,
    EnvironmentLost,
    EnvironmentStartFailed,
    EnvironmentUnavailable,
    ExitCode,
    HttpError,
    ImageUnavailable,
    LimitExceeded,
    NeedsApproval,
    NeedsInput,
    NotAFile,
    OutOfMemory,
    PathEscape,
    Refused,
    Rejected,
    SecretMissing,
    StepError,
    Timeout,
    ToolChanged,
    ToolError,
    ValidationError,
)
from flowengine.sdk.python import imported_modules
from flowengine.sdk.python.argument_checks import check_function
from flowengine.sdk.python.imported_modules import import_module_of, module_source
from flowengine.sdk.steps.context import (
    Artifacts,
    Command,
    CommandEnvironment,
    Completed,
    ExecutionContext,
    File,
    Processes,
    StepContext,
)
from flowengine.sdk.steps.generated_flows import (
    Declarations,
    Declared,
    DeclaredTool,
    GeneratedFlow,
    Given,
    Mark,
)
from flowengine.sdk.steps.step_kind import (
    AsText,
    CallSignature,
    Effect,
    Meter,
    Need,
    SignatureError,
    StepKind,
    Synonym,
    Tool,
)
from flowengine.sdk.texts.visible_text import printable

__all__ = [
    "Artifacts",
    "AsText",
    "CallSignature",
    "Command",
    "CommandEnvironment",
    "Completed",
    "Declarations",
    "Declared",
    "DeclaredTool",
    "Effect",
    "EnvironmentBusy",
    "EnvironmentClosed",
    "EnvironmentFailure",
    "EnvironmentLost",
    "EnvironmentStartFailed",
    "EnvironmentUnavailable",
    "ErrorData",
    "ExecutionContext",
    "ExitCode",
    "File",
    "GeneratedFlow",
    "Given",
    "HttpError",
    "ImageUnavailable",
    "LimitExceeded",
    "Mark",
    "Meter",
    "Need",
    "NeedsApproval",
    "NeedsInput",
    "NotAFile",
    "OutOfMemory",
    "PathEscape",
    "Plain",
    "Processes",
    "Refused",
    "Rejected",
    "SecretMissing",
    "SignatureError",
    "StepContext",
    "StepError",
    "StepKind",
    "Synonym",
    "Timeout",
    "Tool",
    "ToolChanged",
    "ToolError",
    "ValidationError",
    "import_function",
    "import_module_of",
    "module_source",
    "printable",
    "quick",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def quick(function: _Function) -> _Function:
    """Mark a plain function that only computes briefly and never waits.

    The engine calls it directly on its own thread, which saves a thread switch. While it runs, no
    other step makes progress, so it must not read files, send requests or compute for long.

    Args:
        function: A function that is not `async`.

    Returns:
        The same function, marked.

    Raises:
        UsageError: It is not a function.
    """
    check_function(function, "write @quick above the function")
    function.__flowengine_quick__ = True  # type: ignore[attr-defined]
    return function


def import_function(function: str, folder: str | None) -> Callable[..., Any]:
    """Import a function that a flow names.

    Modules next to the flow file come first, separately for each directory. Exceptions raised by
    importing the module propagate. A missing module or function raises `ToolError`.

    Args:
        function: `package.module:function`.
        folder: Directory of the flow file.

    Returns:
        The function.

    Raises:
        ToolError: The module or function does not exist.
    """
    try:
        return imported_modules.import_function(function, folder)
    except imported_modules.FunctionNotFound as error:
        raise ToolError(f"{function}: {error}", retryable=False) from None


def __dir__() -> list[str]:
    return [*__all__]
