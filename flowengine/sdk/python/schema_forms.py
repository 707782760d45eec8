"""JSON Schema forms of Python's types, which `live_types` interprets. `{}` means "anything"."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import isfinite
from typing import Any, NamedTuple

Schema = dict[str, Any]

SCALARS: dict[str, Schema] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
}
LISTS = frozenset({"list", "Sequence", "MutableSequence", "Iterable", "Collection"})
DICTS = frozenset({"dict", "Mapping", "MutableMapping"})
ABSENT: Any = object()
"""Used in place of a default that is missing or has no JSON form."""
_PREFIX = "#/$defs/"


class Parameter(NamedTuple):
    """A parameter that callers supply."""

    name: str
    schema: Schema
    required: bool
    default: Any = ABSENT
    description: str | None = None


def arguments(parameters: Iterable[Parameter], others: Schema | None) -> Schema:
    """Return the schema of the arguments of a call, an object.

    Args:
        parameters: In the order of the signature.
        others: Schema of the arguments that it accepts under any other name: `**kwargs`.
    """
    each = list(parameters)
    schema: Schema = {
        "type": "object",
        "properties": {parameter.name: _property(parameter) for parameter in each},
    }
    required: list[Any] = [parameter.name for parameter in each if parameter.required]
    if required:
        schema["required"] = required
    if others != {}:
        schema["additionalProperties"] = False if others is None else others
    return schema


def _property(parameter: Parameter) -> Schema:
    schema = dict(parameter.schema)
    if parameter.description and "description" not in schema:
        schema["description"] = parameter.description
    if parameter.default is ABSENT or not is_plain(parameter.default):
        return schema
    if parameter.default is None:
        schema = nullable(schema)
    return {**schema, "default": parameter.default}


def is_plain(value: Any) -> bool:
    """Return whether a value is plain JSON."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    return (
        value is None
        or type(value) in {str, bool}
        or (type(value) is int and -(2**63) <= value < 2**64)
        or (type(value) is float and isfinite(value))
    )


def nullable(schema: Schema) -> Schema:
    """Return a schema that allows null as well."""
    if isinstance(schema.get("type"), str) and schema["type"] != "null":
        schema = {**schema, "type": [schema["type"], "null"]}
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    elif "$ref" in schema:
        schema = {"anyOf": [{"$ref": schema.pop("$ref")}, dict(SCALARS["None"])], **schema}
    elif "anyOf" in schema and SCALARS["None"] not in schema["anyOf"]:
        schema = {**schema, "anyOf": [*schema["anyOf"], dict(SCALARS["None"])]}
    return schema


def array(inner: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": inner} if inner else {"type": "array"}


def mapping(inner: Schema) -> Schema:
    """Return the schema of a dict from the schema of its values."""
    return {"type": "object", "additionalProperties": inner} if inner else {"type": "object"}


def union(schemas: Sequence[Schema]) -> Schema:
    """Return the schema of a union, which is `{}` if one of its members is."""
    if not all(schemas):
        return {}
    if all(schema.keys() == {"type"} for schema in schemas):
        types: list[Any] = []
        for schema in schemas:
            types += schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        each = list(dict.fromkeys(types))
        return {"type": each if len(each) > 1 else each[0]}
    choices: list[Any] = []
    for schema in schemas:
        more = schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]
        choices += [choice for choice in more if choice not in choices]
    return {"anyOf": choices} if len(choices) > 1 else dict(choices[0])


def with_distinct_members(schema: Schema) -> Schema:
    """Return a schema in which a value of a union of classes has only keys of its class.

    Otherwise a wrong value would fit any member without required fields. Results of functions can
    have further keys, so this is for values that models write.

    Args:
        schema: A self-contained schema.
    """
    definitions = schema.get("$defs", {})

    def has_fields(part: Any) -> bool:
        whole = definitions.get(_referred(part), part) if isinstance(part, dict) else {}
        return "properties" in whole and "additionalProperties" not in whole

    def closed(part: Schema) -> Schema:
        part = each_part(part, closed)
        forms = part.get("anyOf", ())
        if sum(map(has_fields, forms)) < 2:
            return part
        closing = {"unevaluatedProperties": False}
        return {**part, "anyOf": [{**f, **closing} if has_fields(f) else f for f in forms]}

    return closed(schema)


