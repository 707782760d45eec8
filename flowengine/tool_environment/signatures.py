"""Signatures of tool functions: the schema for models, and the conversion of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flowengine.errors import InputError, UsageError
from flowengine.sdk import StepError
from flowengine.sdk.python_functions.conversion import conversion
from flowengine.sdk.python_functions.live_signature import (
    given_parameters,
    read_function,
    resolved_hints,
)
from flowengine.tool_environment.context import ToolContext
from flowengine.tool_environment.errors import RegistrationError
from flowengine.validation import as_plain, shared

CONTEXT = "ctx"
"""Name of a parameter that receives the context, as does one annotated with `ToolContext`."""


class ArgumentFault(Exception):
    """Arguments do not fit. The message lists every fault."""


class ToolSignature(NamedTuple):
    """The signature of a function."""

    schema: dict[str, Any]
    """JSON Schema of the arguments, which are an object."""
    description: str
    """The description from its docstring."""
    convert: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Returns checked and converted arguments, or raises `ArgumentFault`."""
    context: str | None
    """The parameter that receives the context."""


def read(
    function: Callable[..., Any], name: str, declared: Mapping[str, Any] | None = None
) -> ToolSignature:
    """Read the signature of a function.

    Args:
        function: The function.
        name: Name of the tool, for messages.
        declared: The schema that the tool declares itself. Default: derived from the type hints.

    Returns:
        The signature.

    Raises:
        RegistrationError: Its arguments cannot be passed by name, or have no JSON Schema.
    """
    try:
        context = _context_of(function)
        around = () if context is None else (context,)
        signature = read_function(function, environments=around)
        typed = conversion(function, skip=around) if declared is None else None
        schema = dict(signature.args or {"type": "object"}) if declared is None else dict(declared)
        validator = shared(schema)
    except (UsageError, InputError) as error:
        raise RegistrationError(f"tool '{name}': {error.message}", hint=error.hint) from None

    def convert(args: Mapping[str, Any]) -> dict[str, Any]:
        try:
            plain = as_plain(dict(args), "arguments")
            checked: dict[str, Any] = validator.check(plain, "the arguments do not fit")
            return checked if typed is None else typed(checked)
        except (InputError, StepError) as error:
            raise ArgumentFault(error.message) from None

    return ToolSignature(schema, signature.description, convert, context)


def _context_of(function: Callable[..., Any]) -> str | None:
    hints = resolved_hints(function)
    for parameter in given_parameters(function):
        hint = hints.get(parameter.name, inspect.Parameter.empty)
        if hint is ToolContext:
            return parameter.name
        if parameter.name == CONTEXT and hint is inspect.Parameter.empty:
            return parameter.name
    return None
