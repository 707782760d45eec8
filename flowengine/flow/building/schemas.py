"""JSON Schemas of Python types: `str`, `list[int]`, `Literal`, dataclasses, TypedDicts, models.

The scalars and their lists are told as a person writes them; for everything else pydantic is asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from flowengine.errors import UsageError

Schema = dict[str, Any]
SCALARS: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
    None: "null",
}
NO_SCHEMA = (Any, object)
ABSENT: Any = object()
"""In place of a default that is not given."""


def schema_of(type: Any) -> Schema:
    """Return the JSON Schema of a type.

    Args:
        type: A Python type, or a JSON Schema as a dict, which is returned as it is.

    Returns:
        The schema; empty for `Any`.

    Raises:
        UsageError: The type means nothing in JSON.
    """
    if isinstance(type, Mapping):
        return dict(type)
    found = _simple(type, ())
    return _asked(type) if found is None else found


def _simple(type: Any, around: tuple[Any, ...]) -> Schema | None:
    """Return the schema of what needs no definitions of its own; None: pydantic knows it."""
    if type in NO_SCHEMA:
        return {}
    if type in SCALARS:
        return {"type": SCALARS[type]}
    origin, arguments = get_origin(type), get_args(type)
    if type is list or origin is list:
        return _holding({"type": "array"}, "items", arguments, around)
    if type is dict or (origin is dict and arguments[0] is str):
        return _holding({"type": "object"}, "additionalProperties", arguments, around)
    if origin in {Union, UnionType} and all(one in SCALARS for one in arguments):
        return {"type": [SCALARS[one] for one in arguments]}
    if origin in {Required, NotRequired}:
        return _simple(arguments[0], around)
    if origin is Literal and all(isinstance(one, str) for one in arguments):
        return {"type": "string", "enum": list(arguments)}
    if is_typeddict(type) and type not in around:
        return _typed_dict(type, (*around, type))
    return None


def _holding(
    schema: Schema, key: str, arguments: tuple[Any, ...], around: tuple[Any, ...]
) -> Schema | None:
    inner = _simple(arguments[-1], around) if arguments else {}
    return None if inner is None else {**schema, **({key: inner} if inner else {})}


def _typed_dict(cls: Any, around: tuple[Any, ...]) -> Schema | None:
    """Return the schema of a `TypedDict`; pydantic takes those of `typing` from Python 3.12 on."""
    hints = get_type_hints(cls, include_extras=True)
    properties = {name: _simple(hint, around) for name, hint in hints.items()}
    if None in properties.values():
        return None
    required = [name for name in hints if name in cls.__required_keys__]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
    }


def fields_of(cls: Any) -> dict[str, tuple[Schema, Any]]:
    """Return the fields of a dataclass, a TypedDict or a pydantic model, for inputs or state.

    Args:
        cls: The class.

    Returns:
        Name → its schema, and its default or `ABSENT`.

    Raises:
        UsageError: It is no such class.
    """
    whole = schema_of(cls)
    if whole.get("type") != "object" or "properties" not in whole:
        raise UsageError(
            f"{cls!r} has no fields", hint="give a dataclass, a TypedDict or a pydantic model"
        )
    shared = whole.get("$defs", {})
    found: dict[str, tuple[Schema, Any]] = {}
    for name, schema in whole["properties"].items():
        default = schema.pop("default", ABSENT)
        needed = _needed(schema, shared)
        optional = name not in whole.get("required", []) and default is ABSENT
        found[name] = (
            {**schema, **({"$defs": needed} if needed else {})},
            _computed(cls, name) if optional else default,
        )
    return found


def _computed(cls: Any, name: str) -> Any:
    """Return the default of a field that is made by a factory; of a key that may lack: null."""
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.name == name and field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
    info = getattr(cls, "model_fields", {}).get(name)
    return None if info is None or info.default_factory is None else info.default_factory()


def _needed(schema: Any, shared: Schema) -> Schema:
    """Return those of the shared schemas that one refers to, by others too."""
    needed: Schema = {}
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            name = str(node.get("$ref", "")).removeprefix("#/$defs/")
            if name in shared and name not in needed:
                needed[name] = shared[name]
                pending.append(shared[name])
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return needed


def _asked(type: Any) -> Schema:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        schema = TypeAdapter(type).json_schema()
    except PydanticUserError as error:
        raise UsageError(
            f"{type!r} has no JSON Schema: {error.message.splitlines()[0]}",
            hint="give a type of data, or a JSON Schema as a dict",
        ) from None
    plain: Schema = _untitled(schema)
    return plain


def _untitled(node: Any, names: bool = False) -> Any:
    """Return a schema without the titles that only repeat the names of its fields."""
    if isinstance(node, list):
        return [_untitled(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _untitled(one, names=key in {"properties", "$defs"} and not names)
        if key not in {"default", "const", "enum", "examples"} or names
        else one
        for key, one in node.items()
        if names or key != "title"
    }
