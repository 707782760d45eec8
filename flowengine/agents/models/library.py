"""Lazy loading of litellm, the library for providers, on a thread and with its output silenced.

Importing it takes seconds and much memory. Only this module imports it, when a model is first
called or a flow with agents announces a call.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from flowengine.agents.models.failures import ModelError
from flowengine.sdk.python.extras import install_command
from flowengine.sdk.python.user_code import on_thread
from flowengine.util.garbage import CollectedLater

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
        chat = import_module("openai.resources.chat.completions.completions")
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


_WHILE_IMPORTED = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # use the bundled prices, without a request
    "LITELLM_MODE": "PRODUCTION",  # read no .env file from the working directory
}
_WARNINGS = (
    "Items? '.*' on TypedDict class '.*' (is|are) using the `ReadOnly` qualifier",
    "Pydantic serializer warnings",
)
"""Warnings of pydantic about its types."""

_lock = threading.Lock()
_loaded: Any = None


def begin_loading() -> None:
    """Start loading the library on a thread, so that its first user waits less."""
    if _loaded is None and not _lock.locked():
        threading.Thread(target=_load_quietly, name="flowengine-litellm", daemon=True).start()


async def library() -> Any:
    """Return the library. Loading it the first time takes seconds, on a thread.

    Returns:
        The module `litellm`.

    Raises:
        ModelError: It is not installed, or cannot be imported.
    """
    return _loaded or await on_thread(load)


def load() -> Any:
    """Return the library like `library`, but block while it loads."""
    global _loaded  # noqa: PLW0603 - one per process
    with _lock:
        if _loaded is None:
            try:
                # Garbage collection would take a third of the import time.
                with _environment(_WHILE_IMPORTED), CollectedLater():
                    litellm = import_module("litellm")
            except ImportError as error:
                raise ModelError(
                    f"models and search services need litellm, and it cannot be imported: {error}. "
                    f"Install it: {install_command('agents')}",
                    retryable=False,
                ) from None
            _quieten(litellm)
            spare()
            _loaded = litellm
    return _loaded


def _load_quietly() -> None:
    try:
        load()
    except ModelError:  # the model call reports it
        return


def _quieten(litellm: Any) -> None:
    """Disable its own printing, request logs, retries and telemetry."""
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.num_retries = 0
    litellm.disable_streaming_logging = True
    litellm.disable_hf_tokenizer_download = True
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message, UserWarning)
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = False
        logger.setLevel(logging.CRITICAL)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables temporarily, so that child processes do not inherit them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _forked() -> None:
    """Replace the lock in the child of a fork, where the thread that held it does not exist."""
    global _lock  # noqa: PLW0603 - one per process
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
