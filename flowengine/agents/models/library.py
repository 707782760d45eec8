"""litellm, the library that speaks to providers: loaded once, late, on a thread, and kept quiet.

Its import takes seconds and a lot of memory. So nothing imports it but this, and only when a model
is asked, or a flow with agents says that one will be.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowengine.agents.models.errors import ModelError
from flowengine.agents.models.plain_requests import spare
from flowengine.garbage import CollectedLater
from flowengine.sdk.threads import on_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

_WHILE_IMPORTED = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # prices come with it, it asks nobody
    "LITELLM_MODE": "PRODUCTION",  # it reads no .env from the working folder
}
_WARNINGS = (
    "Items? '.*' on TypedDict class '.*' (is|are) using the `ReadOnly` qualifier",
    "Pydantic serializer warnings",
)
"""What pydantic says of its types."""
_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")

_lock = threading.Lock()
_loaded: Any = None


def begin_loading() -> None:
    """Load the library on a thread, if nobody has yet; whoever needs it first waits less."""
    if _loaded is None and not _lock.locked():
        threading.Thread(target=_load_quietly, name="flowengine-litellm", daemon=True).start()


async def library() -> Any:
    """Return the library; the first time, that takes seconds on a thread.

    Returns:
        The module `litellm`.

    Raises:
        ModelError: It is not installed, or cannot be imported.
    """
    return _loaded or await on_thread(load)


def load() -> Any:
    """Return the library, as `library` does, and block meanwhile."""
    global _loaded  # noqa: PLW0603 - one a process
    with _lock:
        if _loaded is None:
            try:
                # To look for garbage among all that is imported is a third of the time.
                with _environment(_WHILE_IMPORTED), CollectedLater():
                    litellm = import_module("litellm")
            except ImportError as error:
                raise ModelError(
                    f"models and search services need litellm, and it cannot be imported: {error}. "
                    'Install it: pip install "flowengine[agents]"',
                    retryable=False,
                ) from None
            _quieten(litellm)
            spare()
            _loaded = litellm
    return _loaded


def _load_quietly() -> None:
    try:
        load()
    except ModelError:  # whoever asks a model is told
        return


def _quieten(litellm: Any) -> None:
    """Turn off what it would do by itself: print, log requests, retry, report."""
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.num_retries = 0
    litellm.disable_streaming_logging = True
    litellm.disable_hf_tokenizer_download = True
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message, UserWarning)
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = False
        logger.setLevel(logging.CRITICAL)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables of this process for a while: what steps start must not inherit them."""
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
    """Reset in the child of a fork: the thread that held the lock is the parent's."""
    global _lock  # noqa: PLW0603 - one a process
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
