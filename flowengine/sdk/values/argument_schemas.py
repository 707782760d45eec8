"""The arguments that a JSON Schema describes, at its top and in `allOf`, `anyOf` or `$ref`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from json import dumps
from typing import Any

Schema = dict[str, Any]
_ALL = ("allOf",)
_ONE_OF = ("anyOf", "oneOf")
_CONDITIONAL = ("then", "else")
_PREFIX = "#/$defs/"
_COPY = "_of_caller"
"""Ends the name of a definition from which arguments are removed."""


def described_arguments(schema: Schema) -> dict[str, list[Any]]:
    """Return the arguments that a schema names, with their schemas in each of its parts.

    Args:
        schema: The schema of an object.
    """
    found: dict[str, dict[str, Any]] = {}
    for part in _parts(schema):
        for name, given in part.get("properties", {}).items():
            found.setdefault(name, {}).setdefault(dumps(given), given)
    return {name: [*each.values()] for name, each in found.items()}


def required_arguments(schema: Schema) -> set[str]:
    """Return the arguments that every form of an object requires."""
    known: dict[int, set[str]] = {}

    def required(part: Any) -> set[str]:
        if not isinstance(part, dict):
            return set()
        if id(part) in known:  # also while it is read: it can contain itself
            return known[id(part)]
        names = known[id(part)] = set(part.get("required", ()))
        for every in (_referred(part, schema), *part.get("allOf", ())):
            names |= required(every)
        for key in _ONE_OF:
            forms = [required(form) for form in part.get(key, ())]
            names |= set.intersection(*forms) if forms else set()
        return names

    return set(required(schema))


def without_arguments(schema: Schema, names: Collection[str]) -> Schema:
    """Return a schema without the arguments that another side supplies.

    Args:
        schema: The schema of an object.
        names: The arguments.

    Returns:
        A schema with at least `properties` and `required`, which can be empty.
    """
    changed = _without(schema, frozenset(names)) if names else schema
    definitions = [_referred(part, schema) for part in _parts(schema)] if names else []
    if any(_without(each, frozenset(names)) != each for each in definitions if each):
        changed = _with_own_definitions(changed, schema, frozenset(names))
    empty: Schema = {"properties": {}, "required": []}
    return {**changed, **{key: part for key, part in empty.items() if key not in changed}}


def _referred(schema: Schema, root: Schema) -> Any:
    """Return the definition that a schema refers to, or None."""
    name = _name_of(schema)
    return None if name is None else root.get("$defs", {}).get(name)


def _name_of(schema: Schema) -> str | None:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_PREFIX):
        return None
    return reference.removeprefix(_PREFIX)


def _parts(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and all schemas that can apply to the same object, each once."""
    pending: list[Any] = [schema]
    seen = set[int]()
    while pending:
        part = pending.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        pending += reversed([*_inner(part), _referred(part, schema)])


def _inner(schema: Schema) -> list[Any]:
    """Return the schemas inside a schema that apply to the same object."""
    inner = [schema.get(key) for key in _CONDITIONAL]
    for key in (*_ALL, *_ONE_OF):
        inner += schema.get(key, ())
    return [*inner, *schema.get("dependentSchemas", {}).values()]


def _with_own_definitions(schema: Schema, root: Schema, names: frozenset[str]) -> Schema:
    """Return a schema whose references lead to definitions without some arguments.

    They are copies, because values inside the object can refer to the definitions as well.
    """
    copied = {
        name
        for part in _parts(root)
        if (name := _name_of(part)) is not None and name in root.get("$defs", {})
    }

    def redirected(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        changed = _each_inner(part, redirected)
        name = _name_of(part)
        return changed if name not in copied else {**changed, "$ref": f"{_PREFIX}{name}{_COPY}"}

    copies = {f"{name}{_COPY}": redirected(_without(root["$defs"][name], names)) for name in copied}
    whole = redirected({key: part for key, part in schema.items() if key != "$defs"})
    return {**whole, "$defs": {**root["$defs"], **copies}}


def _each_inner(schema: Schema, change: Callable[[Any], Any]) -> Schema:
    """Return a schema with changed schemas that apply to the same object."""
    changed = dict(schema)
    for key in (*_ALL, *_ONE_OF):
        if isinstance(schema.get(key), list):
            changed[key] = [change(part) for part in schema[key]]
    for key in _CONDITIONAL:
        if key in schema:
            changed[key] = change(schema[key])
    if isinstance(schema.get("dependentSchemas"), dict):
        given = schema["dependentSchemas"].items()
        changed["dependentSchemas"] = {name: change(part) for name, part in given}
    return changed


def _without(schema: Any, names: frozenset[str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    changed = _each_inner(schema, lambda part: _without(part, names))
    for key in ("properties", "dependentSchemas"):
        if isinstance(changed.get(key), dict):
            given = changed[key].items()
            changed[key] = {name: part for name, part in given if name not in names}
    if isinstance(schema.get("required"), list):
        changed["required"] = [name for name in schema["required"] if name not in names]
    if isinstance(schema.get("dependentRequired"), dict):
        changed["dependentRequired"] = {
            name: [each for each in others if each not in names]
            for name, others in schema["dependentRequired"].items()
            if name not in names
        }
    return changed
