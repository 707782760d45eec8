"""The hierarchy of errors: what happened, where, what to do.

Every error that a caller can receive is a `FlowEngineError`. Its message contains the problem and
its place. `hint` contains the remedy, if it is known, and `exit_code` is the exit code of the
command line (docs/cli.md).
"""

from __future__ import annotations

from typing import Any, ClassVar


class FlowEngineError(Exception):
    """Base of all errors of the engine. Never raised itself.

    Args:
        message: The problem, and its place.
        hint: The remedy, as a sentence or a command.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class UsageError(FlowEngineError):
    """An invalid call or command line."""

    exit_code = 2


class FlowFileError(FlowEngineError):
    """A flow file has errors, so nothing was run.

    Args:
        message: The rendered report of all errors.
        diagnostics: The errors, one by one.
    """

    exit_code = 3

    def __init__(self, message: str, diagnostics: list[Any]) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics
        """`flowengine.flow.source.diagnostics.Diagnostic` objects, in file order."""


class InputError(FlowEngineError):
    """Inputs, a form, an edit or the data of a signal do not match their schema.

    Args:
        message: The mismatch, with the name of the field.
        field: The field, as a dotted path.
        hint: A matching value.
    """

    exit_code = 3

    def __init__(self, message: str, *, field: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class NotFound(FlowEngineError):
    """An execution, wait, step or file does not exist."""

    exit_code = 9


class Conflict(FlowEngineError):
    """The object is already decided, held by another process, or in the wrong status.

    Args:
        message: The conflict.
        standing: The current state, for example the decision that was made.
        hint: The remedy.
    """

    exit_code = 7

    def __init__(self, message: str, *, standing: Any = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.standing = standing


class LeaseLost(Conflict):
    """Another process owns the execution now. Late writes of this process were not kept."""


class NotAllowed(FlowEngineError):
    """The user is not an assignee, is excluded, or is refused by a policy."""

    exit_code = 8


class StoreError(FlowEngineError):
    """The store cannot be read or written. Data that was committed before is kept."""

    exit_code = 10
