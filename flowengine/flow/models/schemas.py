"""JSON Schemas inside a flow file: of inputs, state, arguments, forms and messages."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from flowengine.flow.models.types import wrong

KEYWORDS = frozenset(
    "$schema $id $anchor $ref $dynamicRef $dynamicAnchor $defs $comment $vocabulary"
    " allOf anyOf oneOf not if then else dependentSchemas prefixItems items contains properties"
    " patternProperties additionalProperties propertyNames unevaluatedItems unevaluatedProperties"
    " type enum const multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength"
    " minLength pattern maxItems minItems uniqueItems maxContains minContains maxProperties"
    " minProperties required dependentRequired format contentEncoding contentMediaType"
    " contentSchema title description default deprecated readOnly writeOnly examples ui".split()
)
"""The keywords of draft 2020-12, and `ui` for forms."""


def _schema(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        wrong("a JSON Schema such as {type: string}", value)
    return value


Schema = Annotated[
    dict[str, Any], PlainValidator(_schema), WithJsonSchema({"$ref": "#/$defs/Schema"})
]
"""A JSON Schema, draft 2020-12, as plain data; the loader checks what is in it."""
StateSchema = Annotated[
    dict[str, Any], PlainValidator(_schema), WithJsonSchema({"$ref": "#/$defs/StateSchema"})
]
"""The same with `reducer`."""
