"""Errors that steps and environments raise. Their names are error types of the flow language.

The attribute `type` of a class is a stable name, used by `on_error` in flow files, logs and events.
All failures of environments derive from `EnvironmentFailure`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from flowengine.errors import FlowEngineError, InputError, without_addresses
from flowengine.kernel.graph.compiled import Plain

PACKAGE_PREFIX = "_flow_"
"""Begins the name of the package to which the modules beside a flow file belong."""
_PACKAGES = re.compile(rf"\b{PACKAGE_PREFIX}[0-9a-f]{{16}}\.")


def public_name(name: str) -> str:
    """Return a module name, or a text with module names, as its author knows it."""
    return _PACKAGES.sub("", name) if PACKAGE_PREFIX in name else name


class StepError(Exception):
    """A step failed. Subclasses outside of user modules are the error types of the language.

    Args:
        message: The problem, its place, and the fix.
        data: Plain data for handlers, such as a status, an exit code, or the remaining work.
        type: Name that handlers see. Default: the `type` of the class.
        retryable: Whether another attempt may help. Default: depends on the type.
        retry_after: Seconds that the other side requested to wait before another attempt.
    """

    type: ClassVar[str | None] = None
    """Name in flow files. None means `module.Class`."""

    def __init__(
        self,
        message: str,
        *,
        data: Plain = None,
        type: str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        message = without_addresses(str(message))
        super().__init__(message)
        self.message = message
        self.data = data
        self.name = type or self.type
        self.retryable = retryable
        self.retry_after = retry_after
        self.source: str | None = None
        """Origin of text by third parties that the message may quote, if it is for a model."""
        self.environment: str | None = None
        """Id of the spec of the unavailable environment, if the manager reported one."""


class CodeRaised(Exception):
    """Users' code raised an exception that would end the program, such as `SystemExit`: the cause.

    Code of users never ends what serves others. Wherever it is called, this is raised instead.
    """


def raised(error: BaseException) -> BaseException:
    """Return the exception that code raised itself."""
    return error.__cause__ if isinstance(error, CodeRaised) and error.__cause__ else error


def class_name(error: BaseException) -> str:
    """Return `module.Class` of an exception, and only the name if it is a built-in one."""
    kind = type(error)
    module = public_name(str(kind.__module__))
    return kind.__qualname__ if module in {"builtins", "None"} else f"{module}.{kind.__qualname__}"


def type_of(error: BaseException) -> str:
    """Return the type by which a flow knows an exception that an attempt has raised."""
    if isinstance(error, StepError) and error.name:
        return error.name
    if isinstance(error, InputError):
        return "ValidationError"
    return type(error).__name__ if isinstance(error, FlowEngineError) else class_name(error)


class Timeout(StepError):
    """The other side did not answer in time."""

    type = "Timeout"


class HttpError(StepError):
    """A request failed or was answered with a status that is not accepted."""

    type = "HttpError"


class ToolError(StepError):
    """A tool failed in a way that another attempt may fix."""

    type = "ToolError"


class ToolChanged(ToolError):
    """A tool has changed since it was offered, so it was not called."""

    type = "ToolChanged"


class NeedsApproval(StepError):
    """A running call found that its action requires approval.

    Raise it before the action is performed. The call then waits for an approval that shows `action`
    and `target`. Once approved, it is made again, and `context.approval["found"]` contains the
    approved action. Perform the action only if the same action and target are found again,
    otherwise raise this error anew: an approval covers exactly one call and one target.

    Args:
        found: `action`: a short description of the action. `target`: its target, as plain data that
            an approver can judge. Other keys are not shown.
        before: Further data that the next attempt needs.
    """

    type = "NeedsApproval"

    def __init__(
        self, found: Mapping[str, Plain], before: Mapping[str, Plain] | None = None
    ) -> None:
        kept = {**found} if before is None else {**found, "before": {**before}}
        message = f"it requires approval: {found['action']}"
        super().__init__(message, data={"found": kept}, retryable=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to copy it, which several callers of one environment receive."""
        assert isinstance(self.data, dict)
        return type(self), (self.data["found"],), self.__dict__


class NeedsInput(StepError):
    """A running call requests input from a person, and has ended without a result.

    The question is one of the execution and may wait for days. After the answer, the call is made
    again with the same arguments, and `context.inputs` contains all answers so far.

    Args:
        key: Identifies the question among those of the call.
        request: What is shown: `by`, who asks, and `message`, plain text. Optionally `url` with its
            `host`, and `note`, a warning to the person who answers.
        form: JSON Schema of the values: an object. None: there is nothing to fill in.
        before: Further data that the next attempt needs.
        begun: Whether the call may have taken effect before it asked. If it must not run twice, the
            question says so.
    """

    type = "NeedsInput"

    def __init__(
        self,
        key: str,
        request: Mapping[str, Plain],
        form: Mapping[str, Plain] | None = None,
        before: Mapping[str, Plain] | None = None,
        *,
        begun: bool = False,
    ) -> None:
        asked: dict[str, Plain] = {"key": key, "request": {**request}}
        asked |= {} if form is None else {"form": {**form}}
        asked |= {} if before is None else {"before": {**before}}
        asked |= {"begun": True} if begun else {}
        message = f"it needs input: {request['by']} asks: {request['message']}"
        super().__init__(message, data={"input": asked}, retryable=False)


class ExitCode(StepError):
    """A command ended with an exit code that is not accepted."""

    type = "ExitCode"


class OutOfMemory(StepError):
    """A command or code failed because it reached the memory limit of its environment."""

    type = "OutOfMemory"


class ValidationError(StepError):
    """Arguments or a result do not fit their schema."""

    type = "ValidationError"


class Refused(StepError):
    """A rule forbids the call."""

    type = "Refused"


class Rejected(StepError):
    """An approver rejected the call, or the approval expired."""

    type = "Rejected"


class SecretMissing(StepError):
    """A secret that the step needs is missing."""

    type = "SecretMissing"


class EnvironmentFailure(StepError):
    """Base of all failures of environments. Never raised itself."""


class EnvironmentUnavailable(EnvironmentFailure):
    """This machine cannot provide the environment. The message contains the remedy."""

    type = "EnvironmentUnavailable"


class ImageUnavailable(EnvironmentUnavailable):
    """The image of a container is missing and could not, or must not, be fetched."""

    type = "ImageUnavailable"


class EnvironmentStartFailed(EnvironmentFailure):
    """The environment did not start."""

    type = "EnvironmentStartFailed"


class EnvironmentLost(EnvironmentFailure):
    """The environment ended, or the connection to it broke, during use.

    The next use opens a new one.
    """

    type = "EnvironmentLost"


class EnvironmentClosed(EnvironmentFailure):
    """The environment was released, or belongs to another process."""

    type = "EnvironmentClosed"


class EnvironmentBusy(EnvironmentFailure):
    """No place became free in time, or the environment is busy."""

    type = "EnvironmentBusy"


class PathEscape(EnvironmentFailure):
    """A path leads out of the directories that the environment may use."""

    type = "PathEscape"


class NotAFile(EnvironmentFailure):
    """A path names a directory, device or pipe, which cannot be read or written as a file."""

    type = "NotAFile"


class LimitExceeded(EnvironmentFailure):
    """A limit of an environment or of a tool was reached.

    `data` contains the limit and its value.
    """

    type = "LimitExceeded"
