"""Validation of a step kind's configuration by the kind's own JSON Schema.

An expression fits everywhere. Its result is known only at run time, and validated by the kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from flowengine.flow.models.base import listed
from flowengine.flow.models.kinds import synonym_of
from flowengine.flow.models.types import has_expression, is_expression, shown
from flowengine.flow.source.diagnostics import Fault, Loc
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.values.validation import TYPE_WORDS


def config_problems(schema: dict[str, Any], value: Any, kind: str, loc: Loc) -> Iterator[Fault]:
    """Yield the errors in a configuration.

    Args:
        schema: The kind's JSON Schema.
        value: The configuration, in long form.
        kind: The action key.
        loc: Its place.

    Yields:
        Errors, in no order.
    """
    for error in _validator(json.dumps(schema)).iter_errors(value):
        constant = error.instance_path == [schema.get("x-main")]
        if _may_fit(error, constant):
            continue
        node: Any = schema
        for step in error.schema_path[:-1]:
            node = node[step]
        for problem in _problems(error, node if isinstance(node, dict) else {}, kind, loc):
            hint = problem.hint or (_other_key(schema, error.instance, kind) if constant else None)
            yield problem._replace(hint=hint)


def _other_key(schema: dict[str, Any], value: Any, kind: str) -> str | None:
    """Return the hint for a bare value that only another key of the configuration accepts."""
    keys = [
        key
        for key, inner in schema["properties"].items()
        if inner.get("type") and _validator(json.dumps(inner)).is_valid(value)
    ]
    shape = "[…]" if isinstance(value, list) else "…"
    return f"write '{kind}: {{{keys[0]}: {shape}}}'" if len(keys) == 1 else None


@lru_cache(maxsize=64)
def _validator(schema: str) -> Draft202012Validator:
    """Return the validator of a schema. It is cached because creating one is slow."""
    return Draft202012Validator(json.loads(schema))


OF_TEXT = (
    ValidationErrorKind.Enum,
    ValidationErrorKind.Constant,
    ValidationErrorKind.Pattern,
    ValidationErrorKind.Format,
    ValidationErrorKind.MinLength,
    ValidationErrorKind.MaxLength,
)
"""Rules that a text with expressions may satisfy at run time."""


def _may_fit(error: ValidationError, constant: bool) -> bool:
    """Return whether a value with an expression may fit when it runs.

    A text that a bare value stands for (a script, a function) is a constant.
    """
    value, of_text = error.instance, isinstance(error.kind, OF_TEXT)
    return not (constant and of_text) and (
        is_expression(value) or (of_text and has_expression(value))
    )


def _problems(
    error: ValidationError, owner: dict[str, Any], step_kind: str, loc: Loc
) -> Iterator[Fault]:
    place, kind, noun = (*loc, *error.instance_path), error.kind, f"{step_kind!r}"
    if isinstance(kind, ValidationErrorKind.AdditionalProperties):
        known = list(owner.get("properties", {}))
        for key in kind.unexpected:
            foreign = synonym_of(step_kind, key) if not error.instance_path else None
            near = foreign.hint if foreign else did_you_mean(key, known)
            hint = near or f"known are {', '.join(known)}"
            message = f"unknown key {key!r} in {noun}"
            if not key.startswith("x-"):
                yield Fault((*place, key), "E102", message, hint, key=True)
    elif isinstance(kind, ValidationErrorKind.Required):
        given = error.instance
        words = list(given) if isinstance(given, dict) and not error.instance_path else []
        if any((one := synonym_of(step_kind, word)) and one.key == kind.property for word in words):
            return  # it is present under a synonym
        message = f"{noun} needs {kind.property!r}"
        yield Fault(place, "E104", message, f"add '{kind.property}'", key=True)
    elif isinstance(
        kind, ValidationErrorKind.OneOfNotValid | ValidationErrorKind.OneOfMultipleValid
    ):
        yield _one_of(error, owner, noun, place)
    elif isinstance(kind, ValidationErrorKind.PropertyNames):
        good = Draft202012Validator(owner.get("propertyNames", owner)).is_valid
        names = error.instance if isinstance(error.instance, dict) else {}
        for key in (name for name in names if not good(name)):
            yield Fault((*place, key), "E103", f"{key!r} cannot be a name here", key=True)
    else:
        fitting = _fitting(error.instance, owner) if isinstance(kind, OF_TEXT) else None
        yield Fault(place, "E103", _message(kind, error.instance, owner), fitting)


def _fitting(value: Any, owner: dict[str, Any]) -> str | None:
    """Return a hint with a valid text: a similar one, or else one of the examples."""
    if near := did_you_mean(str(value), [str(one) for one in owner.get("enum", ())]):
        return near
    example = next(iter(owner.get("examples", ())), None)
    return f"for example {example!r}" if isinstance(example, str) else None


def _one_of(error: ValidationError, owner: dict[str, Any], noun: str, loc: Loc) -> Fault:
    """Return the error for keys that exclude each other, if the alternatives differ in keys."""
    keys = [key for one in owner["oneOf"] for key in one.get("required", ())]
    named = listed(keys) if keys else ""
    given = [key for key in keys if isinstance(error.instance, dict) and key in error.instance]
    if len(given) > 1:
        message = f"{noun} has {given[0]!r} and {given[1]!r}, but only one is allowed"
        return Fault((*loc, given[1]), "E103", message, f"keep one of {named}", key=True)
    if keys and not given:
        return Fault(loc, "E104", f"{noun} needs {named}", f"add {named}", key=True)
    return Fault(loc, "E103", _message(error.kind, error.instance, owner))


def _message(kind: Any, value: Any, owner: dict[str, Any]) -> str:
    if isinstance(kind, ValidationErrorKind.Type):
        expected = " or ".join(TYPE_WORDS[one] for one in kind.types)
    elif isinstance(kind, ValidationErrorKind.Enum):
        expected = listed(owner["enum"])
    elif isinstance(kind, ValidationErrorKind.Minimum):
        expected = f"at least {owner['minimum']}"
    elif isinstance(kind, ValidationErrorKind.Maximum):
        expected = f"at most {owner['maximum']}"
    else:
        meant = str(owner.get("description", "")).rstrip(".")
        return f"{shown(value)} does not fit here" + (f": {meant}" if meant else "")
    return f"expected {expected}, got {shown(value)}"
