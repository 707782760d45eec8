"""JSON Schemas of the types of a running program.

Data types are read here, in the forms of `schema_forms`. Types with their own validation - pydantic
models, constraints, dates - supply their schema through pydantic.
"""

from __future__ import annotations

import collections.abc
import enum
import inspect
import json
import typing
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from flowengine.errors import UsageError
from flowengine.sdk import python
from flowengine.sdk.python.schema_forms import (
    DICTS,
    LISTS,
    SCALARS,
    ClassSchemas,
    Schema,
    Unread,
    array,
    choices,
    each_part,
    is_plain,
    mapping,
    needed,
    union,
)

ANYTHING = (Any, object, inspect.Parameter.empty)
_SCALARS: dict[Any, Schema] = {
    **{kind: SCALARS[kind.__name__] for kind in (str, int, float, bool, bytes)},
    NoneType: SCALARS["None"],
    None: SCALARS["None"],
}
_TRANSPARENT = {typing.Required, typing.NotRequired, typing.Final, collections.abc.Awaitable}
_LENIENT = {"time": "iso-time", "uri": "url"}
"""Formats of pydantic → its accepted formats: the offset is optional, and so is the encoding of
letters that a URI cannot have."""
_MEMBERS = frozenset({str, int, float, bool})
"""Types of the members of enumerations that are read here."""
_NO_FORMATS = frozenset({"binary", "path", "file-path", "directory-path", "regex"})
"""Formats of pydantic that describe a conversion of text, a file that must exist on this machine,
or patterns in another notation than Python's."""


def schema_of(type: Any) -> Schema:
    """Return the JSON Schema of a type.

    Args:
        type: A Python type, or a JSON Schema as a dict, which is returned unchanged.

    Returns:
        The schema, empty for `Any`.

    Raises:
        UsageError: The type has no JSON form.
    """
    if isinstance(type, Mapping):
        return dict(type)
    types = LiveTypes()
    return types.records.tidied(types.schema(type))


def annotated(base: Any, *notes: Any) -> Any:
    """Return `Annotated[base, …]`, which type checkers do not know with such a type."""
    made: Any = typing.Annotated
    return made[(base, *notes)]


