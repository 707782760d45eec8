"""The work that a JSON Schema causes, counted before it is done.

With references, a schema of a few lines can apply its parts to a value without bound. So it is
counted how often a validator would apply them: a part counts once for each part that applies it to
a value. The count depends only on the schema and the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from json import dumps
from re import search, split
from typing import Any, NamedTuple
from urllib.parse import unquote

LARGEST = 100_000
"""Maximum of all parts of a schema, each counted with all that it applies to the same value."""
MOST, MOST_EACH = 3_000_000, 100
"""Maximum number of parts that are applied to a value, and more for each value inside it."""
_FOR_KEYS = ("dependentSchemas", "dependencies")
_SAME = ("not", "if", "then", "else", "allOf", "anyOf", "oneOf", *_FOR_KEYS)
"""Keywords whose schemas apply to the same value."""
_IN_MAPS = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_IN_LISTS = ("items", "unevaluatedItems", "contains")
_PLAIN = {
    str: {"string"},
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"integer", "number"},
    type(None): {"null"},
}
_INNER = {"properties", "patternProperties", "prefixItems", *_SAME, *_IN_MAPS, *_IN_LISTS, "$ref"}
_BACKTRACKS = r"\(\?<?[=!]|\\[1-9k]"
_LOOKS = 3
"""`unevaluatedProperties` looks again at what the parts beside it apply, for each property."""


_OF_SCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")
"""Where the schemas of schemas are, which the validator knows."""
_STATES = 1000


class TooMuch(ValueError):
    """A schema applies too many parts to a value."""


class _Part:
    """A part of a schema. Its references begin at the root."""

    def __init__(self, schema: Mapping[str, Any], root: _Part | None) -> None:
        self.schema = schema
        self.root = self if root is None or type(schema.get("$id")) is str else root
        self.same: list[_Part] = []
        """The parts that it applies to the same value."""
        self.place = 0
        """Its place in an order in which these come before it."""
        self.total = 0
        """How many parts apply to a value together with it."""
        self.looks = _LOOKS if any(word.startswith("unevaluated") for word in schema) else 1
        choices = dumps([schema.get("enum"), schema.get("const")])
        patterns = [*_map(schema, "patternProperties"), schema.get("pattern")]
        self.own = 1 + len(_list(schema, "required"))
        self.own += len(choices) // 10 if "{" in choices or choices.count("[") > 2 else 0
        self.own += sum(100 if search(_BACKTRACKS, str(text)) else 20 for text in patterns if text)
        self.textual = "pattern" in schema or "format" in schema

    def refuses(self, value: dict[str, Any]) -> bool:
        """Return whether a map certainly does not fit, by a missing key or a plain value.

        A validator that finds this first applies no part to the other values in the map.
        """
        if any(type(self.schema.get(word)) is dict for word in (*_IN_MAPS, "patternProperties")):
            return False
        return any(name not in value for name in _list(self.schema, "required")) or any(
            name in value and type(value[name]) in _PLAIN and _is_other(schema, value[name])
            for name, schema in _map(self.schema, "properties").items()
        )

    def inside(self, key: str | int) -> Iterator[Any]:
        """Yield the schemas of the value of a key, or of an index."""
        if isinstance(key, int):
            first = _list(self.schema, "prefixItems")
            yield first[key] if key < len(first) else None
            yield from map(self.schema.get, _IN_LISTS)
        else:
            named = _map(self.schema, "properties")
            yield from [named[key]] if key in named else map(self.schema.get, _IN_MAPS)
            yield from _map(self.schema, "patternProperties").values()


class _Applied(NamedTuple):
    """The parts that apply to one value, and how often."""

    parts: list[tuple[_Part, int]]
    own: int
    each: int
    """What is added for each value inside."""
    textual: int
    """What is added for 64 characters."""
    names: set[str | int]
    """The keys and indices to whose values other parts may apply than to the rest."""
    inside: dict[str | int | type, _Applied]
    """The parts that apply to these values. By the type of the key to the rest."""
    narrowed: dict[frozenset[_Part], _Applied]
    """The same without parts that refuse the value."""


class Count(NamedTuple):
    """How often the parts of a schema are applied to a value and the values inside it."""

    applied: int
    held: int
    """The number of values in the errors, if each part that is applied had one."""


class Expansion:
    """The parts of a schema, and how often they apply to values.

    Args:
        schema: The schema, which must not be changed later.

    Raises:
        TooMuch: It applies too many parts to the same value, or one to itself.

    Attributes:
        has_deep_choices: Whether an error in one place can have the errors in many others as its
            causes: those in alternatives.
    """

    def __init__(self, schema: Any) -> None:
        self._parts: dict[int, _Part] = {}
        """By the identity of their schemas."""
        self._named: dict[tuple[_Part | None, str], list[_Part]] = {}
        """By the end of `$id`, by root and anchor, and by dynamic anchor."""
        self._lost: dict[_Part, str] = {}
        """References that lead nowhere. Those in data do no harm."""
        self._known: dict[frozenset[tuple[_Part, int]], _Applied] = {}
        pending: list[tuple[Any, _Part | None]] = [(schema, None)]
        for value, root in pending:
            if isinstance(value, list):
                pending += [(item, root) for item in value]
            elif isinstance(value, dict) and len(self._parts) <= LARGEST:
                part = self._parts[id(value)] = _Part(value, root)
                if part.root is part:
                    self._named.setdefault((None, _end(value.get("$id", ""))), []).append(part)
                for word in ("$anchor", "$dynamicAnchor"):
                    self._named.setdefault((part.root, str(value.get(word))), []).append(part)
                dynamic = f"#{value.get('$dynamicAnchor')}"
                self._named.setdefault((None, dynamic), []).append(part)
                pending += [(item, part.root) for item in value.values()]
        self._of_schemas: dict[str, Any] = {"required": [""] * 30}
        """Stands for a schema of schemas, each of whose parts applies all, or all that extend it,
        to each value inside."""
        own = [part.schema for part in self._named.get((None, "#meta"), [])]
        self._of_schemas["items"] = {"allOf": own or [self._of_schemas]}
        self._of_schemas["additionalProperties"] = self._of_schemas["items"]
        for made in (self._of_schemas, self._of_schemas["items"]):
            self._parts[id(made)] = _Part(made, None)
        for part in self._parts.values():
            part.same = [*self._same(part)]
        graph = {part: part.same for part in self._parts.values()}
        try:
            for place, part in enumerate(TopologicalSorter(graph).static_order()):
                part.place = place
                part.total = part.own + part.looks * sum(other.total for other in part.same)
        except CycleError:
            raise TooMuch("a reference leads back to the same value") from None
        if sum(part.total for part in graph) > LARGEST:
            raise TooMuch(f"its parts apply more than {LARGEST:,} times to the same value")
        self._first = self._applied(Counter(self._part(schema)))
        lists = (_list(each.schema, word) for each in graph for word in ("anyOf", "oneOf"))
        deep = (
            _INNER.intersection(choice) for each in lists for choice in each if type(choice) is dict
        )
        self.has_deep_choices = any(deep) or any("contains" in each.schema for each in graph)

    def count(self, value: Any, *, plain_first: bool = False) -> Count:
        """Count the parts that are applied to a value and the values inside it.

        Args:
            value: Plain data.
            plain_first: Whether each map in it has its plain values first, so that a validator
                looks no further in an alternative that excludes one of them.

        Returns:
            Their number.

        Raises:
            TooMuch: They are more than a validator may apply.
        """
        total, held, most = 0, 0, MOST
        pending = [(value, self._first, 0)]
        while pending:
            value, applied, above = pending.pop()
            size = len(value) if isinstance(value, str | dict | list) else 0
            own = applied.own + (applied.textual * (size // 64) if isinstance(value, str) else 0)
            most += MOST_EACH
            if isinstance(value, dict) and plain_first:
                applied = self._narrowed(applied, value)
            if isinstance(value, dict | list):
                own += applied.each * size
                inner = value.items() if isinstance(value, dict) else enumerate(value)
                pending += [(it, self._inside(applied, key), above + own) for key, it in inner]
            total += own
            held += (above + own) * (1 + size // 64)
            if total > most:
                raise TooMuch(f"applies its parts to it more than {most:,} times")
        return Count(total, held)

    @cached_property
    def is_light(self) -> bool:
        """Whether it applies few parts to each value, regardless of the values around it."""
        states = [self._first]
        known = {id(self._first)}
        for applied in states:
            if 2 * (applied.own + applied.each) > MOST_EACH or applied.textual > 2:
                return False
            other = max((key for key in applied.names if isinstance(key, str)), default="") + "_"
            for key in (*applied.names, other, LARGEST):
                inner = self._inside(applied, key)
                if id(inner) not in known:
                    known.add(id(inner))
                    states.append(inner)
            if len(states) > _STATES:
                return False
        return True

    def _applied(self, times: Counter[_Part]) -> _Applied:
        """Return the parts that apply to one value, from those that apply to it at first."""
        start = frozenset(times.items())
        if start in self._known:
            return self._known[start]
        looks, each, parts = Counter(times), 0, []
        waiting = sorted((-part.place, id(part.schema)) for part in times)
        while waiting:
            part = self._parts[heappop(waiting)[1]]
            if part in self._lost:
                raise TooMuch(f"has a reference '{self._lost[part]}' that leads to no part of it")
            count = times[part]
            parts.append((part, count))
            each += part.own * (looks[part] - count)
            each += count * (part.schema.get("uniqueItems") is True)
            for other in part.same:
                if other not in times:
                    heappush(waiting, (-other.place, id(other.schema)))
                times[other] += count
                looks[other] += looks[part] * part.looks
        names: set[str | int] = {name for part in times for name in _map(part.schema, "properties")}
        names.update(range(max((len(_list(p.schema, "prefixItems")) for p in times), default=0)))
        own = sum(part.own * count for part, count in parts)
        textual = sum(count for part, count in parts if part.textual)
        self._known[start] = _Applied(parts, own, each, textual, names, {}, {})
        return self._known[start]

    def _narrowed(self, applied: _Applied, value: dict[str, Any]) -> _Applied:
        """Return the parts that apply to a map without those that refuse it."""
        refused = frozenset(part for part, _ in applied.parts if part.refuses(value))
        if not refused:
            return applied
        known = applied.narrowed.get(refused)
        if known is None:
            kept = [(part, count) for part, count in applied.parts if part not in refused]
            known = applied.narrowed[refused] = applied._replace(parts=kept, inside={})
        return known

    def _inside(self, applied: _Applied, key: str | int) -> _Applied:
        """Return the parts that apply to the value of a key, or of an index."""
        kind = key if key in applied.names else type(key)
        if kind not in applied.inside:
            times = Counter[_Part]()
            for part, count in applied.parts:
                for schema in part.inside(key):
                    for other in self._part(schema):
                        times[other] += count
            applied.inside[kind] = self._applied(times)
        return applied.inside[kind]

    def _same(self, part: _Part) -> Iterator[_Part]:
        for word in _SAME:
            schemas = part.schema.get(word)
            if word in _FOR_KEYS:
                schemas = [*_map(part.schema, word).values()]
            for schema in schemas if isinstance(schemas, list) else [schemas]:
                yield from self._part(schema)
        for word in ("$ref", "$dynamicRef"):
            if isinstance(part.schema.get(word), str):
                found = self._referred(part.schema[word], part.root)
                yield from found
                if not found:
                    self._lost[part] = part.schema[word]

    def _part(self, schema: Any) -> list[_Part]:
        return [self._parts[id(schema)]] if isinstance(schema, dict) else []

    def _referred(self, reference: str, root: _Part) -> list[_Part]:
        """Return all parts that a reference may lead to."""
        if reference.startswith(_OF_SCHEMAS):
            return self._part(self._of_schemas)
        place, _, name = reference.partition("#")
        name = unquote(name)
        starts = self._named.get((None, _end(place)), []) if place else [root]
        if not name or name.startswith("/"):
            return [part for start in starts for part in self._at(start.schema, name)]
        found = [part for start in starts for part in self._named.get((start, name), [])]
        return [*dict.fromkeys([*found, *self._named.get((None, f"#{name}"), [])])]

    def _at(self, target: Any, pointer: str) -> list[_Part]:
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                target = target.get(key) if isinstance(target, dict) else None
            if isinstance(target, dict) and isinstance(target.get("$schema"), str):
                return []  # data, which would be of another dialect as a schema
        return self._part(target)


def _end(address: Any) -> str:
    """Return the last part of an address, however the address is written."""
    end = unquote(split("[/?:]", str(address).removesuffix("#"))[-1]).lower()
    return "" if end in {".", ".."} else end


def plain_values_first(value: Any) -> Any:
    """Return a value of which each map has its texts, numbers and the like first."""
    if isinstance(value, list):
        return [plain_values_first(item) for item in value]
    if not isinstance(value, dict):
        return value
    ordered = sorted(value.items(), key=lambda entry: type(entry[1]) not in _PLAIN)
    return {key: plain_values_first(item) for key, item in ordered}


def _is_other(schema: Any, value: Any) -> bool:
    """Return whether a plain value is certainly not of a schema."""
    if not isinstance(schema, dict):
        return schema is False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return True
    return type(schema.get("type")) is str and schema["type"] not in _PLAIN[type(value)]


def _map(schema: Mapping[str, Any], word: str) -> dict[str, Any]:
    value = schema.get(word)
    return value if isinstance(value, dict) else {}


def _list(schema: Mapping[str, Any], word: str) -> list[Any]:
    value = schema.get(word)
    return value if isinstance(value, list) else []
