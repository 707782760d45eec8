"""Types of values as JSON Schemas: the operations on them, and their names in messages."""

from __future__ import annotations

from typing import Any

from flowengine.flow.expressions.interface import Schema

SECRET = "x-secret"
SOURCES = "x-sources"
CEL = "x-cel"
"""Types that JSON does not have: `timestamp`, `duration`, `bytes`, `type`, `uint`. They exist only
inside an expression."""

ANY: Schema = {}
BOOL: Schema = {"type": "boolean"}
INT: Schema = {"type": "integer"}
DOUBLE: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}
BYTES: Schema = {CEL: "bytes"}
TIMESTAMP: Schema = {CEL: "timestamp"}
DURATION: Schema = {CEL: "duration"}
TYPE: Schema = {CEL: "type"}
UINT: Schema = {CEL: "uint"}
MAP: Schema = {"type": "object"}

WORDS = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "string": "text",
    "null": "null",
    "array": "a list",
    "object": "a map",
    "bytes": "bytes",
    "timestamp": "a time",
    "duration": "a duration",
    "type": "a type",
    "uint": "an unsigned integer",
}
"""Names of types in messages."""

_ALTERNATIVES = ("anyOf", "oneOf")


def list_of(items: Schema) -> Schema:
    """Return the schema of a list.

    Args:
        items: The schema of its items.

    Returns:
        The schema.
    """
    return {"type": "array", "items": items} if items else {"type": "array"}


def kind(schema: Schema) -> str | None:
    """Return the one type that a value has by its schema.

    Args:
        schema: The schema, with its references resolved.

    Returns:
        A JSON type or one of `CEL`, or None if it is unknown or there are several.
    """
    if CEL in schema:
        return str(schema[CEL])
    types = kinds(schema)
    return next(iter(types)) if types is not None and len(types) == 1 else None


def kinds(schema: Schema) -> set[str] | None:
    """Return the JSON types that a value may have, or None for any."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, list):
        return set(declared)
    if "const" in schema:
        return {_json_type(schema["const"])}
    if isinstance(schema.get("enum"), list):
        return {_json_type(value) for value in schema["enum"]}
    for word in _ALTERNATIVES:
        if isinstance(schema.get(word), list):
            alternatives = [kinds(part) for part in schema[word]]
            return (
                None
                if None in alternatives
                else set().union(*[part for part in alternatives if part])
            )
    if "properties" in schema:
        return {"object"}
    if "items" in schema or "prefixItems" in schema:
        return {"array"}
    return None


def _json_type(value: Any) -> str:
    """Return the JSON type of a constant."""
    if isinstance(value, bool):
        return "boolean"
    names = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def resolve(schema: Any, root: Schema) -> tuple[Schema, Schema]:
    """Resolve `$ref`s, and merge the parts of an `allOf` with a single part.

    Args:
        schema: A schema inside `root`.
        root: The schema with the `$defs` that references point into.

    Returns:
        The resolved schema, and the root for its parts. The empty schema if a reference leads
        nowhere or outside.
    """
    for _ in range(32):
        if not isinstance(schema, dict):
            return ANY, root
        if "$defs" in schema or "definitions" in schema:
            root = schema
        if "$ref" in schema:
            schema = _target(schema["$ref"], root)
        elif isinstance(schema.get("allOf"), list) and "properties" not in schema:
            schema = _merge(schema, root)
        else:
            return schema, root
    return ANY, root


def _target(reference: Any, root: Schema) -> Any:
    """Return the target of a local reference."""
    target: Any = root
    if not isinstance(reference, str) or not reference.startswith("#"):
        return ANY
    for key in reference[1:].strip("/").split("/") if len(reference) > 1 else []:
        plain = key.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, dict) or plain not in target:
            return ANY
        target = target[plain]
    return target


def _merge(schema: Schema, root: Schema) -> Schema:
    """Return one schema in place of an `allOf`, with the types and properties of all its parts."""
    merged = {key: value for key, value in schema.items() if key != "allOf"}
    properties: dict[str, Any] = {}
    for part in schema["allOf"]:
        inner, _ = resolve(part, root)
        properties.update(inner.get("properties", {}))
        merged = {**inner, **merged}
    if properties:
        merged["properties"] = properties
    return merged


def without_null(schema: Schema) -> Schema:
    """Return the schema of a value that is not null.

    Args:
        schema: The schema, with its references resolved.

    Returns:
        The schema without null among its types.
    """
    declared = schema.get("type")
    if isinstance(declared, list) and "null" in declared:
        rest = [name for name in declared if name != "null"]
        return {**schema, "type": rest[0] if len(rest) == 1 else rest}
    for word in _ALTERNATIVES:
        if isinstance(schema.get(word), list):
            parts = [part for part in schema[word] if kind(part) != "null"]
            if len(parts) < len(schema[word]):
                outer = {key: value for key, value in schema.items() if key != word}
                return {**outer, **parts[0]} if len(parts) == 1 else {**outer, word: parts}
    return schema


def or_null(schema: Schema) -> Schema:
    """Return the schema of a value that may also be null.

    Args:
        schema: The schema of the other values.

    Returns:
        The schema.
    """
    return {"anyOf": [schema, NULL]} if schema else schema


def common(schemas: list[Schema]) -> Schema:
    """Return the schema of a value from one of several sources.

    Args:
        schemas: Its schema in each case.

    Returns:
        Their schema if it is the same, their common type, or unknown.
    """
    first = schemas[0]
    if all(schema == first for schema in schemas):
        return first
    types = {kind(schema) for schema in schemas}
    if len(types) == 1 and (one := types.pop()):
        if one == "array":
            items = [schema.get("items") for schema in schemas]
            return list_of(common([item if isinstance(item, dict) else ANY for item in items]))
        return {CEL: one} if CEL in first else {"type": one}
    return DOUBLE if types == {"integer", "number"} else ANY


def items_of(schema: Schema, root: Schema) -> tuple[Schema, Schema]:
    """Return the schema of a list's items.

    Args:
        schema: The schema of the list, with its references resolved.
        root: The schema that its references point into.

    Returns:
        The items' schema and the root for its parts.
    """
    return resolve(schema["items"], root) if "items" in schema else (ANY, root)


def article(schema: Schema) -> str:
    """Return the name of a value's type in messages: `a list`, `text`."""
    return WORDS.get(kind(schema) or "", "a value of unknown type")


def self_contained(schema: Schema, root: Schema) -> Schema:
    """Return a self-contained schema, with the definitions that its references need.

    Args:
        schema: A schema inside `root`.
        root: The schema that its references point into.

    Returns:
        The schema, unchanged if it has no references.
    """
    if schema is root or not _refers(schema):
        return schema
    return {
        **{word: root[word] for word in ("$defs", "definitions") if word in root},
        **schema,
    }


def _refers(schema: Any) -> bool:
    """Return whether a schema contains a reference."""
    if isinstance(schema, dict):
        return "$ref" in schema or any(_refers(part) for part in schema.values())
    return isinstance(schema, list) and any(_refers(part) for part in schema)
