"""Conversion of provider errors to our errors, with their retryability and retry delay."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from flowengine.masking import Masker
from flowengine.sdk import StepError, Timeout


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


LONGEST_WAIT = 60.0
"""Maximum seconds of a requested delay. A longer one makes the error final."""

_PASSING_STATUS = frozenset({408, 409, 425, 429})
_TOO_LONG = re.compile(
    r"maximum context (?:length|limit)|context[ _]length[ _]exceeded|context window"
    r"|exceed(?:s|ed)? (?:the )?(?:available )?context|(?:prompt|input) is too long"
    r"|too many input tokens|exceeds the maximum number of tokens",
    re.IGNORECASE,
)
_TOKENS = re.compile(r"(\d[\d,]{2,}) (?:input )?tokens", re.IGNORECASE)
_NO_TOOLS = re.compile(
    r"(?:does(?:n't| not)|do(?:n't| not)|no\b.{0,30}) support.{0,40}\b(?:tool|function)"
    r"|\b(?:tools?|function calling|tool use|tool_choice|functions)\b.{0,40}\b(?:is|are) not "
    r"(?:supported|available)|unsupported.{0,40}\btools?\b|enable-auto-tool-choice",
    re.IGNORECASE | re.DOTALL,
)
_NO_SCHEMA = re.compile(
    r"response_(?:format|schema|json_schema)|json_schema|structured output|grammar", re.IGNORECASE
)
_NO_CREDENTIALS = re.compile(
    r"\bmissing (?:\S+ )?(?:credentials|api[ _]key)|\bunable to locate credentials"
    r"|\b(?-i:[A-Z][A-Z0-9_]+) is not set\b",
    re.IGNORECASE,
)
"""Errors raised before anything was sent. LiteLLM may classify them as server errors."""
_SECRET_NAME = re.compile(r"key|token|secret|password|credential|authorization", re.IGNORECASE)
_WRAPPING = re.compile(
    r"^(?:litellm\.\w+: )+(?:\w+ ?Error: )*(?:\w+Exception(?: \w+)? - )?"
    r"|\.? Handle with `litellm\.\w+`\.?$"
    r"| ssl:(?:<[^<>]*>|\w+)(?= \[)"
)
"""Text that libraries add around the provider's or network's message."""
_LONGEST_MESSAGE = 2_000
_UNHEARD = ("Timeout", "TimeoutException", "APIConnectionError", "TransportError")
_UNREADABLE = ("JSONDecodeError", "UnicodeDecodeError", "RecursionError", "ValidationError")
"""Errors that the library raises for an unreadable response."""
_UNREADABLE_TEXTS = ("Invalid response object", "provider returned 'choices' that is not a list")
"""Parts of its messages for a response that has another form than a reply."""
_NOT_BEGUN = (
    *("ConnectError", "ConnectTimeout", "PoolTimeout", "ClientConnectorError", "gaierror"),
    "HTTPStatusError",
)


def refuses_tools(error: BaseException) -> bool:
    """Return whether a provider rejected tools for the model."""
    return _refuses(error, _NO_TOOLS)


def refuses_schema(error: BaseException) -> bool:
    """Return whether a provider rejected the schema of the answer."""
    return _refuses(error, _NO_SCHEMA)


def _refuses(error: BaseException, words: re.Pattern[str]) -> bool:
    return _status(error) in (400, 404, 422, 501) and bool(words.search(str(error)))


def as_ours(
    error: Exception, model: str, settings: Mapping[str, Any], *, broke_off: bool = False
) -> StepError:
    """Return our error for a provider's error, with the latter as its cause.

    Args:
        error: The error that the library raised.
        model: The model that was called.
        settings: Settings of the request. Secrets in them are masked in the message.
        broke_off: Whether a part of the reply had arrived.
    """
    original = error  # inside the library's wrapper for errors of a stream
    while isinstance(inner := getattr(original, "original_exception", None), Exception):
        original = inner
    words = _masked(original, settings)
    message = f"{model}: {words}"
    failure: StepError
    if _named(original, "ContextWindowExceededError") or (
        _status(original) in (400, 413, 422) and _TOO_LONG.search(words)
    ):
        tokens = [int(number.replace(",", "")) for number in _TOKENS.findall(words)]
        failure = ContextWindowExceeded(
            f"{model}: the conversation is longer than the model's context window: {words}",
            tokens=max(tokens, default=None),
        )
    elif _status(original) == 429:
        hopeless = "insufficient_quota" in message or "exceeded your current quota" in message
        failure = _with_wait(RateLimited(message, retryable=not hopeless), original)
    elif isinstance(original, TimeoutError) or _named(original, "Timeout", "TimeoutException"):
        failure = Timeout(f"{model} did not answer in time: {words}", retryable=True)
    else:
        failure = _with_wait(
            ModelError(message, retryable=broke_off or _may_pass(original)), original
        )
    failure.__cause__ = original
    if broke_off or _may_have_begun(original):
        failure.data = {
            **(failure.data if isinstance(failure.data, Mapping) else {}),
            "unfinished": True,
        }
    return failure


def _may_have_begun(error: BaseException) -> bool:
    """Return whether the provider may have charged for a reply that was not fully received.

    A provider that responds with an error has not, and a failed connection has not either.
    """
    chain = list(_chain(error))
    unheard = any(isinstance(cause, OSError) or _named(cause, *_UNHEARD) for cause in chain)
    refused = any(
        isinstance(cause, ConnectionRefusedError) or _named(cause, *_NOT_BEGUN) for cause in chain
    )
    return (unheard or _unreadable(error)) and not refused


def _with_wait(failure: ModelError, error: BaseException) -> ModelError:
    """Add the delay that the provider requests. An excessive delay makes the error final."""
    wait = _asked_wait(error)
    if wait is None or wait <= LONGEST_WAIT:
        failure.retry_after = wait
        return failure
    return type(failure)(
        f"{failure.message} (It asks to wait for {wait:g} s, and {LONGEST_WAIT:g} s is the most.)",
        retryable=False,
        data={"retry_after": wait},
    )


def _may_pass(error: BaseException) -> bool:
    if _named(error, "AuthenticationError", "PermissionDeniedError", "NotFoundError"):
        return False
    if _NO_CREDENTIALS.search(str(error)) or any(isinstance(e, ImportError) for e in _chain(error)):
        return False
    if _named(error, "APIConnectionError", "TransportError", "ConnectionError"):
        return not isinstance(error.__cause__, TypeError | ValueError | KeyError)
    status = _status(error)
    if _unreadable(error):
        return True
    if status is not None:
        return status in _PASSING_STATUS or status >= 500
    return isinstance(error, OSError)


def _unreadable(error: BaseException) -> bool:
    """Return whether the response was unreadable. The library may report it as a bad request."""
    chain = list(_chain(error))
    refused = any(_named(cause, "HTTPStatusError") for cause in chain)
    return not refused and any(
        _named(cause, *_UNREADABLE) or any(text in str(cause) for text in _UNREADABLE_TEXTS)
        for cause in chain
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _named(error: BaseException, *names: str) -> bool:
    """Return whether the error's class has one of these names, without importing the library."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _asked_wait(error: BaseException) -> float | None:
    """Return the seconds that a provider requests in any form of `Retry-After`."""
    for headers in _headers(error):
        if milliseconds := _number(headers.get("retry-after-ms")):
            return milliseconds / 1000
        value = headers.get("retry-after")
        if value is None:
            continue
        seconds = _number(value)
        if seconds is not None:
            return seconds
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except (TypeError, ValueError):
            continue
    return None


