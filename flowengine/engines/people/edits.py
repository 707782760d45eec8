"""Edits of an approval's subject, in which each value keeps the type of its field.

The flow declares the type. Without a declaration it is the type of the displayed value: `80` stays
a whole number, but 75.50 is accepted if the field is declared as a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.errors import InputError
from flowengine.kernel.view import edited
from flowengine.sdk.values.schema_types import ANY, items_of, kinds, resolve
from flowengine.sdk.values.validation import as_plain, validate

Schema = dict[str, Any]

_ARTICLES = {
    "boolean": "a boolean",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "array": "a list",
    "object": "a map",
    "bytes": "bytes",
    "null": "null",
}
_TYPES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    bytes: "bytes",
    type(None): "null",
}


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
        old, (schema, root) = subject, declared(wait.get("edit_schema", ANY), path)
        for part in path.split("."):
            old = old.get(part) if isinstance(old, dict) else None
        new = as_plain(value, f"'{path}'")
        changes[path] = _Field(path, schema, root).value(old, new)
    if "tool" in wait:
        _check_arguments(wait, changes)
    else:
        _check_fields(wait, changes)
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


def _check_arguments(wait: Mapping[str, Any], edits: Mapping[str, Any]) -> None:
    """Check the edited arguments of a call, as the tool would.

    Raises:
        InputError: They do not match its schema.
    """
    schema = wait.get("edit_schema")
    if schema is not None:
        bound = wait.get("bound", ())
        args = {name: value for name, value in wait["subject"].items() if name not in bound}
        validate(schema, edited(args, dict(edits)), "arguments")


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


class _Field:
    """An edited field, or a part of one."""

    def __init__(self, path: str, schema: Schema, root: Schema) -> None:
        self.path = path
        self.schema, self.root = resolve(schema, root)
        self.kinds = kinds(self.schema)

    def value(self, old: Any, new: Any) -> Any:
        """Return the new value, converted to the field's type.

        Args:
            old: The displayed value.
            new: The new value.

        Raises:
            InputError: It has another type.
        """
        kind, was = _TYPES[type(new)], _TYPES[type(old)]
        if kind in {"bytes", "string"} and (was == "bytes" or _holds_bytes(self.schema)):
            return self._bytes(was, new)
        wanted = self.kinds or ({was} if old is not None else {kind})
        if kind == "integer" and "integer" not in wanted and "number" in wanted:
            return float(new) if was == "number" else new
        if kind == "number" and "number" not in wanted and "integer" in wanted and new.is_integer():
            return int(new)
        if kind not in wanted:
            raise self._refused(wanted)
        if kind == "array":
            return self._items(old if was == "array" else [], new)
        return self._map(old if was == "object" else {}, new) if kind == "object" else new

    def _bytes(self, was: str, new: Any) -> Any:
        """Return bytes, which are given as such or as base64, in the form of the old value."""
        from base64 import b64decode, b64encode

        try:
            given = b64decode(new, validate=True) if isinstance(new, str) else new
        except ValueError:
            raise InputError(f"'{self.path}' must be base64", field=self.path) from None
        return given if was == "bytes" else b64encode(given).decode()

    def _refused(self, wanted: set[str]) -> InputError:
        expected = " or ".join(
            _ARTICLES[name] for name in sorted(wanted, key=lambda n: n == "null")
        )
        return InputError(f"'{self.path}' is {expected} and has to stay one", field=self.path)

    def _map(self, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        free = self.schema.get("additionalProperties")
        for name in old:
            # a declared map can lose keys of any name, but not one of its fields
            if name not in new and not (free and name not in self.schema.get("properties", {})):
                path = f"{self.path}.{name}"
                raise InputError(f"'{path}' is missing", field=path)
        return {
            name: _Field(f"{self.path}.{name}", *_property(self.schema, self.root, name)).value(
                old.get(name), value
            )
            for name, value in new.items()
        }

    def _items(self, old: list[Any], new: list[Any]) -> list[Any]:
        """Return items, each with the type of an item in the old list."""
        examples = list({_shape(item): item for item in reversed(old)}.values())[::-1]
        return [self._item(index, examples, item) for index, item in enumerate(new)]

    def _item(self, index: int, examples: list[Any], item: Any) -> Any:
        each = [resolve(part, self.root) for part in self.schema.get("prefixItems", ())]
        schema = each[index] if index < len(each) else items_of(self.schema, self.root)
        field = _Field(f"{self.path}.{index}", *schema)
        faults = []
        for example in examples or [None]:
            try:
                return field.value(example, item)
            except InputError as error:
                faults.append(error)
        raise faults[0]


def _holds_bytes(schema: Schema) -> bool:
    """Return whether a field can be bytes, and no other text."""
    parts = [part for part in schema.get("anyOf", [schema]) if "string" in (kinds(part) or ())]
    return bool(parts) and all(part.get("contentEncoding") == "base64" for part in parts)


def _shape(value: Any) -> Any:
    """Return the common form of values of the same type."""
    if isinstance(value, dict):
        return tuple(sorted((name, _shape(part)) for name, part in value.items()))
    return frozenset(map(_shape, value)) if isinstance(value, list) else _TYPES[type(value)]
