"""The errors that steps and environments raise: their names are the types of the language.

A class's `type` is a stable name: `on_error` of a flow file, logs and events use it. What goes
wrong with an environment is an `EnvironmentFailure`, whichever it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from flowengine.kernel.graph.compiled import Plain


class StepError(Exception):
    """A step failed. Subclasses without a module of their own are the types of the language.

    Args:
        message: What happened, where, and what to do.
        data: Plain data for handlers: a status, an exit code, what is left to do.
        type: Name that handlers see; default: the class.
        retryable: Whether trying again may help; default: what the type says.
        retry_after: Seconds that the other side asked to wait before another try.
    """

    type: ClassVar[str | None] = None
    """Name in flow files; None: `module.Class`."""

    def __init__(
        self,
        message: str,
        *,
        data: Plain = None,
        type: str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        self.name = type or self.type
        self.retryable = retryable
        self.retry_after = retry_after
        self.environment: str | None = None
        """Id of the spec of the environment that could not be had, where the manager says so."""


class Timeout(StepError):
    """The other side did not answer in time."""

    type = "Timeout"


class HttpError(StepError):
    """A request failed or was answered with a status that is not accepted."""

    type = "HttpError"


class ToolError(StepError):
    """A tool failed in a way that another try may mend."""

    type = "ToolError"


class ToolChanged(ToolError):
    """A tool is not what it was when it was offered; it was not called."""

    type = "ToolChanged"


class NeedsApproval(StepError):
    """People have to say yes to what a call would do, which it only found out at the last moment.

    Raise it before that is done. The call then waits for an approval that shows `action` and
    `target`; with a yes it is made again, and `context.approval["found"]` is what was found. Do it
    if the same is found then, else raise this anew: a yes is for exactly one call and one target.

    Args:
        found: `action`: what the call would do, in a few words; `target`: to what, as plain data
            that people can judge. What else it holds is not shown.
        before: What the next attempt has to know besides.
    """

    type = "NeedsApproval"

    def __init__(
        self, found: Mapping[str, Plain], before: Mapping[str, Plain] | None = None
    ) -> None:
        kept = {**found} if before is None else {**found, "before": {**before}}
        message = f"people have to approve it first: {found['action']}"
        super().__init__(message, data={"found": kept}, retryable=False)


class ExitCode(StepError):
    """A command ended with an exit code that is not accepted."""

    type = "ExitCode"


class OutOfMemory(StepError):
    """A command or code failed because memory was at the limit of its environment."""

    type = "OutOfMemory"


class ValidationError(StepError):
    """Arguments or a result do not fit their schema."""

    type = "ValidationError"


class Refused(StepError):
    """A policy forbids it."""

    type = "Refused"


class Rejected(StepError):
    """Somebody was asked and said no, or nobody answered in time."""

    type = "Rejected"


class SecretMissing(StepError):
    """A secret that the step needs is not there."""

    type = "SecretMissing"


class EnvironmentFailure(StepError):
    """Something is wrong with an environment; never raised itself."""


class EnvironmentUnavailable(EnvironmentFailure):
    """This machine cannot give the environment; the message says what can be done."""

    type = "EnvironmentUnavailable"


class ImageUnavailable(EnvironmentUnavailable):
    """The image of a container is not here and could not, or must not, be fetched."""

    type = "ImageUnavailable"


class EnvironmentStartFailed(EnvironmentFailure):
    """The environment did not start."""

    type = "EnvironmentStartFailed"


class EnvironmentLost(EnvironmentFailure):
    """The environment ended, or was cut off, while it was used; the next use opens a new one."""

    type = "EnvironmentLost"


class EnvironmentClosed(EnvironmentFailure):
    """The environment was given back, or belongs to another process."""

    type = "EnvironmentClosed"


class EnvironmentBusy(EnvironmentFailure):
    """No place was free in time, or the environment does something else."""

    type = "EnvironmentBusy"


class PathEscape(EnvironmentFailure):
    """A path leads out of the folders that the environment may use."""

    type = "PathEscape"


class NotAFile(EnvironmentFailure):
    """A path names something that cannot be read or written as a file: a folder, device, pipe."""

    type = "NotAFile"


class LimitExceeded(EnvironmentFailure):
    """A limit of an environment or of a tool was reached; `data` names limit and value."""

    type = "LimitExceeded"
