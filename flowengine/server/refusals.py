"""The error of a request that is refused before its operation."""

from __future__ import annotations

from flowengine.errors import FlowEngineError


class RequestRefused(FlowEngineError):
    """A request that HTTP itself, or the guard in front of the API, refuses.

    Args:
        status: The HTTP status.
        message: What is wrong.
        hint: The remedy.
        headers: Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.headers = headers or {}
