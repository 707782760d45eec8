"""Errors of the tool environment, for incorrect use by a program. Tool failures are results."""

from __future__ import annotations

from flowengine.errors import FlowEngineError


class ToolEnvironmentError(FlowEngineError):
    """Base of the errors of the tool environment, never raised itself.

    Attributes:
        code: Stable name of the error.
    """

    exit_code = 2
    code: str = "tool_environment"


class ToolEnvironmentClosed(ToolEnvironmentError):
    """The environment was disposed of."""

    code = "environment_closed"


class RegistrationError(ToolEnvironmentError):
    """A tool, observer or callback cannot be registered. Earlier registrations remain."""

    code = "registration"


class CallError(ToolEnvironmentError):
    """A call that is wrong, or arguments for an unknown call or one whose arguments are final.

    Args:
        code: Such as `unknown_call`, `late_update`, `invalid` or `not_open`.
        message: The error.
        field: The invalid field of a decision.
    """

    def __init__(self, code: str, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class DecisionError(CallError):
    """A decision that does not count. The question remains unchanged.

    Its codes are `unknown_call`, `not_open` and `invalid_decision`.
    """