def choices(values: Sequence[Any]) -> Schema:
    """Return the schema of a `Literal` or an enum, by its values."""
    each = list(dict.fromkeys((type(value), value) for value in values))
    kinds = {kind.__name__ for kind, _ in each}
    schema: Schema = {"enum": [value for _, value in each]}
    if len(kinds) == 1 and kinds <= {"str", "int", "float", "bool"}:
        return {**SCALARS[kinds.pop()], **schema}
    return schema


class Unread:
    """Stands for a class whose fields are not known, which allows anything."""

    is_hooked = False
    """Whether code of the class decides which values are valid where it is a note."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let pydantic allow anything for it in a field."""
        from pydantic_core import core_schema

        return core_schema.any_schema()


class ClassSchemas:
    """The classes that a schema names. Each is read once, so a class may contain itself."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}
        self._names: dict[Hashable, str] = {}

    def refer(self, key: Hashable, name: str, read: Callable[[], Schema]) -> Schema:
        """Return the reference to a class, or `{}`. `tidied` inserts the referenced schema.

        Args:
            key: Identifies the class.
            name: Name of the class.
            read: Returns its schema.
        """
        known = self._names.get(key)
        if known is None:
            number, free = 1, name
            while free in self._names.values():
                number += 1
                free = f"{name}{number}"
            known = self._names[key] = free
            self._schemas[known] = read()
        if self._schemas.get(known) == {}:
            return {}
        return {"$ref": f"{_PREFIX}{known}"}

    def fields(self, reference: Schema) -> list[Parameter]:
        """Return the fields of a class as the parameters that `**kwargs: Unpack[...]` makes."""
        read = self._schemas.get(_referred(reference) or "", {})
        required: Any = read.get("required", ())
        properties: Any = read.get("properties", {})
        return [Parameter(name, part, name in required) for name, part in properties.items()]

    def tidied(self, schema: Schema) -> Schema:
        """Return a self-contained schema.

        A class is inserted where it is named. One that contains itself, or is named several times,
        is moved to `$defs`.
        """
        counts: dict[str, int] = {}
        pending = references(schema)
        while pending:
            name = pending.pop()
            counts[name] = counts.get(name, 0) + 1
            if counts[name] == 1:
                pending += references(self._schemas[name])
        kept = {
            name
            for name, count in counts.items()
            if (count > 1 and "properties" in self._schemas[name])
            or name in needed(self._schemas[name], self._schemas)
        }
        place = self._put_in(schema, kept)
        if kept:
            names = [name for name in self._schemas if name in kept]
            place["$defs"] = {name: self._put_in(self._schemas[name], kept) for name in names}
        return place

    def _put_in(self, schema: Schema, kept: set[str]) -> Schema:
        name = _referred(schema)
        if name is not None and name not in kept:
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return self._put_in({**self._schemas[name], **beside}, kept)
        return each_part(schema, lambda part: self._put_in(part, kept))


_OF_ONE = frozenset(
    {"items", "additionalProperties", "unevaluatedProperties", "propertyNames", "contains", "not"}
    | {"if", "then", "else"}
)
_OF_MANY = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_OF_NAMED = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)


def each_part(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return a schema with its direct subschemas replaced. They can also be `True`.

    Args:
        schema: The schema.
        change: Returns the replacement of a subschema.
    """

    def changed(part: Any) -> Any:
        return change(part) if isinstance(part, dict) else part

    merged: Schema = {}
    for key, value in schema.items():
        if key in _OF_ONE:
            merged[key] = changed(value)
        elif key in _OF_MANY:
            merged[key] = [changed(part) for part in value]
        elif key in _OF_NAMED:
            merged[key] = {name: changed(part) for name, part in value.items()}
        else:
            merged[key] = value
    return merged


def references(schema: Schema) -> list[str]:
    """Return the names of the references in a schema, as often as they occur."""
    name = _referred(schema)
    names = [] if name is None else [name]

    def add_names(part: Schema) -> Schema:
        names.extend(references(part))
        return part

    each_part(schema, add_names)
    return names


def _referred(schema: Schema) -> str | None:
    reference = schema.get("$ref")
    return reference.removeprefix(_PREFIX) if isinstance(reference, str) else None


def needed(schema: Schema, definitions: Schema) -> Schema:
    """Return the definitions that a schema refers to, directly or indirectly."""
    merged: Schema = {}
    pending = references(schema)
    while pending:
        name = pending.pop()
        if name not in merged:
            merged[name] = definitions[name]
            pending += references(definitions[name])
    return merged
