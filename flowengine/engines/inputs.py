"""Inputs of a flow, checked before they become an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.errors import InputError
from flowengine.validation import validate


def check_inputs(
    schemas: Mapping[str, Any], given: Mapping[str, Any], folder: str
) -> dict[str, Any]:
    """Return the inputs of a flow with the defaults filled in.

    Args:
        schemas: Input name → JSON Schema; one without `default` is required.
        given: What the caller gives.
        folder: Where relative paths (`format: path`) are looked for.

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
            text = schema.get("description") or schema.get("title")
            hint = f"give it: -i {name}=VALUE" + (f"  ({text})" if text else "")
            raise InputError(f"input '{name}' is missing", field=name, hint=hint)
        validate(schema, inputs[name], f"input '{name}'", folder=folder)
    return inputs


def fill_defaults(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a map with the defaults of those properties that it leaves out."""
    defaults = {
        name: one["default"]
        for name, one in schema.get("properties", {}).items()
        if name not in given and isinstance(one, dict) and "default" in one
    }
    return {**given, **defaults}
