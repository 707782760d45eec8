"""Messages of pydantic errors in the terms of flow files: `must be a whole number`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

_WORD = re.compile(r"'([^']*)'")

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


class ModelFault(NamedTuple):
    """A fault that a model has found in plain data, at one place."""

    path: tuple[str | int, ...]
    """The place: keys and indexes. The last one is missing if `kind` is `missing`."""
    value: Any
    """What is there."""
    kind: str
    """Pydantic's type of the error, such as `extra_forbidden`."""
    meant: list[str]
    """The keys or words that are known there, if one of these is."""
    said: str
    """See `predicate`."""


def model_faults(
    error: ValidationError,
    model: type[BaseModel],
    data: Any,
    may_fit: Callable[[Any], bool] = lambda value: False,
) -> list[ModelFault]:
    """Return the faults that a model has found, one for each place.

    In a union, the member that fits best determines the message.

    Args:
        error: The error of validating against it.
        model: The model.
        data: The validated data.
        may_fit: Returns whether a value that does not fit may do so later.
    """
    found: dict[tuple[str | int, ...], ModelFault] = {}
    # Further types of a field are least informative, and so is a text in place of a secret.
    given = sorted(
        error.errors(include_url=False),
        key=lambda each: (each["type"] == "secret", each["type"].endswith("_type")),
    )
    for each in given:
        path, value = _walk(each["loc"], data)
        kind, meant = each["type"], _WORD.findall(str(each.get("ctx", {}).get("expected", "")))
        if kind == "extra_forbidden":
            meant = list(_model_at(model, path[:-1]).model_fields)
        elif kind == "missing":
            path = (*path, each["loc"][-1])
        elif may_fit(value):
            continue
        found.setdefault(path, ModelFault(path, value, kind, meant, predicate(each)))
    return [
        fault
        for path, fault in found.items()
        if not any(len(other) > len(path) and other[: len(path)] == path for other in found)
    ]


def _walk(loc: tuple[str | int, ...], data: Any) -> tuple[tuple[str | int, ...], Any]:
    """Return the existing part of a place, without pydantic's tags for unions."""
    path: list[str | int] = []
    for item in loc:
        items = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(items, Mapping) and item in items:
            data = items[item]
            path.append(item)
    return tuple(path), data


def _model_at(model: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel]:
    """Return the model of the value at a place."""
    for item in path:
        info = model.model_fields.get(str(item))
        model = next(_models(info.annotation), model) if info is not None else model
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


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
