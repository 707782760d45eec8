"""JSON Schemas of Python functions that are tools."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from typing import Any

from flowengine import registry
from flowengine.errors import FlowEngineError, UsageError
from flowengine.sdk.python.argument_checks import check_function
from flowengine.sdk.python.live_signature import (
    Signature,
    name_of,
    read_function,
)
from flowengine.sdk.python.schema_forms import with_distinct_members

LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def function_to_json(
    function: Callable[..., Any], *, environments: Collection[str] = ()
) -> dict[str, Any]:
    """Return a function as a tool in the format of chat completions.

    Args:
        function: A function, bound method, partial or callable object.
        environments: Names of parameters that receive environments, in addition to those annotated
            with an environment class.

    Returns:
        `{"type": "function", "function": {"name", "description", "parameters"}}`. Parameters that
        the engine supplies (`context_variables`, environments) are excluded.

    Raises:
        UsageError: A model cannot call the function because it has no name, or because a parameter
            has no JSON Schema.
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
        The name by which the model calls it, and its signature.

    Raises:
        UsageError: A model cannot call it.
    """
    hint = "give a function, a method or a partial"
    if hasattr(function, "as_tool"):
        hint = "give agent.as_tool(), or let it take over: handoffs=[agent]"
    check_function(function, hint)
    name = name_of(function)
    if name == "<lambda>":
        raise UsageError(
            "a lambda has no name that a model could call", hint="define it with 'def'"
        )
    check_name(name)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{name} is a generator, which no model can read", hint="return a list")
    signature = read_function(function, environments=environments, is_environment=_is_environment)
    if signature.args is None:
        return name, signature
    return name, signature._replace(args=with_distinct_members(signature.args))


def check_name(name: str) -> None:
    """Check that a name is valid for a tool.

    Raises:
        UsageError: Models cannot call a tool by that name.
    """
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:LONGEST_NAME]!r} cannot be the name of a tool",
            hint=f"take letters, digits, '_' and '-', {LONGEST_NAME} at most",
        )


def _is_environment(cls: type) -> bool:
    """Return whether an installed kind opens environments of a class or of a subclass."""
    for kind in registry.kinds_from(cls.__module__):
        try:
            opened = registry.provider(kind).resource_types()
        except FlowEngineError:
            continue  # reported where a flow uses it
        if any(issubclass(base, cls) for base in opened):
            return True
    return False
