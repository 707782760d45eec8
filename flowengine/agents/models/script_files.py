"""Model scripts in files: a list of entries, as YAML or JSON."""

from __future__ import annotations

from typing import Any

from flowengine.agents.models.errors import ModelError
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import InputError


def read_script(path: str) -> ScriptedModel:
    """Read a script whose entries are chosen by the place in the conversation, in any process.

    Args:
        path: Path of the file.

    Returns:
        The model.

    Raises:
        ModelError: The file does not exist, or does not contain a script.
    """
    try:
        with open(path, encoding="utf-8") as file:
            entries = _entries(file.read())
        return ScriptedModel(entries, name=path, by_turn=True, recording=False)
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, InputError) as error:
        reason = str(error)
    raise ModelError(f"the script {path} cannot be read: {reason}", retryable=False)


def _entries(text: str) -> list[Any]:
    import yaml

    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise ValueError(f"it is not YAML{place}: {getattr(error, 'problem', error)}") from None
    if not isinstance(data, list) or not all(isinstance(item, dict | str) for item in data):
        raise ValueError("it must be a list of replies, such as '- text: Hello.'")
    return data
