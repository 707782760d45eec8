"""The one package that step kinds and environments import.

A *step kind* is what stands behind an action key of a flow file (`http`, `run`, ...): a class with
`execute`, found by its entry point in the group `flowengine.nodes`. An *environment* is a place
where commands run (`host`, ...): a class with `run`, found in the group `flowengine.envs`; what
managed environments are written against is in `flowengine.sdk.environments`. The built-in ones use
nothing that is not here.

    class Greeting(StepKind):
        async def execute(self, context, task, input):
            return f"Hello, {input['name']}!"

Functions called by `python` steps need nothing from here; those that want more than their
arguments take a parameter annotated with `StepContext`, and may raise `StepError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import Plain
from flowengine.printable import printable
from flowengine.sdk.context import (
    Artifacts,
    Command,
    Completed,
    Environment,
    Execution,
    File,
    Processes,
    StepContext,
)
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
    NotAFile,
    PathEscape,
    Refused,
    Rejected,
    SecretMissing,
    StepError,
    Timeout,
    ToolError,
    ValidationError,
)
from flowengine.sdk.step_kind import (
    CallSignature,
    Effect,
    SignatureError,
    StepKind,
    Synonym,
    Tool,
)

__all__ = [
    "Artifacts",
    "CallSignature",
    "Command",
    "Completed",
    "Effect",
    "Environment",
    "EnvironmentBusy",
    "EnvironmentClosed",
    "EnvironmentFailure",
    "EnvironmentLost",
    "EnvironmentStartFailed",
    "EnvironmentUnavailable",
    "ErrorData",
    "Execution",
    "ExitCode",
    "File",
    "HttpError",
    "ImageUnavailable",
    "LimitExceeded",
    "NotAFile",
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
    "ToolError",
    "ValidationError",
    "import_function",
    "printable",
    "quick",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def quick(function: _Function) -> _Function:
    """Mark a plain function that computes for a moment and never waits.

    It is called at once on the engine's own thread, which saves the switch to another one. While it
    runs, no other step moves: reading a file, a request, a long computation do not belong here.

    Args:
        function: A function that is not `async`.

    Returns:
        The same function, marked.
    """
    function.__flowengine_quick__ = True  # type: ignore[attr-defined]
    return function


def import_function(function: str, folder: str | None) -> Callable[..., Any]:
    """Import a function that a flow names.

    Modules beside the flow file come first, each folder's apart from all others. What the module
    raises when it is imported goes through; a module or function that is not there is a
    `ToolError`.

    Args:
        function: `package.module:function`.
        folder: Folder of the flow file.

    Returns:
        The function.

    Raises:
        ToolError: There is no such module or function.
    """
    from flowengine import python_modules

    try:
        return python_modules.import_function(function, folder)
    except python_modules.FunctionNotFound as error:
        raise ToolError(f"{function}: {error}", retryable=False) from None