class LiveTypes:
    """Converts types to JSON Schemas.

    Args:
        result: Whether of values that the program makes, which have computed fields.
        lenient: Whether a type without a JSON form allows anything.
    """

    def __init__(self, *, result: bool = False, lenient: bool = False) -> None:
        self.result = result
        self.lenient = lenient
        self.records = ClassSchemas()
        """The classes that the schemas name. Its `tidied` completes a schema."""

    def schema(self, type: Any) -> Schema:
        """Return the schema of a type.

        Args:
            type: A Python type. Hints are resolved and not texts.

        Returns:
            The schema with references into `records`, empty for `Any`.

        Raises:
            UsageError: The type has no JSON form.
        """
        if type in ANYTHING:
            return {}
        if (type is None or inspect.isclass(type)) and type in _SCALARS:
            return dict(_SCALARS[type])
        if hasattr(type, "__value__"):  # `type X = ...`, which can name itself
            if _is_postponed(type.__value__):
                return self._asked(type)
            return self.records.refer(type, type.__name__, lambda: self.schema(type.__value__))
        if hasattr(type, "__supertype__"):  # `NewType`
            return self.schema(type.__supertype__)
        if get_origin(type) is not None:
            return self._generic(type, get_origin(type), get_args(type))
        if inspect.isclass(type):
            return self._class(type)
        return self._asked(type)

    def _generic(self, type: Any, origin: Any, items: tuple[Any, ...]) -> Schema:
        name = getattr(origin, "__name__", "")
        if hasattr(type, "__metadata__"):
            base, description, rest = get_args(type)[0], None, []
            for note in type.__metadata__:
                text = note if isinstance(note, str) else getattr(note, "documentation", None)
                description = text if isinstance(text, str) else description
                if not isinstance(text, str):
                    rest.append(note)
            schema = self._asked(annotated(base, *rest)) if rest else self.schema(base)
            return schema if description is None else {**schema, "description": description}
        if origin in {Union, UnionType}:
            return union([self.schema(item) for item in items])
        if origin is Literal:
            values = [plain_default(value) for value in items]
            return choices(values) if all(map(is_plain, values)) else self._asked(type)
        if origin in _TRANSPARENT or name in {"ReadOnly", "Required", "NotRequired"}:
            return self.schema(items[0])
        if name in LISTS:
            return array(self.schema(items[0]))
        if name in DICTS:
            # not hashed: a note in it need not be hashable
            is_plain_map = items[0] in (str, Any)
            return mapping(self.schema(items[-1])) if is_plain_map else self._asked(type)
        return self._asked(type)

    def _class(self, cls: Any) -> Schema:
        if issubclass(cls, Unread):
            return {}
        if cls in {list, tuple} or cls in {collections.abc.Sequence, collections.abc.Iterable}:
            return array({})
        if cls in {dict, collections.abc.Mapping}:
            return mapping({})
        return self._asked(cls)

    def _asked(self, type: Any) -> Schema:
        """Return pydantic's schema of a type."""
        from pydantic_core import SchemaError

        try:
            schema = python.typed_values.TypedValues(type).json_schema(result=self.result)
        except Exception as error:
            if self.lenient:
                return {}
            if not isinstance(error, (python.carried_values.NoPlainForm, ValueError, SchemaError)):
                raise
            is_class = inspect.isclass(type)
            named = f"{type.__module__}.{type.__qualname__}" if is_class else repr(type)
            raise UsageError(
                f"{named} has no JSON Schema: {error}",
                hint="give a type of data, or a JSON Schema as a dict",
            ) from None
        definitions = schema.pop("$defs", {})
        root = schema.get("$ref", "").removeprefix("#/$defs/") if len(schema) == 1 else None
        if not definitions and inspect.isclass(type) and "properties" in schema:
            definitions, root = {type.__name__: schema}, type.__name__
        if root in definitions:
            schema = {"$ref": f"#/$defs/{root}"}
        return self._adopted(schema, definitions)

    def _adopted(self, schema: Schema, definitions: Schema) -> Schema:
        """Convert a schema of pydantic to the forms used here."""

        def definition(name: str) -> Schema:
            key = json.dumps([name, needed(definitions[name], definitions), definitions[name]])
            return self.records.refer(
                key,
                name.rpartition("__")[2],
                lambda: self._adopted(definitions[name], definitions),
            )

        adopted = each_part(schema, lambda part: self._adopted(part, definitions))
        reference = adopted.pop("$ref", None)
        if reference is not None:
            adopted = {**definition(reference.removeprefix("#/$defs/")), **adopted}
        adopted.pop("title", None)
        adopted.pop("discriminator", None)  # a keyword of OpenAPI, whose references are not schemas
        if "const" in adopted:
            adopted["enum"] = [adopted.pop("const")]
        if adopted.get("format") in _NO_FORMATS:
            binary = adopted.pop("format") == "binary"
            adopted |= SCALARS["bytes"] if binary else {}
        if adopted.get("format") in _LENIENT:
            adopted["format"] = _LENIENT[adopted["format"]]
        for key in ("items", "additionalProperties"):
            if key in adopted and adopted[key] in ({}, True) and "properties" not in adopted:
                del adopted[key]
        if "anyOf" in adopted:
            adopted = {**union(adopted.pop("anyOf")), **adopted}
        if len(adopted.get("allOf", ())) == 1:
            [only] = adopted.pop("allOf")
            adopted = {**only, **adopted}
        first: Schema = {key: adopted[key] for key in ("description", "type") if key in adopted}
        return {**first, **adopted}


def _is_postponed(type: Any) -> bool:
    """Return whether names in a type are texts."""
    return isinstance(type, str | typing.ForwardRef) or any(map(_is_postponed, get_args(type)))


def plain_default(value: Any) -> Any:
    """Return a default in its JSON form, or unchanged if it has none."""
    return value.value if isinstance(value, enum.Enum) else value
