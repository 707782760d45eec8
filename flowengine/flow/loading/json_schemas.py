"""Validation of JSON Schemas in a flow file.

The dialect is draft 2020-12 with a closed set of keywords, so that a misspelled one is an error and
not ignored, as it would be in JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from flowengine.errors import InputError
from flowengine.flow.models.types import in_generated, shown, words
from flowengine.flow.source.diagnostics import Fault, Loc
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.values.validation import SchemaError, Validator

TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
REDUCERS = ("replace", "append", "union", "merge", "add", "max", "min")

SCHEMAS = words(
    "not if then else items contains additionalProperties propertyNames unevaluatedItems"
    " unevaluatedProperties contentSchema"
)
"""Keywords whose value is a schema."""
LISTS = words("allOf anyOf oneOf prefixItems")
"""... a list of schemas."""
MAPS = words("$defs properties patternProperties dependentSchemas")
"""... a map of schemas."""
NUMBERS = words("multipleOf maximum exclusiveMaximum minimum exclusiveMinimum")
COUNTS = words(
    "maxLength minLength maxItems minItems maxContains minContains maxProperties minProperties"
)
TEXTS = words(
    "$schema $id $anchor $ref $dynamicRef $dynamicAnchor $comment title description format"
    " contentEncoding contentMediaType pattern"
)
BOOLEANS = words("uniqueItems deprecated readOnly writeOnly")
ANYTHING = words("const default enum examples required type dependentRequired $vocabulary ui")
_POSIX = re.compile(r"\[[^\]]*\[:\^?\w+:\]")
"""A class that JavaScript reads as a set of these characters."""
_NOTATION = r"write {0,3} for {,3}, \p{L} for [[:alpha:]], and ^ and $ for \A and \Z"
KEYWORDS = SCHEMAS | LISTS | MAPS | NUMBERS | COUNTS | TEXTS | BOOLEANS | ANYTHING


def schema_problems(schema: Any, loc: Loc, more: frozenset[str] = frozenset()) -> Iterator[Fault]:
    """Yield the errors in a schema.

    Args:
        schema: The schema, as written in the file.
        loc: Its place.
        more: Keys that are allowed besides the keywords, at the top only.

    Yields:
        Errors, in no order.
    """
    problem = None
    for problem in _problems(schema, loc, more):
        yield problem
    if problem is None and isinstance(schema, dict):
        try:
            Validator(_shape(schema))
        except SchemaError as error:
            yield Fault(loc, "E103", error.message)


def _shape(schema: Any) -> Any:
    """Return a schema without the keys of state and of answers."""
    return {key: value for key, value in schema.items() if key not in _MORE}


def _problems(
    schema: Any, loc: Loc, more: frozenset[str] = frozenset(), *, defs: Any = None
) -> Iterator[Fault]:
    if isinstance(schema, bool) and loc and loc[-1] in SCHEMAS:
        return
    if not isinstance(schema, dict):
        message = f"expected a JSON Schema such as {{type: string}}, got {shown(schema)}"
        hint = f"write {{type: {schema}}}" if schema in TYPES else None
        yield Fault(loc, "E103", message, hint)
        return
    defs = schema.get("$defs", defs)
    is_changed = False
    for key, value in schema.items():
        if key.startswith("x-"):
            continue
        for problem in _keyword(key, value, (*loc, key), more, defs):
            is_changed = True
            yield problem
    if not is_changed:
        yield from _default(schema, loc, defs)


def _keyword(key: str, value: Any, loc: Loc, more: frozenset[str], defs: Any) -> Iterator[Fault]:
    if key in more:
        yield from _MORE[key](value, loc)
    elif key not in KEYWORDS:
        hint = did_you_mean(key, KEYWORDS | more)
        yield Fault(loc, "E102", f"unknown key {key!r} in a JSON Schema", hint, key=True)
    elif key in SCHEMAS:
        yield from _problems(value, loc, defs=defs)
    elif key in LISTS or key in MAPS:
        if key in LISTS and isinstance(value, list) and value:
            for index, item in enumerate(value):
                yield from _problems(item, (*loc, index), defs=defs)
        elif key in MAPS and isinstance(value, dict):
            for name, entry in value.items():
                if key == "patternProperties":
                    yield from _regular_expression(name, (*loc, name), key=True)
                yield from _problems(entry, (*loc, name), defs=defs)
        else:
            what = "a list of JSON Schemas" if key in LISTS else "a mapping of JSON Schemas"
            yield Fault(loc, "E103", f"expected {what}, got {shown(value)}")
    elif key in SIMPLE:
        yield from SIMPLE[key](value, loc)
    else:
        yield from _simple(key, value, loc)


def _simple(key: str, value: Any, loc: Loc) -> Iterator[Fault]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    rules = (
        (NUMBERS, number, "a number"),
        (COUNTS, whole, "a whole number of 0 or more"),
        (TEXTS, isinstance(value, str), "text"),
        (BOOLEANS, isinstance(value, bool), "true or false"),
    )
    for keys, fits, expected in rules:
        if key in keys and not fits:
            yield Fault(loc, "E103", f"expected {expected}, got {shown(value)}")


def _type(value: Any, loc: Loc) -> Iterator[Fault]:
    many = isinstance(value, list) and value != []
    for index, one in enumerate(value if many else [value]):
        if isinstance(one, str) and one in TYPES:
            continue
        place = (*loc, index) if many else loc
        hint = 'write "null" in quotes' if one is None else None
        if isinstance(one, str):
            hint = did_you_mean(one, TYPES) or f"types are {', '.join(TYPES)}"
        yield Fault(place, "E103", f"expected a type, got {shown(one)}", hint)


def _required(value: Any, loc: Loc) -> Iterator[Fault]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        message = f"expected a list of names, got {shown(value)}"
        hint = "an input without 'default' is required anyway" if isinstance(value, bool) else None
        yield Fault(loc, "E103", message, hint)


def _enum(value: Any, loc: Loc) -> Iterator[Fault]:
    if not isinstance(value, list) or not value:
        what = "an empty list" if value == [] else shown(value)
        yield Fault(loc, "E103", f"expected a list of values, got {what}")


def _pattern(value: Any, loc: Loc) -> Iterator[Fault]:
    yield from _simple("pattern", value, loc)
    if isinstance(value, str):
        yield from _regular_expression(value, loc)


def _regular_expression(text: str, loc: Loc, *, key: bool = False) -> Iterator[Fault]:
    try:
        Validator({"pattern": text})
    except SchemaError:
        pass
    else:
        if _POSIX.search(text) is None:
            return
    message = f"expected a regular expression of JavaScript (ECMA 262), got {shown(text)}"
    yield Fault(loc, "E103", message, _NOTATION, key=key)


def _reference(value: Any, loc: Loc) -> Iterator[Fault]:
    yield from _simple("$ref", value, loc)
    if isinstance(value, str) and not value.startswith("#"):
        message = f"expected a reference inside the schema, got {shown(value)}"
        yield Fault(loc, "E103", message, "write '#/$defs/NAME'")


SIMPLE: dict[str, Callable[[Any, Loc], Iterator[Fault]]] = {
    "type": _type,
    "required": _required,
    "enum": _enum,
    "pattern": _pattern,
    "$ref": _reference,
}


def _reducer(value: Any, loc: Loc) -> Iterator[Fault]:
    if isinstance(value, dict) and set(value) == {"python"} and isinstance(value["python"], str):
        return
    if not isinstance(value, str) or value not in REDUCERS:
        hint = did_you_mean(value, REDUCERS) if isinstance(value, str) else None
        message = f"expected a reducer, got {shown(value)}"
        yield Fault(loc, "E103", message, hint or f"reducers are {', '.join(REDUCERS)}")


def _signal(value: Any, loc: Loc) -> Iterator[Fault]:
    if not isinstance(value, str):
        yield Fault(loc, "E103", f"expected the name of a signal, got {shown(value)}")


def _python(value: Any, loc: Loc) -> Iterator[Fault]:
    if not isinstance(value, str) and not in_generated.get():
        yield Fault(loc, "E103", f"expected a type, as module:Type, got {shown(value)}")


_MORE: dict[str, Callable[[Any, Loc], Iterator[Fault]]] = {
    "reducer": _reducer,
    "signal": _signal,
    "python": _python,
}
"""Keys besides the keywords, of state and of answers."""


def _default(schema: dict[str, Any], loc: Loc, defs: Any) -> Iterator[Fault]:
    """Check that a constant default fits its own schema."""
    if "default" not in schema or "${{" in repr(schema["default"]):
        return
    known = _shape(schema)
    known |= {"$defs": defs} if defs and "$ref" in repr(schema) else {}
    try:
        validator = Validator(known)
        errors = validator.misfits(schema["default"])
    except SchemaError:
        return  # the error is about the whole schema
    except InputError as error:
        yield Fault((*loc, "default"), "E103", error.message)
    else:
        if errors:
            place = (*loc, "default", *errors[0].instance_path)
            message = f"the default {validator.explained(errors[:1])[0]}"
            yield Fault(place, "E103", message)
