"""Errors of model calls. They declare whether a retry is useful, and the engine retries."""

from __future__ import annotations

from flowengine.sdk import StepError


class ModelError(StepError):
    """The call failed before it was sent, or at the provider. The cause is the provider's error."""

    type = "ModelError"


class RateLimited(ModelError):
    """The provider limits requests. `retry_after` contains the seconds that it requested."""

    type = "RateLimited"


class ContextWindowExceeded(ModelError):
    """The conversation exceeds the model's context window, so a retry cannot succeed."""

    type = "ContextWindowExceeded"

    def __init__(self, message: str, *, tokens: int | None = None) -> None:
        data = {} if tokens is None else {"tokens": tokens}
        super().__init__(message, data=data, retryable=False)
