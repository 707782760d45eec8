"""From the name of a model to what answers: `provider/model`, or `scripted/NAME`.

Whoever tests, or brings a model of their own, puts it in front: for a name (`register`), or for
all that a piece of a program asks (`using`).
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
    """Have a model answer to a name in this process, from now on.

    Args:
        name: Of one model, `scripted/demo`, or of a whole provider, `mine`.
        model: The one that answers; what was registered under the name before is replaced.
    """
    _registered[name] = model


def unregister(name: str) -> None:
    """Undo `register`; a name that is not registered stays so.

    Args:
        name: As it was registered.
    """
    _registered.pop(name, None)


@contextmanager
def using(model: Model) -> Iterator[Model]:
    """Have a model answer to every name, for what the `with` block runs and the tasks it starts.

    Args:
        model: The one that answers.

    Yields:
        The model.
    """
    token = _instead.set(model)
    try:
        yield model
    finally:
        _instead.reset(token)


def resolve(name: str) -> Model:
    """Return the model that answers to a name; nothing is loaded or asked yet.

    Args:
        name: `provider/model`; of `scripted/NAME` the name is one that is registered, or the path
            of a file, relative to the working folder.

    Returns:
        The model.

    Raises:
        ModelError: There is none.
    """
    if model := _instead.get():
        return model
    if not name.strip():
        raise ModelError("no model is named: say 'provider/model'", retryable=False)
    provider = name.partition("/")[0]
    if found := _registered.get(name) or _registered.get(provider):
        return found
    if provider == SCRIPTED:
        return _script(name)
    from flowengine.agents.models.provider_models import PROVIDER_MODELS

    return PROVIDER_MODELS


def in_folder(name: str, folder: str) -> str:
    """Return the name of a model; that of a script in a file with the folder of the file."""
    provider, _, script = name.partition("/")
    file = os.path.join(folder, script)
    return f"{provider}/{file}" if provider == SCRIPTED and os.path.isfile(file) else name


def prepare(name: str) -> None:
    """Begin to load what a model needs, on a thread; who asks it later waits less.

    Args:
        name: As for `resolve`; a model that cannot be resolved is left to that. A script is not
            read before it is asked.
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
        known = [one for one in sorted(_registered) if one.startswith(f"{SCRIPTED}/")]
        there = f"; there are {', '.join(known)}" if known else ""
        raise ModelError(
            f"no script is registered as {name}{there}: a script in a file is "
            f"named by its path, such as {SCRIPTED}/replies.yaml",
            retryable=False,
        )
    found = _scripts.get(script)
    if found is None:
        from flowengine.agents.models.script_files import read_script

        found = _scripts[script] = read_script(script)
    return found
