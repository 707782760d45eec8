"""Core schemas of pydantic, changed so that what is written can be read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Node = dict[str, Any]
_VALUES = frozenset({"default", "metadata", "cls", "expected", "members", "config"})
"""Keys of a core schema that contain no schemas."""
_FORMS = frozenset({"ser_json_timedelta", "ser_json_temporal", "ser_json_bytes", "val_json_bytes"})
"""Settings of models that choose another form of a type."""
FUNCTIONS = frozenset({"function-plain", "function-wrap"})
"""Serializers that are code of the program."""


def each_node(node: Any, change: Callable[[Node, bool], Node], own: bool = False) -> Any:
    """Return a core schema with every schema inside it changed, the inner ones first.

    Args:
        node: The core schema, or a part of it.
        change: Returns the replacement of a schema. Its second argument is whether code of the
            program writes the schema's values, here or around it.
        own: Whether the program does, around it.
    """
    if isinstance(node, list | tuple):
        return type(node)(each_node(part, change, own) for part in node)
    if not isinstance(node, dict):
        return node
    own = own or _written_by(node) in FUNCTIONS
    made = {
        key: part if key in _VALUES else each_node(part, change, own) for key, part in node.items()
    }
    return change(made, own) if isinstance(node.get("type"), str) else made


def _written_by(node: Node) -> Any:
    serialization = node.get("serialization")
    return serialization.get("type") if isinstance(serialization, dict) else None


def with_one_form(node: Node, _own: bool) -> Node:
    """Return a schema whose values are written in the names and forms in which they are read."""
    if "config" in node:
        config = {key: part for key, part in node["config"].items() if key not in _FORMS}
        node = {**node, "config": config}
    match node["type"]:
        case "model-fields" | "typed-dict":
            fields = {name: _renamed(name, field) for name, field in node["fields"].items()}
            return {**node, "fields": fields}
        case "dataclass-args":
            return {**node, "fields": [_renamed(each["name"], each) for each in node["fields"]]}
    return node


def _renamed(name: str, field: Node) -> Node:
    paths = field.get("validation_alias")
    others = {key: part for key, part in field.items() if key != "serialization_alias"}
    if paths is None:
        return others
    if isinstance(paths, str):
        return {**others, "serialization_alias": paths}
    choices = paths if isinstance(paths[0], list) else [paths]
    short = next((path[0] for path in choices if len(path) == 1), None)
    if short is not None:
        return {**others, "serialization_alias": short}
    return {**others, "validation_alias": [*choices, [name]]}


def computed_names(model: Node) -> list[str]:
    """Return the names of a model's computed fields in the plain form."""
    fields = model["schema"]
    while "fields" not in fields and isinstance(fields.get("schema"), dict):
        fields = fields["schema"]
    return [each.get("alias", each["property_name"]) for each in fields.get("computed_fields", ())]


def is_strict(node: Any) -> bool:
    """Return whether a type, or a part of it, accepts values of that type alone."""
    if isinstance(node, list | tuple):
        return any(map(is_strict, node))
    if not isinstance(node, dict):
        return False
    settings = node.get("config") or {}
    return (
        node.get("strict") is True
        or settings.get("strict") is True
        or any(is_strict(part) for key, part in node.items() if key not in _VALUES)
    )


def without_ban(node: Node) -> Node:
    """Return the schema of a model or its fields, in which other fields are ignored."""
    config = (
        {"config": {**node["config"], "extra_fields_behavior": "ignore"}}
        if "config" in node
        else {}
    )
    inner = {} if "fields" in node else {"schema": without_ban(node["schema"])}
    changed = {"extra_behavior": "ignore"} if node["type"] in {"model", "model-fields"} else {}
    return {**node, **config, **inner, **changed}
