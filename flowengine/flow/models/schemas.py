"""JSON Schemas inside a flow file: of inputs, state, arguments, forms and messages."""

from typing import Annotated, Any, NamedTuple

from flowengine.flow.models.types import AsSchema, CheckedType, wrong


class IsSchema(NamedTuple):
    """Marks a field that holds a JSON Schema, which the loader then looks into."""

    more: frozenset[str] = frozenset()
    """Keys beside those of JSON Schema."""


def _schema(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        wrong("a JSON Schema such as {type: string}", value)
    return value


Schema = Annotated[
    dict[str, Any],
    CheckedType(_schema),
    AsSchema({"$ref": "#/$defs/Schema"}),
    IsSchema(),
]
"""A JSON Schema, draft 2020-12, as plain data."""
StateSchema = Annotated[
    dict[str, Any],
    CheckedType(_schema),
    AsSchema({"$ref": "#/$defs/StateSchema"}),
    IsSchema(frozenset({"reducer"})),
]
"""The same of a state key, with `reducer`."""
