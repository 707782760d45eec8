"""Fields of the classes that declare inputs or state: dataclasses, TypedDicts, models."""

from __future__ import annotations

import dataclasses
from typing import Any

from flowengine.errors import UsageError
from flowengine.sdk.python_functions.live_types import needed, schema_of
from flowengine.sdk.python_functions.schema_forms import ABSENT, Schema

__all__ = ["ABSENT", "fields_of", "schema_of"]


def fields_of(cls: Any) -> dict[str, tuple[Schema, Any]]:
    """Return the fields of a dataclass, a TypedDict or a pydantic model, for inputs or state.

    Args:
        cls: The class.

    Returns:
        Name → its schema, and its default or `ABSENT`.

    Raises:
        UsageError: The class is of another type.
    """
    whole = schema_of(cls)
    shared = whole.get("$defs", {})
    whole = shared.get(str(whole.get("$ref", "")).removeprefix("#/$defs/"), whole)
    if whole.get("type") != "object" or "properties" not in whole:
        raise UsageError(
            f"{cls!r} has no fields", hint="give a dataclass, a TypedDict or a pydantic model"
        )
    types: dict[str, tuple[Schema, Any]] = {}
    for name, field in whole["properties"].items():
        default = field.get("default", ABSENT)
        schema = {key: value for key, value in field.items() if key != "default"}
        definitions = needed(schema, shared)
        optional = name not in whole.get("required", []) and default is ABSENT
        types[name] = (
            {**schema, **({"$defs": definitions} if definitions else {})},
            _computed(cls, name) if optional else default,
        )
    return types


def _computed(cls: Any, name: str) -> Any:
    """Return the default of a field with a factory. For an optional key it is null."""
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.name == name and field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
    info = getattr(cls, "model_fields", {}).get(name)
    return None if info is None or info.default_factory is None else info.default_factory()
