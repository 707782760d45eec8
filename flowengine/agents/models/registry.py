"""Resolution of a model name, `provider/model` or `scripted/NAME`, to a model.

Tests and custom models take precedence: under a name (`register`), or for all calls in a block
(`using`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from flowengine.agents.models.errors import ModelError

if TYPE_CHECKING:
    from flowengine.agents.models.port import Model

SCRIPTED = "scripted"
_FILES = (".yaml", ".yml", ".json")

_registered: dict[str, Model] = {}
_scripts: dict[str, Model] = {}
_instead: ContextVar[Model | None] = ContextVar("flowengine_model", default=None)


def register(name: str, model: Model) -> None:
    """Register a model under a name in this process.

    Args:
        name: Name of one model, `scripted/demo`, or of a whole provider, `mine`.
        model: The model, which replaces any other registered under the name.
    """
    _registered[name] = model


def unregister(name: str) -> None:
    """Undo `register`. An unregistered name is ignored.

    Args:
        name: The registered name.
    """
    _registered.pop(name, None)


@contextmanager
def using(model: Model) -> Iterator[Model]:
    """Use a model for every name, within the `with` block and the tasks that it starts.

    Args:
        model: The model.

    Yields:
        The model.
    """
    token = _instead.set(model)
    try:
        yield model
    finally:
        _instead.reset(token)


def resolve(name: str) -> Model:
    """Return the model for a name, without loading or calling it.

    Args:
        name: `provider/model`. In `scripted/NAME`, the name is registered, or is the path of a file
            relative to the working directory.

    Returns:
        The model.

    Raises:
        ModelError: The model does not exist.
    """
    if model := _instead.get():
        return model
    if not name.strip():
        raise ModelError("no model is named: say 'provider/model'", retryable=False)
    provider = name.partition("/")[0]
    if registered := _registered.get(name) or _registered.get(provider):
        return registered
    if provider == SCRIPTED:
        return _script(name)
    from flowengine.agents.models.provider_models import PROVIDER_MODELS

    return PROVIDER_MODELS


def in_folder(name: str, folder: str) -> str:
    """Return the name of a model. For a script file, include the given directory."""
    provider, _, script = name.partition("/")
    file = os.path.join(folder, script)
    return f"{provider}/{file}" if provider == SCRIPTED and os.path.isfile(file) else name


def prepare(name: str) -> None:
    """Start loading the library that a model needs, so that its first call waits less.

    Args:
        name: As for `resolve`. A name that cannot be resolved is ignored. A script is not read.
    """
    if name.startswith(f"{SCRIPTED}/"):
        return
    try:
        model = resolve(name)
    except ModelError:
        return
    load = getattr(model, "begin_loading", None)
    if load is not None:
        load()


def _script(name: str) -> Model:
    script = name.partition("/")[2]
    if not script.endswith(_FILES):
        known = [other for other in sorted(_registered) if other.startswith(f"{SCRIPTED}/")]
        there = f"; there are {', '.join(known)}" if known else ""
        raise ModelError(
            f"no script is registered as {name}{there}: a script in a file is "
            f"named by its path, such as {SCRIPTED}/replies.yaml",
            retryable=False,
        )
    queue = _scripts.get(script)
    if queue is None:
        from flowengine.agents.models.scripted import read_script

        queue = _scripts[script] = read_script(script)
    return queue
