"""What a JSON Schema says about the types of values, with its references resolved."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
"""A JSON Schema, as plain data. `{}` means unknown."""

ANY: Schema = {}
ALTERNATIVES = ("anyOf", "oneOf")


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
    for word in ALTERNATIVES:
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
    merged: Schema = {}
    properties: dict[str, Any] = {}
    pending: list[tuple[Any, Schema]] = [(schema, root)]
    seen = set[int]()
    while pending:
        part, root = pending.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        if "$defs" in part or "definitions" in part:
            root = part
        if "$ref" in part:
            pending.append((_target(part["$ref"], root), root))
            continue
        properties.update(part.get("properties", {}))
        merged = {**{key: value for key, value in part.items() if key != "allOf"}, **merged}
        parts = part.get("allOf")
        pending += [(each, root) for each in reversed(parts if isinstance(parts, list) else [])]
    if properties:
        merged["properties"] = properties
    return merged


def items_of(schema: Schema, root: Schema) -> tuple[Schema, Schema]:
    """Return the schema of a list's items.

    Args:
        schema: The schema of the list, with its references resolved.
        root: The schema that its references point into.

    Returns:
        The items' schema and the root for its parts.
    """
    return resolve(schema["items"], root) if "items" in schema else (ANY, root)
