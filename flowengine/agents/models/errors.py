"""What can go wrong with a call of a model. Retries are the engine's: these say whether to try."""

from __future__ import annotations

from flowengine.sdk import StepError


class ModelError(StepError):
    """A model was not asked, or its provider refused; the cause is the provider's own error."""

    type = "ModelError"


class RateLimited(ModelError):
    """The provider wants fewer requests; `retry_after` has the seconds that it asked for."""

    type = "RateLimited"


class ContextWindowExceeded(ModelError):
    """The conversation does not fit into the model's window: as it is, it never will."""

    type = "ContextWindowExceeded"

    def __init__(self, message: str, *, tokens: int | None = None) -> None:
        data = {} if tokens is None else {"tokens": tokens}
        super().__init__(message, data=data, retryable=False)
