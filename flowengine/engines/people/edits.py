"""Edits of an approval's subject, in which each field keeps its type.

The flow declares the type. Without a declaration it is the type of the displayed value: `80` stays
a whole number, but 75.50 is accepted if the field is declared as a number. The parts of a new list
or map only have to fit what is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.errors import InputError
from flowengine.kernel.view import edited
from flowengine.sdk.values.schema_types import ANY, kinds, resolve
from flowengine.sdk.values.validation import TYPE_WORDS, as_plain, validate

Schema = dict[str, Any]
TYPES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    bytes: "bytes",
    type(None): "null",
}
"""Type of a plain value → its name in JSON Schema."""


def fitting(wait: Mapping[str, Any], edits: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the edits, with each value converted to its field's type. None: there are none.

    Args:
        wait: The approval.
        edits: Dotted path of a field → its new value.

    Raises:
        InputError: A field is not editable, or its new value has another type.
    """
    if not edits:
        return None
    subject = wait.get("subject")
    allowed = wait.get("edit") or []
    if allowed is True:
        allowed = list(subject) if isinstance(subject, dict) else []
    changes = {}
    for path, value in edits.items():
        if not any(path == name or path.startswith(f"{name}.") for name in allowed):
            known = ", ".join(allowed) or "none"
            raise InputError(f"'{path}' is not editable", field=path, hint=f"editable: {known}")
        old, (declaration, _) = subject, declared(wait.get("edit_schema", ANY), path)
        for part in path.split("."):
            old = old.get(part) if isinstance(old, dict) else None
        new = as_plain(value, f"'{path}'")
        changes[path] = _converted(path, declaration, old, new)
    if "tool" not in wait:
        _check_fields(wait, changes)
    elif (schema := wait.get("edit_schema")) is not None:  # as the tool would check them
        bound = wait.get("bound", ())
        args = {name: value for name, value in wait["subject"].items() if name not in bound}
        validate(schema, edited(args, dict(changes)), "arguments")
    return changes


def _check_fields(wait: Mapping[str, Any], edits: Mapping[str, Any]) -> None:
    """Check the edited fields of a subject against their declarations, such as a minimum.

    Raises:
        InputError: A field does not match.
    """
    schema = wait.get("edit_schema", ANY)
    names = {path.partition(".")[0] for path in edits} & schema.get("properties", {}).keys()
    subject = edited(wait["subject"], dict(edits)) if names else {}
    for name in names:
        validate(schema, {name: subject[name]}, "edit")


def declared(schema: Schema, path: str) -> tuple[Schema, Schema]:
    """Return the declaration of a field.

    Args:
        schema: Schema of the whole subject.
        path: The field, as a dotted path.

    Returns:
        Its schema, empty if undeclared, and the schema that its references point into.
    """
    root = schema
    for part in path.split("."):
        schema, root = _property(*resolve(schema, root), part)
    return resolve(schema, root)


def _property(schema: Schema, root: Schema, name: str) -> tuple[Schema, Schema]:
    forms = [resolve(one, root)[0] for key in ("anyOf", "oneOf") for one in schema.get(key, ())]
    parts = [form["properties"][name] for form in forms if name in form.get("properties", {})]
    more = {"anyOf": parts} if parts else schema.get("additionalProperties", ANY)
    return schema.get("properties", {}).get(name, more), root


def _converted(path: str, schema: Schema, old: Any, new: Any) -> Any:
    """Return the new value of a field, converted to the field's type.

    Args:
        path: The field, as a dotted path.
        schema: Its declaration, empty if undeclared.
        old: The displayed value.
        new: The new value.

    Raises:
        InputError: It has another type.
    """
    kind, was = TYPES[type(new)], TYPES[type(old)]
    if kind in {"bytes", "string"} and (was == "bytes" or _holds_bytes(schema)):
        from base64 import b64decode, b64encode

        try:
            given = b64decode(new, validate=True) if isinstance(new, str) else new
        except ValueError:
            raise InputError(f"'{path}' must be base64", field=path) from None
        return given if was == "bytes" else b64encode(given).decode()
    wanted = kinds(schema) or ({was} if old is not None else {kind})
    if kind == "integer" and "integer" not in wanted and "number" in wanted:
        return float(new) if was == "number" else new
    if kind == "number" and "number" not in wanted and "integer" in wanted and new.is_integer():
        return int(new)
    if kind not in wanted:
        names = sorted(wanted, key=lambda name: name == "null")
        expected = " or ".join(TYPE_WORDS.get(name, name) for name in names)
        raise InputError(f"'{path}' must remain {expected}", field=path)
    return new


def _holds_bytes(schema: Schema) -> bool:
    """Return whether a field can be bytes, and no other text."""
    parts = [part for part in schema.get("anyOf", [schema]) if "string" in (kinds(part) or ())]
    return bool(parts) and all(part.get("contentEncoding") == "base64" for part in parts)
