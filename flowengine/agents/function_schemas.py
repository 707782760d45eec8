"""Python functions as tools: the JSON Schema that a model is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from flowengine import registry
from flowengine.errors import FlowEngineError, UsageError
from flowengine.sdk.python_functions.live_signature import name_of, read_function
from flowengine.sdk.python_functions.signature import Signature

LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def function_to_json(
    function: Callable[..., Any], *, environments: Collection[str] = ()
) -> dict[str, Any]:
    """Return a function as a tool in the form of chat completions.

    Args:
        function: A function, bound method, partial or object that can be called.
        environments: Names of parameters that get environments, besides those whose type hint is
            the class of one.

    Returns:
        `{"type": "function", "function": {"name", "description", "parameters"}}`. What the engine
        gives the function - `context_variables`, environments - is not in it.

    Raises:
        UsageError: A model cannot call it: it has no name, or a parameter has no JSON Schema.
    """
    name, signature = read_tool(function, environments=environments)
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": signature.description,
            "parameters": {"type": "object", "required": [], **(signature.args or {})},
        },
    }


def read_tool(
    function: Callable[..., Any], *, environments: Collection[str] = ()
) -> tuple[str, Signature]:
    """Return the name and the signature of a function that is to be a tool.

    Args:
        function: As for `function_to_json`.
        environments: As for `function_to_json`.

    Returns:
        The name that the model calls it by; what it takes and gives.

    Raises:
        UsageError: A model cannot call it.
    """
    if not callable(function):
        raise UsageError(
            f"{function!r} is not a function", hint="give a function, a method or a partial"
        )
    name = name_of(function)
    if name == "<lambda>":
        raise UsageError(
            "a lambda has no name that a model could call", hint="define it with 'def'"
        )
    check_name(name)
    return name, read_function(function, environments=environments, is_environment=_is_environment)


def check_name(name: str) -> None:
    """Check that a tool can have a name.

    Raises:
        UsageError: No model could call it by that name.
    """
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:LONGEST_NAME]!r} cannot be the name of a tool",
            hint=f"take letters, digits, '_' and '-', {LONGEST_NAME} at most",
        )


def _is_environment(cls: type) -> bool:
    """Return whether an installed kind opens environments of a class, or of one derived from it."""
    for kind in registry.kinds_from(cls.__module__):
        try:
            opened = registry.provider(kind).resource_types()
        except FlowEngineError:
            continue  # it is reported where a flow uses it
        if any(issubclass(one, cls) for one in opened):
            return True
    return False
