"""From a provider's error to one of ours: may it pass, and when is it worth another try?"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from flowengine.agents.models.errors import ContextWindowExceeded, ModelError, RateLimited
from flowengine.masking import Masker
from flowengine.sdk import StepError, Timeout

LONGEST_WAIT = 60.0
"""Seconds. A provider that asks for a longer wait ends the call with its demand."""

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
"""What is said before anything was sent; LiteLLM may take it for a fault of the server."""
_SECRET_NAME = re.compile(r"key|token|secret|password|credential|authorization", re.IGNORECASE)
_WRAPPING = re.compile(
    r"^(?:litellm\.\w+: )+(?:\w+ ?Error: )*(?:\w+Exception(?: \w+)? - )?"
    r"|\.? Handle with `litellm\.\w+`\.?$"
    r"| ssl:(?:<[^<>]*>|\w+)(?= \[)"
)
"""What the libraries put around a provider's words, or the words of the network."""
_TRACEBACK = "Traceback (most recent call last)"
_LONGEST_MESSAGE = 2_000
_UNHEARD = ("Timeout", "TimeoutException", "APIConnectionError", "TransportError")
_UNREADABLE = ("JSONDecodeError", "UnicodeDecodeError", "RecursionError", "ValidationError")
"""What the library fails with where an answer came that is none."""
_NOT_BEGUN = (
    *("ConnectError", "ConnectTimeout", "PoolTimeout", "ClientConnectorError", "gaierror"),
    "HTTPStatusError",
)


def refuses_tools(error: BaseException) -> bool:
    """Return whether a provider says that the model cannot be offered tools."""
    return _refuses(error, _NO_TOOLS)


def refuses_schema(error: BaseException) -> bool:
    """Return whether a provider says that it does not hold the answer to this schema."""
    return _refuses(error, _NO_SCHEMA)


def _refuses(error: BaseException, words: re.Pattern[str]) -> bool:
    return _status(error) in (400, 404, 422, 501) and bool(words.search(str(error)))


def as_ours(
    error: Exception, model: str, settings: Mapping[str, Any], *, broke_off: bool = False
) -> StepError:
    """Return what the engine is told of a provider's error; that one is its cause.

    Args:
        error: As the library raised it.
        model: The one that was asked.
        settings: Of the request; secrets in them are masked in the provider's words.
        broke_off: Whether a part of the reply had arrived.
    """
    original = _unwrapped(error)
    words = _masked(original, settings)
    said = f"{model}: {words}"
    found: StepError
    if _is_context_window(original, words):
        tokens = [int(number.replace(",", "")) for number in _TOKENS.findall(words)]
        found = ContextWindowExceeded(
            f"{model}: the conversation is longer than the model's context window: {words}",
            tokens=max(tokens, default=None),
        )
    elif _status(original) == 429:
        hopeless = "insufficient_quota" in said or "exceeded your current quota" in said
        found = _with_wait(RateLimited(said, retryable=not hopeless), original)
    elif isinstance(original, TimeoutError) or _named(original, "Timeout", "TimeoutException"):
        found = Timeout(f"{model} did not answer in time: {words}", retryable=True)
    else:
        found = _with_wait(ModelError(said, retryable=broke_off or _may_pass(original)), original)
    found.__cause__ = original
    if broke_off or _may_have_begun(original):
        found.data = {**(found.data if isinstance(found.data, Mapping) else {}), "unfinished": True}
    return found


def _may_have_begun(error: BaseException) -> bool:
    """Return whether a provider may have answered, and counts it: nobody has heard or read it all.

    One that answers with an error has not; nor has one to which there was no connection.
    """
    chain = list(_chain(error))
    unheard = any(isinstance(one, OSError) or _named(one, *_UNHEARD) for one in chain)
    refused = any(
        isinstance(one, ConnectionRefusedError) or _named(one, *_NOT_BEGUN) for one in chain
    )
    return (unheard or _unreadable(error)) and not refused


def _with_wait(found: ModelError, error: BaseException) -> ModelError:
    """Add the wait that the provider asks for; one that is too long ends the tries instead."""
    wait = _asked_wait(error)
    if wait is None or wait <= LONGEST_WAIT:
        found.retry_after = wait
        return found
    return type(found)(
        f"{found.message} (It asks to wait for {wait:g} s, and {LONGEST_WAIT:g} s is the most.)",
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
    """Return whether an answer came that is none; to the library, that may be a bad request."""
    chain = list(_chain(error))
    refused = any(_named(one, "HTTPStatusError") for one in chain)
    return not refused and any(_named(one, *_UNREADABLE) for one in chain)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_context_window(error: BaseException, words: str) -> bool:
    if _named(error, "ContextWindowExceededError"):
        return True
    return _status(error) in (400, 413, 422) and bool(_TOO_LONG.search(words))


def _named(error: BaseException, *names: str) -> bool:
    """Return whether an error is of a class of one of these names; the library is not imported."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _unwrapped(error: Exception) -> Exception:
    """Return the provider's error from inside of what the library wraps around that of a stream."""
    while isinstance(inner := getattr(error, "original_exception", None), Exception):
        error = inner
    return error


def _asked_wait(error: BaseException) -> float | None:
    """Return the seconds that a provider asks to wait, by `Retry-After` in whichever form."""
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
    for one in _chain(error):
        response = getattr(one, "response", None)
        for holder in (
            getattr(one, "litellm_response_headers", None),
            getattr(one, "headers", None),
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
    """Return an error's words without keys, and take these out of the error as well."""
    masker = Masker()
    for name, value in _secrets(settings):
        masker.learn(value, name)
    words = str(error)
    masked = str(masker.mask(words))
    if masked != words:
        error.args = (masked,)
        if hasattr(error, "message"):
            error.message = masked
    said, traceback, _ = masked.partition(_TRACEBACK)
    short = _WRAPPING.sub("", said).strip() or type(error).__name__
    if traceback and not said.endswith("\n"):  # the library's own: why stands below it
        *_, why = _chain(error)
        short += f": {masker.mask(str(why))}"
    return short if len(short) <= _LONGEST_MESSAGE else f"{short[:_LONGEST_MESSAGE]}…"


def _secrets(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is a secret by its name: in the settings, and in variables that libraries read."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and _SECRET_NAME.search(name):
            yield name, value
    for name, value in os.environ.items():
        if name.endswith(("_API_KEY", "_SECRET_ACCESS_KEY")):
            yield name, value
