"""The tree of errors: what happened, where, what to do.

Every error that a caller can get is a `FlowEngineError`. Its message says what happened and where;
`hint` says what to do, if that is known; `exit_code` is the command line's (docs/cli.md).
"""

from __future__ import annotations

from typing import Any, ClassVar


class FlowEngineError(Exception):
    """Base of all errors of the engine; never raised itself.

    Args:
        message: What happened, and where.
        hint: What to do, as a sentence or a command.
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
    """A flow file has errors; nothing was run.

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
        message: What does not match, naming the field.
        field: The field, as a dotted path.
        hint: What would match.
    """

    exit_code = 3

    def __init__(self, message: str, *, field: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class NotFound(FlowEngineError):
    """There is no such execution, wait, step or file."""

    exit_code = 9


class Conflict(FlowEngineError):
    """Already decided differently, held by another process, or in the wrong status.

    Args:
        message: What conflicts.
        standing: The current state, for example the decision that was made.
        hint: What to do.
    """

    exit_code = 7

    def __init__(self, message: str, *, standing: Any = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.standing = standing


class LeaseLost(Conflict):
    """Another process owns the execution now; the late writes of this one were not kept."""


class NotAllowed(FlowEngineError):
    """Not an assignee, excluded, or refused by a policy."""

    exit_code = 8


class StoreError(FlowEngineError):
    """The store cannot be read or written. What was committed before is kept."""

    exit_code = 10
