"""Unions of classes that a value alone does not distinguish: it then names its class.

In `Accept | Reject`, where both have the field `reason`, the value `{"reason": "late"}` fits either
class. A model therefore writes `{"kind": "Reject", "value": {"reason": "late"}}`.
"""

from __future__ import annotations

import collections.abc
import inspect
from itertools import combinations
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from flowengine.errors import UsageError
from flowengine.sdk.python.live_types import annotated, schema_of
from flowengine.sdk.python.schema_forms import Schema, with_distinct_members

_CONTAINERS = (list, set, frozenset, tuple, dict, collections.abc.Sequence, collections.abc.Mapping)
_ANY: Schema = {"type": ["object", "array", "string", "number", "boolean", "null"]}
"""The schema of an answer of the type `Any`. An empty schema stands for text."""


def schema_for_models(type: Any) -> Schema:
    """Return the JSON Schema of a type whose values models write.

    Raises:
        UsageError: The type has no JSON form.
    """
    schema = schema_of(tagged(type))
    return with_distinct_members(schema or _ANY)


def tagged(hint: Any, *, reads_plain: bool = False) -> Any:
    """Return a type whose values name the class of a member where it is needed.

    This applies to a type itself and to the items of containers, not to the fields of classes.

    Args:
        hint: The type.
        reads_plain: Whether to read values without the name as well.
    """
    origin, items = get_origin(hint), get_args(hint)
    value = getattr(hint, "__value__", None)
    if value is not None and origin is None:  # `type X = ...`
        changed = tagged(value, reads_plain=reads_plain) if get_args(value) else value
        return hint if changed is value else changed
    if hasattr(hint, "__metadata__"):
        base = items[0]
        if any(getattr(note, "discriminator", None) for note in hint.__metadata__):
            return hint
        changed = tagged(base, reads_plain=reads_plain)
        return hint if changed is base else annotated(changed, *hint.__metadata__)
    if origin not in (Union, UnionType, *_CONTAINERS):
        return hint
    members = [tagged(item, reads_plain=reads_plain) for item in items]
    if origin in (Union, UnionType):
        members = _with_names(members, reads_plain=reads_plain)
        changed_union: Any = Union
        return hint if members == [*items] else changed_union[tuple(members)]
    return hint if members == [*items] else origin[tuple(members)]


def _with_names(members: list[Any], *, reads_plain: bool) -> list[Any]:
    """Return the members of a union, with named values for those that are alike."""
    schemas = {at: _fields_of(member) for at, member in enumerate(members)}
    alike = set[int]()
    for one, other in combinations(schemas, 2):
        first, second = schemas[one], schemas[other]
        if first is not None and second is not None and _are_alike(first, second):
            alike |= {one, other}
    if not alike:
        return members
    named = [_named(m, members[:at]) if at in alike else m for at, m in enumerate(members)]
    return [*named, *(members[at] for at in sorted(alike))] if reads_plain else named


def _fields_of(member: Any) -> Schema | None:
    """Return the schema of a class with fields, or None for any other type."""
    if not inspect.isclass(member):
        return None
    try:
        schema = schema_of(member)
    except UsageError:
        return None
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = schema.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return schema if "properties" in schema else None


def _are_alike(one: Schema, other: Schema) -> bool:
    """Return whether a value with all fields of one class fits the other."""
    fields, others = one["properties"], other["properties"]
    if not any(
        {*needed.get("required", ())} <= whole.keys() <= allowed.keys()
        for whole, needed, allowed in ((fields, other, others), (others, one, fields))
    ):
        return False
    return not any(_are_distinct(fields[name], others[name]) for name in fields.keys() & others)


def _are_distinct(one: Schema, other: Schema) -> bool:
    """Return whether no value fits both schemas of a field."""
    if "enum" in one and "enum" in other:
        return not any(value in other["enum"] for value in one["enum"])
    types = one.get("type"), other.get("type")
    numbers = {"integer", "number"}
    return all(isinstance(type, str) for type in types) and (
        types[0] != types[1] and not {*types} <= numbers
    )


def _named(member: Any, before: list[Any]) -> Any:
    """Return the type of `{kind, value}` with a value of a class."""
    from pydantic import AfterValidator, ConfigDict, create_model

    same = sum(getattr(other, "__name__", "") == member.__name__ for other in before)
    name = f"{member.__name__}{same + 1}" if same else member.__name__
    kind: Any = Literal[name]
    made = create_model(
        name, __config__=ConfigDict(extra="forbid"), kind=(kind, ...), value=(member, ...)
    )
    return annotated(made, AfterValidator(attrgetter("value")))
