"""A shortcut past the OpenAI client's conversion of requests that are already plain data.

Before the client sends a request, it compares each message with each possible message type, to
rename keys whose names differ on the wire, and to encode files. This takes longer than the rest of
a call, and grows with the conversation. No key of a chat has a different name on the wire, and
plain data is already encoded. Within `as_plain`, the client therefore sends the data unchanged.
Other requests of the process are not affected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

_CHAT = "openai.resources.chat.completions.completions"
_NAME = "async_maybe_transform"
_is_plain: ContextVar[bool] = ContextVar("flowengine_plain_request", default=False)

Transform = Callable[[Any, Any], Awaitable[Any]]


@contextmanager
def as_plain() -> Iterator[None]:
    """Declare that requests made in this context are plain data."""
    token = _is_plain.set(True)
    try:
        yield
    finally:
        _is_plain.reset(token)


def spare() -> None:
    """Patch the client, unless it is unknown, to skip the conversion of plain requests."""
    try:
        chat = import_module(_CHAT)
        transform: Transform = getattr(chat, _NAME)
        is_given = import_module("openai._utils").is_given
    except (ImportError, AttributeError):
        return
    setattr(chat, _NAME, _sparing(transform, is_given))


def _sparing(transform: Transform, is_given: Callable[[Any], bool]) -> Transform:
    async def transformed(data: Any, expected_type: Any) -> Any:
        if _is_plain.get() and isinstance(data, dict):
            return {name: value for name, value in data.items() if is_given(value)}
        return await transform(data, expected_type)

    return transformed
