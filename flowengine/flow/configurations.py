"""What is wrong in the configuration of a step kind, by the kind's own JSON Schema.

An expression fits everywhere: what it gives is known when it runs, and checked by the kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from flowengine.flow.diagnostics import did_you_mean
from flowengine.flow.json_schemas import SchemaProblem
from flowengine.flow.models.base import Loc
from flowengine.flow.models.types import has_expression, shown


def config_problems(
    schema: dict[str, Any], value: Any, kind: str, loc: Loc
) -> Iterator[SchemaProblem]:
    """Yield what is wrong in a configuration.

    Args:
        schema: The kind's JSON Schema.
        value: The configuration, in long form.
        kind: The action key.
        loc: Where it stands.

    Yields:
        What is wrong, in no order.
    """
    for error in jsonschema_rs.Draft202012Validator(schema).iter_errors(value):
        place = (*loc, *error.instance_path)
        if has_expression(error.instance):
            continue
        yield from _translated(error, schema, place, f"{kind!r}")


def _translated(
    error: jsonschema_rs.ValidationError, schema: dict[str, Any], loc: Loc, noun: str
) -> Iterator[SchemaProblem]:
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        known = _properties(schema, list(error.schema_path))
        for key in kind.unexpected:
            if key.startswith("x-"):
                continue
            hint = did_you_mean(key, known) or f"known are {', '.join(known)}"
            message = f"unknown key {key!r} in {noun}"
            yield SchemaProblem((*loc, key), "E102", message, hint, key=True)
    elif isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        message = f"{noun} needs {kind.property!r}"
        yield SchemaProblem(loc, "E104", message, f"add '{kind.property}'", key=True)
    else:
        expected = _expected(kind)
        message = f"expected {expected}, got {shown(error.instance)}" if expected else error.message
        yield SchemaProblem(loc, "E103", message)


def _properties(schema: dict[str, Any], path: list[str | int]) -> list[str]:
    """Return the keys that the schema knows where an error says that there are others."""
    node: Any = schema
    for step in path[:-1]:
        node = node[step]
    return list(node.get("properties", {}))


_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def _expected(kind: Any) -> str | None:
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Type):
        return " or ".join(_TYPES[one] for one in kind.types)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Enum):
        return " or ".join(repr(one) for one in kind.as_dict()["options"])
    return None