def _headers(error: BaseException) -> Iterator[Mapping[str, str]]:
    for cause in _chain(error):
        response = getattr(cause, "response", None)
        for holder in (
            getattr(cause, "litellm_response_headers", None),
            getattr(cause, "headers", None),
            getattr(response, "headers", None),
        ):
            if isinstance(holder, Mapping):
                yield {str(name).lower(): str(value) for name, value in holder.items()}


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None


def _masked(error: Exception, settings: Mapping[str, Any]) -> str:
    """Return an error's message without keys, and remove them from the error as well."""
    masker = Masker()
    for name, value in _secrets(settings):
        masker.learn(value, name)
    words = str(error)
    masked = str(masker.mask(words))
    if masked != words:
        error.args = (masked,)
        if hasattr(error, "message"):
            error.message = masked
    text, traceback, _ = masked.partition("Traceback (most recent call last)")
    short = _WRAPPING.sub("", text).strip() or type(error).__name__
    if traceback and not text.endswith("\n"):  # the library's own, with the cause below it
        *_, why = _chain(error)
        short += f": {masker.mask(str(why))}"
    return short if len(short) <= _LONGEST_MESSAGE else f"{short[:_LONGEST_MESSAGE]}…"


def _secrets(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield values with the name of a secret, from the settings and from variables of libraries."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and _SECRET_NAME.search(name):
            yield name, value
    for name, value in os.environ.items():
        if name.endswith(("_API_KEY", "_SECRET_ACCESS_KEY")):
            yield name, value
