"""Converters provided by a flow: `config: {converters: ["inis:convert"]}`.

Their source is read here and run in the sandboxed process that reads a file. The engine never runs
it, and the sandbox does not see the directory that contains it.
"""

from __future__ import annotations

import ast
from pathlib import Path

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Spec
from flowengine.sdk.sizes import size_text

_LARGEST = 64 * 1024
"""Maximum size of all sources together, because they are passed with each file."""


def sources(spec: Spec) -> list[dict[str, str]]:
    """Return the sources of the converters that a spec names.

    Args:
        spec: The requested environment.

    Raises:
        EnvironmentUnavailable: A file or function does not exist, or the sources are too large.
    """
    contents = []
    for named in spec.config.converters:
        module, _, function = named.partition(":")
        path = Path(spec.folder, *module.split(".")).with_suffix(".py")
        try:
            text = path.read_text(encoding="utf-8")
            body = ast.parse(text).body
        except (OSError, ValueError, SyntaxError) as error:
            raise EnvironmentUnavailable(
                f"{spec}: the converter '{named}' cannot be read from {path}: {error}"
            ) from None
        if not any(isinstance(each, ast.FunctionDef) and each.name == function for each in body):
            raise EnvironmentUnavailable(f"{spec}: {path} has no function '{function}'")
        contents.append({"name": named, "function": function, "source": text})
    if sum(len(each["source"].encode()) for each in contents) > _LARGEST:
        raise EnvironmentUnavailable(f"{spec}: its converters have more than {size_text(_LARGEST)}")
    return contents
