"""Errors of the tool environment: what a program did wrong. Faults of tools are results."""

from __future__ import annotations

from flowengine.errors import FlowEngineError


class ToolEnvironmentError(FlowEngineError):
    """Base of the errors of the tool environment; never raised itself.

    Attributes:
        code: Stable name of what is wrong.
    """

    exit_code = 2
    code: str = "tool_environment"


class EnvironmentClosed(ToolEnvironmentError):
    """The environment was disposed of."""

    code = "environment_closed"


class RegistrationError(ToolEnvironmentError):
    """A tool, observer or callback cannot be registered; what was there before stays."""

    code = "registration"


class CallError(ToolEnvironmentError):
    """Parameters were sent for a call that does not take them any more, or that is not known.

    Args:
        code: `unknown_call`, `late_update`, `invalid`.
        message: What is wrong.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DecisionError(ToolEnvironmentError):
    """A decision was not accepted; the question and all grants are as before.

    Args:
        code: `unknown_call`, `not_open`, `invalid_decision`, `not_allowed`.
        message: What is wrong.
        field: The field of the decision that is wrong.
    """

    def __init__(self, code: str, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class StateError(ToolEnvironmentError):
    """A value in `ctx.state` is not plain data; the old value stays."""

    code = "state"
