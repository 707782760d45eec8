"""The arguments that a JSON Schema describes, at its top and in `allOf`, `anyOf` or `$ref`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

Schema = dict[str, Any]
_ALL = ("allOf",)
_ONE_OF = ("anyOf", "oneOf")
_CONDITIONAL = ("then", "else")
_DEEPEST = 20


def described_arguments(schema: Schema) -> dict[str, list[Any]]:
    """Return the arguments that a schema names, with their schemas in each of its parts.

    Args:
        schema: The schema of an object.
    """
    found: dict[str, list[Any]] = {}
    for part in _parts(schema, schema, _DEEPEST):
        for name, given in part.get("properties", {}).items():
            if given not in found.setdefault(name, []):
                found[name].append(given)
    return found


def required_arguments(schema: Schema) -> set[str]:
    """Return the arguments that every form of an object requires."""
    return _required(schema, schema, _DEEPEST)


def without_arguments(schema: Schema, names: Collection[str]) -> Schema:
    """Return a schema that neither names nor requires some arguments, which another side supplies.

    Args:
        schema: The schema of an object.
        names: The arguments.

    Returns:
        A schema with at least `properties` and `required`, which can be empty.
    """
    changed = _without(schema, schema, frozenset(names), _DEEPEST) if names else schema
    empty: Schema = {"properties": {}, "required": []}
    return {**changed, **{key: part for key, part in empty.items() if key not in changed}}


def _referred(schema: Schema, root: Schema) -> Any:
    """Return the definition that a schema refers to, or None."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        return None
    return root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))


def _parts(schema: Any, root: Schema, depth: int) -> Iterator[Schema]:
    """Yield a schema and all schemas that can apply to the same object."""
    if not isinstance(schema, dict) or not depth:
        return
    yield schema
    inner = [_referred(schema, root), *(schema.get(key) for key in _CONDITIONAL)]
    for key in (*_ALL, *_ONE_OF):
        inner += schema.get(key, ())
    inner += schema.get("dependentSchemas", {}).values()
    for part in inner:
        yield from _parts(part, root, depth - 1)


def _required(schema: Any, root: Schema, depth: int) -> set[str]:
    if not isinstance(schema, dict) or not depth:
        return set()
    names = set(schema.get("required", ()))
    for part in (_referred(schema, root), *schema.get("allOf", ())):
        names |= _required(part, root, depth - 1)
    for key in _ONE_OF:
        forms = [_required(form, root, depth - 1) for form in schema.get(key, ())]
        names |= set.intersection(*forms) if forms else set()
    return names


def _without(schema: Any, root: Schema, names: frozenset[str], depth: int) -> Any:
    if not isinstance(schema, dict) or not depth:
        return schema

    def inner(part: Any) -> Any:
        return _without(part, root, names, depth - 1)

    changed = dict(schema)
    if isinstance(schema.get("properties"), dict):
        given = schema["properties"].items()
        changed["properties"] = {name: part for name, part in given if name not in names}
    if isinstance(schema.get("required"), list):
        changed["required"] = [name for name in schema["required"] if name not in names]
    for key in (*_ALL, *_ONE_OF):
        if isinstance(schema.get(key), list):
            changed[key] = [inner(part) for part in schema[key]]
    for key in _CONDITIONAL:
        if key in schema:
            changed[key] = inner(schema[key])
    for key in ("dependentSchemas", "dependentRequired"):
        if isinstance(schema.get(key), dict):
            others = {name: part for name, part in schema[key].items() if name not in names}
            changed[key] = {
                name: [each for each in part if each not in names]
                if isinstance(part, list)
                else inner(part)
                for name, part in others.items()
            }
    # A definition stays as it is, because values inside the object can refer to it as well.
    definition = _referred(schema, root)
    if definition is not None and inner(definition) != definition:
        del changed["$ref"]
        changed["allOf"] = [*changed.get("allOf", ()), inner(definition)]
    return changed
