"""Messages of pydantic errors in the terms of flow files: `must be a whole number`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

_MUST_BE = {
    "string_type": "text",
    "string_sub_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "callable_type": "a function",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
}


def predicate(error: Mapping[str, Any]) -> str:
    """Return the problem with a value as a predicate, to be appended to its name.

    Args:
        error: An entry of pydantic's `ValidationError.errors()`, with its context.

    Returns:
        For example `must be a whole number`. It does not contain the value.
    """
    wanted = _MUST_BE.get(error["type"])
    if wanted is not None:
        return f"must be {wanted.format_map(error.get('ctx', {}))}"
    text = str(error["msg"]).removeprefix("Value error, ")
    return text if text[:2].isupper() else text[:1].lower() + text[1:]  # such as JSON


def parser_reason(error: Exception) -> str:
    """Return the reason why a URL parser refused a text, without the quoted pieces.

    A piece of a secret could not be recognized as one.
    """
    reason = re.split("['\"]", str(error), maxsplit=1)[0].strip(" :,")
    return reason[:1].lower() + reason[1:] if reason else "it cannot be parsed"


def faults(error: ValidationError) -> str:
    """Return every fault found by pydantic, each with its field."""
    return "; ".join(
        f"'{'.'.join(map(str, each['loc']))}' {predicate(each)}" if each["loc"] else predicate(each)
        for each in error.errors(include_url=False, include_input=False)
    )
