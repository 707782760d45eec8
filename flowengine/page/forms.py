"""The forms of approvals and starts: their fields for a template, and what they submit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine.typed_text import by_type, edited_field

_TYPES = {"integer": "number", "number": "number", "boolean": "checkbox"}

_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matches {}",
}


class Field(NamedTuple):
    """One field of a form."""

    name: str
    """Name in the form: `form.NAME`, `edit.PATH`, `input.NAME`."""
    label: str
    help: str
    kind: str
    """`text`, `number`, `checkbox`, `select` or `area`."""
    value: str
    options: list[str]
    required: bool


def fields_of(wait: Mapping[str, Any]) -> list[Field]:
    """Return the fields that an approver fills in or may change."""
    form = wait.get("form") or {}
    required = form.get("required", ())
    found = [
        _field(f"form.{name}", name, schema, schema.get("default"), required=name in required)
        for name, schema in form.get("properties", {}).items()
    ]
    subject = wait.get("subject")
    edit = wait.get("edit") or []
    paths = list(subject) if edit is True and isinstance(subject, dict) else edit
    schemas = (wait.get("edit_schema") or {}).get("properties", {})
    for path in paths if isinstance(paths, list) else ():
        value = subject
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        found.append(_field(f"edit.{path}", path, schemas.get(path, {}), value, required=False))
    return found


def entered(wait: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of a decision from a submitted form.

    Unchanged fields are left out of the edits.

    Args:
        wait: The approval.
        given: Name in the form → text.
    """
    body: dict[str, Any] = {"choice": given.get("choice", "")}
    if given.get("comment", "").strip():
        body["comment"] = given["comment"].strip()
    form, edits = {}, {}
    properties = (wait.get("form") or {}).get("properties", {})
    for field in fields_of(wait):
        group, _, name = field.name.partition(".")
        text = given.get(field.name, "").replace("\r\n", "\n")
        if field.kind == "checkbox":
            text = "true" if text else "false"
        if group == "form":
            if text:  # an empty field is reported as missing, not by its pattern
                form[name] = by_type(properties[name], text, f"'{name}'", name)
        elif text != field.value and field.name in given:
            edits[name] = edited_field(wait, name, text)
    return {**body, **({"form": form} if form else {}), **({"edit": edits} if edits else {})}


def inputs_of(schemas: Mapping[str, Any], known: Mapping[str, Any]) -> list[Field]:
    """Return the fields for the inputs of a flow, without those that are paths on the server.

    Args:
        schemas: Input → JSON Schema.
        known: Input → value to show, instead of its default.
    """
    found = []
    for name, schema in schemas.items():
        if isinstance(schema, dict) and schema.get("format") == "path":
            continue
        value = known.get(name, schema.get("default"))
        field = _field(f"input.{name}", name, schema, value, required="default" not in schema)
        if field.kind == "checkbox" and value is None and not field.required:
            field = field._replace(kind="select", options=["true", "false"])
        found.append(field)
    return found


def entered_inputs(schemas: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the inputs of a submitted form. Empty fields are left out, and get their defaults.

    Args:
        schemas: Input → JSON Schema.
        given: Name in the form → text.

    Raises:
        InputError: A text is not of the type of its input.
    """
    inputs = {}
    for field in inputs_of(schemas, {}):
        name = field.name.removeprefix("input.")
        text = given.get(field.name, "").replace("\r\n", "\n")
        if field.kind == "checkbox":
            text = "true" if text else "false"
        is_cleared = field.name in given and field.value and field.kind in ("text", "area")
        if text or (is_cleared and schemas[name].get("type") == "string"):
            inputs[name] = by_type(schemas[name], text, f"'{name}'", name)
    return inputs


def _limits(schema: Mapping[str, Any]) -> str:
    """Return the limits of a value in words."""
    return ", ".join(words.format(schema[key]) for key, words in _LIMITS.items() if key in schema)


def _field(name: str, label: str, schema: Any, value: Any, *, required: bool) -> Field:
    schema = schema if isinstance(schema, dict) else {}
    options = schema.get("enum") or []
    types = schema.get("type")
    if options and all(isinstance(option, str) for option in options):
        kind = "select"
    elif types in _TYPES:
        kind = _TYPES[types]
    else:
        is_text = types == "string" or (types is None and isinstance(value, str | None))
        kind = "text" if is_text and len(str(value or "")) <= 80 else "area"
        if types is None and isinstance(value, int | float) and not isinstance(value, bool):
            kind = "number"
    text = "" if value is None else value
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    return Field(
        name,
        schema.get("title") or label,
        ". ".join(filter(None, (schema.get("description"), _limits(schema)))),
        kind,
        text,
        [str(option) for option in options] if kind == "select" else [],
        required,
    )
