"""JSON Schemas in the form that a provider enforces, which contains only some keywords."""

from __future__ import annotations

import re
from json import dumps
from typing import Any, Literal, NamedTuple

from flowengine.sdk.python.schema_forms import references

Schema = dict[str, Any]
_CHOICES = ("allOf", "anyOf", "oneOf", "prefixItems")
_FORMATS = {
    name: name
    for name in (
        *("date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
    )
} | {"iso-date-time": "date-time", "aware-date-time": "date-time", "iso-time": "time"}
"""Formats → those that providers enforce, which may be narrower."""
_DESCRIBED = frozenset(
    {"format", "minLength", "maxLength", "uniqueItems", "contentEncoding", "pattern", "minItems"}
    | {"maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
"""Keywords that the description of the value mentions if the provider does not enforce them."""
_CONTAINING = frozenset({"properties", "$defs", "items", "anyOf", "oneOf"})
_DROPPED = frozenset(
    {"default", "examples", "$comment", "$schema", "deprecated", "ui"}
    | {"required", "additionalProperties"}  # of objects, see `_close`
)
_TYPED = frozenset({"type", "anyOf", "enum", "const"})
_DEEPEST = 100
_MOST_DEFINITIONS = 500
"""Maximum number of definitions among which those that contain themselves are searched."""
_NO_GRAMMAR = re.compile(r"\(\?[=!<P]|\\[bB1-9AZz]")
"""Parts of patterns that no provider translates to a grammar, such as `(?=`."""


class Dialect(NamedTuple):
    """The schemas that a provider enforces."""

    keywords: frozenset[str]
    """Keywords besides those that contain schemas."""
    formats: frozenset[str] = frozenset(_FORMATS.values())
    containing: frozenset[str] = _CONTAINING
    """Keywords that contain schemas."""
    is_complete: bool = False
    """Whether all properties of an object must be required."""
    has_open_objects: bool = False
    """Whether an object can have keys that its schema does not name."""
    recursive: Literal["yes", "optional", "no"] = "no"
    """Whether a class can contain itself. `optional`: only in properties that can be missing."""
    keys: re.Pattern[str] = re.compile(".*", re.DOTALL)
    """Names of properties."""
    accepts_more: bool = False
    """Whether it accepts other schemas, without enforcing them."""


_EVERYWHERE = frozenset({"type", "enum", "title", "description"})
OPENAI = Dialect(
    _EVERYWHERE
    | {"const", "pattern", "minItems", "maxItems", "minimum", "maximum"}
    | {"exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    is_complete=True,
    recursive="yes",
    accepts_more=True,
)
"""OpenAI, and the default."""
ANTHROPIC = Dialect(_EVERYWHERE | {"const", "pattern"}, keys=re.compile(r"[\w.-]{1,64}", re.ASCII))
GEMINI = Dialect(
    _EVERYWHERE | {"minItems", "maxItems", "minimum", "maximum"},
    frozenset({"date", "date-time", "time"}),
    _CONTAINING | {"prefixItems"},
    has_open_objects=True,
    recursive="optional",
)


def dialect_of(provider: str, model: str) -> Dialect:
    """Return the schemas that the provider of a model enforces.

    Args:
        provider: Name of the provider.
        model: Name of the model. Several providers offer Claude and Gemini.
    """
    if provider == "anthropic" or "claude" in model:
        return ANTHROPIC
    return GEMINI if provider == "gemini" or "gemini" in model else OPENAI


class NotStrict(Exception):
    """A provider cannot enforce the schema."""


def strict_form(schema: Schema, dialect: Dialect) -> Schema:
    """Return a schema in the form that a provider enforces.

    Args:
        schema: The whole schema.
        dialect: The schemas that the provider enforces.

    Raises:
        NotStrict: It has none.
    """
    return _Strict(schema, dialect).whole()


class _Strict:
    """Converts a schema to the form that providers enforce.

    Values that it accepts fit the original, except for keywords that its descriptions mention.

    Args:
        root: The whole schema.
        dialect: The schemas that the provider enforces.
    """

    def __init__(self, root: Schema, dialect: Dialect) -> None:
        self._root = root
        self._dialect = dialect

    def whole(self) -> Schema:
        """Return the form of the whole schema.

        Raises:
            NotStrict: It has none.
        """
        if self._dialect.recursive != "yes":
            self._check_circles()
        return self.form(self._root)

    def _check_circles(self) -> None:
        """Refuse a class that contains itself, except in properties that can be missing."""
        definitions = self._root.get("$defs", {})
        if len(definitions) > _MOST_DEFINITIONS:
            raise NotStrict

        def reached(schema: Schema) -> set[str]:
            names, pending = set[str](), references(schema)
            while pending:
                name = pending.pop()
                if name not in names:
                    names.add(name)
                    pending += references(definitions.get(name, {}))
            return names

        for name, schema in definitions.items():
            properties, held = schema.get("properties", {}), schema
            if self._dialect.recursive == "optional":
                needed = {key: properties[key] for key in schema.get("required", ())}
                held = {**schema, "properties": needed}
            if name in reached(held):
                raise NotStrict

    def form(self, schema: Any, depth: int = _DEEPEST) -> Schema:
        """Return the form of a part.

        Raises:
            NotStrict: It has none.
        """
        if not isinstance(schema, dict) or not depth or {"anyOf", "oneOf"} <= schema.keys():
            raise NotStrict
        if "$ref" in schema:
            return self._reference(schema)
        if "const" in schema and "const" not in self._dialect.keywords:
            schema = {**schema, "enum": [schema["const"]]}
            del schema["const"]
        form: Schema = {}
        notes = []
        for key, part in schema.items():
            if self._enforces(key, part):
                form[key] = _FORMATS[part] if key == "format" else part
            elif key in _DESCRIBED:
                notes.append(f"{key}: {dumps(part)}")
            elif key in self._dialect.containing:
                form["anyOf" if key == "oneOf" else key] = self._contained(key, part, depth - 1)
            elif not _is_dropped(key, part):
                raise NotStrict
        if notes:
            form["description"] = ". ".join(filter(None, [form.get("description"), *notes]))
        types = form.get("type", ())
        if "object" in types or "properties" in form:
            self._close(schema, form)
        is_open = "array" in types and form.keys().isdisjoint(("items", "prefixItems"))
        if is_open or _TYPED.isdisjoint(form):
            raise NotStrict
        return form

    def _enforces(self, key: str, part: Any) -> bool:
        if key == "format":
            return _FORMATS.get(part) in self._dialect.formats
        return key in self._dialect.keywords and not (
            key == "pattern" and _NO_GRAMMAR.search(str(part))
        )

    def _contained(self, key: str, part: Any, depth: int) -> Any:
        """Return the form of the schemas in a keyword."""
        if key == "items":
            return self.form(part, depth)
        if key in _CHOICES:
            return [self.form(value, depth) for value in part]
        return {name: self.form(value, depth) for name, value in part.items()}

    def _reference(self, schema: Schema) -> Schema:
        """Return a reference alone: providers accept no other keyword beside it."""
        for key, part in schema.items():
            if key not in {"$ref", "title", "description"} and not _is_dropped(key, part):
                raise NotStrict
        if self._dialect.recursive != "yes" and not schema["$ref"].startswith("#/$defs/"):
            raise NotStrict
        return {"$ref": schema["$ref"]}

    def _close(self, schema: Schema, form: Schema) -> None:
        """Close an object, in which all keys are then required if the provider wants it."""
        properties, required = schema.get("properties", {}), schema.get("required", ())
        if not all(map(self._dialect.keys.fullmatch, properties)):
            raise NotStrict
        more = schema.get("additionalProperties")
        if more not in (None, False) or (more is None and "properties" not in form):
            if not self._dialect.has_open_objects:
                raise NotStrict  # keys that are not known
            form["additionalProperties"] = self.form(more) if isinstance(more, dict) else True
        else:
            form["additionalProperties"] = False
        if self._dialect.is_complete:
            for name, part in properties.items():
                if name not in required and not self._takes_null(part):
                    raise NotStrict
            required = properties
        form["required"] = [*required]

    def _takes_null(self, schema: Any, depth: int = _DEEPEST) -> bool:
        """Return whether null stands for a missing value."""
        if not isinstance(schema, dict) or not depth:
            return False
        if "enum" in schema or "const" in schema:
            return None in schema.get("enum", [schema.get("const", ...)])
        types = schema.get("type", ())
        if types == "null" or (isinstance(types, list) and "null" in types):
            return True
        forms = [form for key in ("anyOf", "oneOf") for form in schema.get(key, ())]
        return any(self._takes_null(form, depth - 1) for form in forms)


def _is_dropped(key: str, part: Any) -> bool:
    """Return whether a provider does not need a keyword.

    A pattern of keys without a schema only allows further keys.
    """
    if key == "patternProperties":
        return not any(part.values())
    return key in _DROPPED or (key, part) == ("unevaluatedProperties", False)
