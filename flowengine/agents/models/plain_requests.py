"""Spares requests of plain data a walk of the OpenAI client through all of the conversation.

Before it sends a request, the client compares each message with each type that a message may have,
to rename keys that are called otherwise in Python than on the wire, and to encode files. That takes
longer than all the rest of a call, and grows with the conversation. No key of a chat has another
name on the wire, and what is plain data already is encoded. So for requests made `as_plain` here,
and for no others in the process, the client sends what it is given.
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
    """Say that the requests made inside, in this context, are plain data."""
    token = _is_plain.set(True)
    try:
        yield
    finally:
        _is_plain.reset(token)


def spare() -> None:
    """Have the client look whether a request is plain; a client of another make stays as it is."""
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
            return {name: one for name, one in data.items() if is_given(one)}
        return await transform(data, expected_type)

    return transformed
