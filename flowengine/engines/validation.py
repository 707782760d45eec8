"""Values against JSON Schemas (draft 2020-12), before they become events.

Most schemas of a flow say a type and no more. Those are settled here in plain Python, so that a
flow that needs no more does not pay for loading the validator; every other verdict, and every
error, is the validator's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flowengine.errors import InputError

_NOTES = frozenset({"type", "title", "description", "default", "examples", "ui", "$schema"})
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def check_inputs(
    schemas: Mapping[str, Any], given: Mapping[str, Any], *, folder: str = ""
) -> dict[str, Any]:
    """Return the inputs of a flow with the defaults filled in.

    Args:
        schemas: Input name → JSON Schema; one without `default` is required.
        given: What the caller gives.
        folder: Folder that relative paths of `format: path` inputs are looked up in.

    Returns:
        Every declared input, in the order of declaration.

    Raises:
        InputError: One is unknown, missing, or does not fit its schema.
    """
    for name in given:
        if name not in schemas:
            known = ", ".join(schemas) or "none"
            raise InputError(f"there is no input '{name}'", field=name, hint=f"inputs: {known}")
    inputs: dict[str, Any] = {}
    for name, schema in schemas.items():
        if name in given:
            inputs[name] = given[name]
        elif "default" in schema:
            inputs[name] = schema["default"]
        else:
            hint = f"give it: -i {name}=VALUE" + _described(schema)
            raise InputError(f"input '{name}' is missing", field=name, hint=hint)
        check_value(schema, inputs[name], "input", name)
        if schema.get("format") == "path" and isinstance(inputs[name], str):
            _check_path(name, os.path.join(folder, inputs[name]))
    return inputs


def check_value(schema: Any, value: Any, what: str, field: str = "") -> None:
    """Check that a value fits a schema.

    Args:
        schema: JSON Schema.
        value: Plain data.
        what: What the value is, for the message: `input`, `form`, `data of signal 'paid'`.
        field: Its name within that, if it has one.

    Raises:
        InputError: It does not fit; names the field, or the first one inside that does not fit.
    """
    if _fits_plainly(schema, value):
        return
    import jsonschema_rs

    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    for error in validator.iter_errors(value):
        path = ".".join([field, *map(str, error.instance_path)]).strip(".")
        place = f"{what} '{path}'" if path else what
        raise InputError(f"{place}: {error.message}", field=path, hint=_wanted(schema, field))


def fill_defaults(schema: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a map with the defaults of those properties that it leaves out."""
    properties = schema.get("properties", {})
    defaults = {
        name: one["default"]
        for name, one in properties.items()
        if name not in value and isinstance(one, dict) and "default" in one
    }
    return {**value, **defaults}


def _fits_plainly(schema: Any, value: Any) -> bool:
    """Return True only if the value surely fits; False says nothing."""
    if schema is True or not schema:
        return schema is True or schema == {}
    if not _NOTES.issuperset(schema):
        return False
    wanted = schema.get("type")
    if wanted is None:
        return True
    kinds = [wanted] if isinstance(wanted, str) else wanted
    return any(
        isinstance(value, _TYPES.get(kind, ()))
        and (kind == "boolean" or not isinstance(value, bool))
        for kind in kinds
    )


def _check_path(name: str, path: str) -> None:
    if not os.path.exists(path):
        raise InputError(f"input '{name}': there is no file {path}", field=name)


def _described(schema: Mapping[str, Any]) -> str:
    text = schema.get("description") or schema.get("title")
    return f"  ({text})" if text else ""


def _wanted(schema: Mapping[str, Any], field: str) -> str | None:
    wanted = schema.get("type")
    if not isinstance(wanted, str) or not field:
        return None
    return f"'{field}' is declared as {wanted}" + _described(schema)
