"""Resolution of paths against declarations, following the schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flowengine.flow.expressions import types
from flowengine.flow.expressions.paths import written
from flowengine.flow.expressions.types import (
    SOURCES,
    DeclaredNames,
    Note,
    Path,
    article,
    kind,
    without_null,
)
from flowengine.flow.source.synonyms import OUTPUTS
from flowengine.sdk.texts.near_words import nearest
from flowengine.sdk.values.schema_types import ANY, Schema, kinds, resolve


class Trouble(NamedTuple):
    """A problem with a path. `keys` is the number of its keys that the mark covers."""

    note: Note
    keys: int


class ResolvedPath(NamedTuple):
    """The target of a path."""

    schema: Schema
    root: Schema
    """The schema that references in `schema` point into."""
    trouble: Trouble | None = None
    uncertain: str | None = None
    """The dotted path of a value on the way that may be null."""


class Segment(NamedTuple):
    """A key of a path: a constant, or the schema of a computed one."""

    key: str | int | None
    computed: Schema


def follow(names: DeclaredNames, root: str, segments: list[Segment]) -> ResolvedPath:
    """Follow a path through the declarations.

    Args:
        names: The visible names.
        root: Its first name.
        segments: The keys after it.

    Returns:
        The target, or the problem.
    """
    keys = [segment.key for segment in segments]
    at = ResolvedPath(*resolve(names.schema, names.schema))
    dotted = ""
    uncertain = None
    for count, segment in enumerate([Segment(root, ANY), *segments]):
        if dotted in names.uncertain:
            uncertain = dotted
        constant = isinstance(segment.key, str)
        dotted += f".{segment.key}" if count and constant else f"[{segment.key}]"
        dotted = dotted if count else root
        if constant and dotted in names.hidden:
            return ResolvedPath({}, {}, Trouble(names.hidden[dotted], count))
        shown = written(root, [key if key is not None else ... for key in keys[: count - 1]])
        at = _into(at, segment, shown if count else "")
        if at.trouble:
            note, doubt = at.trouble.note, names.uncertain.get(uncertain or "")
            if doubt is not None and doubt.always:  # null, which has a remedy
                note = note._replace(hint=doubt.hint)
            return at._replace(trouble=Trouble(note, count))
    if SOURCES in at.schema:
        at = ResolvedPath(types.common(list(at.schema[SOURCES].values())), at.root)
    if dotted in names.uncertain and names.uncertain[dotted].always:
        uncertain = dotted
    elif dotted in names.uncertain:
        at = at._replace(schema=types.or_null(at.schema))
    return at._replace(uncertain=uncertain)


def _into(at: ResolvedPath, segment: Segment, shown: str) -> ResolvedPath:
    """Follow one segment of a path."""
    schema = without_null(at.schema)
    schema, root = resolve(schema, at.root)
    if SOURCES in schema:
        return _into_each(schema[SOURCES], root, segment, shown)
    possible = kinds(schema)
    wanted = _container(segment)
    if types.SECRET in schema or (possible and not possible & wanted):
        return _nothing_inside(schema, segment, shown)
    if segment.key is None:
        inner = schema.get("items") if kind(schema) == "array" else None
        return ResolvedPath(*resolve(inner or ANY, root))
    if isinstance(segment.key, int) and segment.key < 0:
        message = f"'{shown}' has no item {segment.key}: items are counted from 0"
        last = f"write {shown}[size({shown}) - {-segment.key}] to count from the end"
        note = Note("E311", message, last)
        return ResolvedPath({}, {}, Trouble(note, 0))
    if isinstance(segment.key, int):
        first = schema.get("prefixItems", [])
        item = first[segment.key] if segment.key < len(first) else schema.get("items", {})
        return ResolvedPath(*resolve(item, root))
    return _property(schema, root, segment.key, shown)


def _container(segment: Segment) -> set[str]:
    """Return the types of values that a segment can lead into."""
    if segment.key is not None:
        return {"object"} if isinstance(segment.key, str) else {"array"}
    by_key = {None: {"array", "object"}, "integer": {"array"}, "string": {"object"}}
    return by_key.get(kind(segment.computed), set())


def _nothing_inside(schema: Schema, segment: Segment, shown: str) -> ResolvedPath:
    """Report that a value is not a map, or not a list."""
    if types.SECRET in schema:
        note = Note("E403", f"'{shown}' is a secret, and nothing can be extracted from it")
    elif kind(schema) == "array" and isinstance(segment.key, str):
        hint = f"take an item, '{shown}[0]', or all, '{shown}.map(x, x.{segment.key})'"
        note = Note("E311", f"'{shown}' is a list, so it has no '{segment.key}'", hint)
    elif kind(schema) == "array":
        note = Note(
            "E311", f"the index of '{shown}' is {article(segment.computed)}, not an integer"
        )
    elif kind(schema) == "object":
        note = Note("E311", f"the keys of '{shown}' are texts", f"write '{shown}[\"…\"]'")
    else:
        note = Note("E311", f"'{shown}' is {article(schema)}, which has no keys or items")
    return ResolvedPath({}, {}, Trouble(note, 0))


_NAMING = frozenset({"properties", "$ref", "anyOf", "oneOf", "allOf"})
"""Keywords of a schema that can name keys."""
_MOST_PARTS = 100
"""Maximum number of parts of a schema that are searched for one key."""


def _property(
    schema: Schema, root: Schema, key: str, shown: str, seen: list[Schema] | None = None
) -> ResolvedPath:
    """Return the value of a key of a map.

    Args:
        schema: The schema of the map.
        root: The schema that its references point into.
        key: The key.
        shown: The path to the map, for messages.
        seen: The parts of a combined schema that were searched. Parts can contain each other.
    """
    seen = [] if seen is None else seen
    seen.append(schema)
    properties = schema.get("properties", {})
    if key in properties:
        return ResolvedPath(*resolve(properties[key], root))
    for word in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(word, ())
        if properties:  # then only a part that names keys as well adds any
            parts = [part for part in parts if not _NAMING.isdisjoint(part)]
        resolved = [resolve(part, root) for part in parts]
        resolved = [each for each in resolved if not any(each[0] is part for part in seen)]
        if resolved and len(seen) < _MOST_PARTS:
            return _property_of_one(resolved, root, key, shown, seen)
    more = schema.get("additionalProperties", not properties)
    if more is False and "patternProperties" not in schema:
        full = written(shown, [key]) if shown else key
        note = Note("E301", f"'{full}' is not declared", suggestion(key, properties, shown))
        return ResolvedPath({}, {}, Trouble(note, 0))
    return ResolvedPath(*resolve(more if isinstance(more, dict) else ANY, root))


def _property_of_one(
    parts: list[tuple[Schema, Schema]], root: Schema, key: str, shown: str, seen: list[Schema]
) -> ResolvedPath:
    """Return the value of a key of a map that has one of several shapes.

    One of them must have it.
    """
    properties = [_property(*part, key, shown, seen) for part in parts]
    good = [one for one in properties if not one.trouble]
    if not good:
        return properties[0]
    return (
        good[0]
        if len(good) == 1
        else ResolvedPath(types.common([one.schema for one in good]), root)
    )


def _into_each(
    sources: dict[str, Schema], root: Schema, segment: Segment, shown: str
) -> ResolvedPath:
    """Follow a segment into a value that comes from one of several steps. Each must allow it."""
    names = []
    for name, schema in sources.items():
        one = _into(ResolvedPath(*resolve(schema, root)), segment, shown)
        if one.trouble:
            note = one.trouble.note
            message = f"{note.message} when it comes from '{name}'"
            return one._replace(trouble=Trouble(note._replace(message=message), 0))
        names.append(types.self_contained(one.schema, one.root))
    if all(schema == names[0] for schema in names):
        return ResolvedPath(names[0], names[0])
    return ResolvedPath({SOURCES: dict(zip(sources, names, strict=True))}, root)


def suggestion(name: str, declared: Iterable[str], before: str = "") -> str | None:
    """Return a hint with the nearest existing name.

    Args:
        name: The name that was written.
        declared: The existing names.
        before: The path before it.

    Returns:
        `did you mean 'inputs.amount'?`, the list of names if it is short, or None.
    """
    candidates = list(declared)
    near = "output" if name in OUTPUTS and "output" in candidates else nearest(name, candidates)
    if near is not None:
        return f"did you mean '{written(before, [near]) if before else near}'?"
    if before and 0 < len(candidates) <= 8:
        return f"there is {', '.join(candidates)}"
    return None


def reference(root: str, segments: list[Segment]) -> Path:
    """Return the beginning of a path, up to its first computed key.

    Args:
        root: Its first name.
        segments: The keys after it.

    Returns:
        The keys, the root first.
    """
    keys = [root]
    for segment in segments:
        if not isinstance(segment.key, str):
            break
        keys.append(segment.key)
    return tuple(keys)
