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
    """Arguments arrived for an unknown call, or for a call whose arguments are final.

    Args:
        code: `unknown_call`, `late_update` or `invalid`.
        message: The error.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DecisionError(ToolEnvironmentError):
    """A decision was rejected. The question and all grants are unchanged.

    Args:
        code: `unknown_call`, `not_open`, `invalid_decision` or `not_allowed`.
        message: The error.
        field: The invalid field of the decision.
    """

    def __init__(self, code: str, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class StateError(ToolEnvironmentError):
    """A value in `ctx.state` is not plain data. The old value remains."""

    code = "state"
