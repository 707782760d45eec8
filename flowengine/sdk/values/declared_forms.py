"""Conversion of values to the forms that a schema declares.

In JSON, `80` and `80.0` are the same number. In Python and in expressions they differ, so a value
declared `integer` is an integer, regardless of its notation. Bytes that are declared as text in
base64 are such a text, as expressions expect.
"""

from __future__ import annotations

import collections.abc
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Union

from flowengine.sdk import python
from flowengine.sdk.errors import ValidationError
from flowengine.sdk.python.plain_hints import DICTS, LISTS, is_written_by_type
from flowengine.sdk.values.plain_values import to_plain

Convert = Callable[[Any], Any]


def declared_form(schema: Any) -> Convert | None:
    """Return a function that converts values to the forms that a schema declares.

    Floats such as 2.0 become integers where it declares these, and bytes become base64 where it
    declares that. Bytes stay where it declares any value, or other texts as well.

    Args:
        schema: A JSON Schema.

    Returns:
        A function from a value that fits the schema to its declared form. None if the schema
        declares neither.
    """
    done: dict[tuple[int, str, int], Any] = {}
    convert = _Conversion(schema, done).of(schema)
    if convert is None:
        return None

    def whole(value: Any) -> Any:
        try:
            return convert(value)
        finally:
            done.clear()

    return whole


def _is_base64(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("contentEncoding") == "base64"


def _types(schema: Any) -> list[str]:
    declared = schema.get("type", ()) if isinstance(schema, Mapping) else ()
    return [declared] if isinstance(declared, str) else list(declared)


def _of_scalar(schema: Mapping[str, Any]) -> Convert | None:
    types, is_text = _types(schema), _is_base64(schema)
    is_whole = "integer" in types and "number" not in types
    if not (is_whole or is_text):
        return None

    def convert(value: Any) -> Any:
        if is_whole and type(value) is float and value.is_integer():
            return int(value)
        if is_text and type(value) is bytes:
            return b2a_base64(value, newline=False).decode()
        return value

    return convert


class _Conversion:
    """The conversion of values by a schema.

    Args:
        root: The whole schema.
        done: Results by definition, which is not applied to them again. Otherwise, the alternatives
            of a recursive definition would each convert all that is inside, at each level.
    """

    def __init__(self, root: Any, done: dict[tuple[int, str, int], Any]) -> None:
        self._done = done
        self._root = root
        self._named: dict[str, Convert | None] = {}
        """The conversions of definitions that references lead to."""

    def of(self, schema: Any) -> Convert | None:
        """Return the conversion by a part of the schema, or None if nothing is converted."""
        if not isinstance(schema, Mapping):
            return None
        if schema is not self._root and "$defs" in schema:
            return _Conversion(schema, self._done).of(schema)
        alternatives = schema.get("anyOf") or schema.get("oneOf")
        if alternatives:
            return self._of_alternatives(alternatives)
        if isinstance(schema.get("$ref"), str):
            return self._of_reference(schema["$ref"])
        return _of_scalar(schema) or self._of_items(schema) or self._of_fields(schema)

    def _of_reference(self, reference: str) -> Convert | None:
        name = reference.removeprefix("#/$defs/")
        definitions = self._root.get("$defs")
        if name == reference or not isinstance(definitions, Mapping) or name not in definitions:
            return None
        if name not in self._named:
            # Inside itself, the definition is not known yet.
            self._named[name] = lambda value: (
                value if (known := self._named[name]) is None else known(value)
            )
            if convert := self.of(definitions[name]):
                self._named[name] = self._once(convert, name)
            else:
                self._named[name] = None
        return self._named[name]

    def _once(self, convert: Convert, name: str) -> Convert:
        def once(value: Any) -> Any:
            if self._done.get((id(self), name, id(value)), self) is value:
                return value
            made = convert(value)
            if isinstance(made, list | dict):
                self._done[id(self), name, id(made)] = made
            return made

        return once

    def _of_alternatives(self, alternatives: list[Any]) -> Convert | None:
        converts = [each for schema in alternatives if (each := self.of(schema))]
        if not converts:
            return None
        types = [name for schema in alternatives for name in _types(schema)]
        texts = [schema for schema in alternatives if "string" in _types(schema)]
        kept = {
            int: "integer" in types,
            float: "number" in types,
            bytes: {} in alternatives or not all(map(_is_base64, texts)),
        }

        def convert(value: Any) -> Any:
            if kept.get(type(value)):
                return value  # its type is declared
            for each in converts:
                value = each(value)
            return value

        return convert

    def _of_items(self, schema: Mapping[str, Any]) -> Convert | None:
        first = [self.of(item) for item in schema.get("prefixItems", ())]
        rest = self.of(schema.get("items"))
        if rest is None and not any(first):
            return None

        def convert(value: Any) -> Any:
            if type(value) is not list:
                return value
            each = [*first, *[rest] * (len(value) - len(first))]
            return [
                convert_item(item) if convert_item else item
                for convert_item, item in zip(each, value, strict=False)
            ]

        return convert

    def _of_fields(self, schema: Mapping[str, Any]) -> Convert | None:
        named = schema.get("properties", {})
        fields = {name: each for name, field in named.items() if (each := self.of(field))}
        others = self.of(schema.get("additionalProperties"))
        if not fields and others is None:
            return None

        def convert(value: Any) -> Any:
            if type(value) is not dict:
                return value
            made = {}
            for name, item in value.items():
                each = fields.get(name) if name in named else others
                made[name] = each(item) if each else item
            return made

        return convert


# Results of functions, as far as their declared type matters before and after a call.

_KEPT = (str, int, float, bytes, bytearray, list, tuple, set, frozenset, collections.abc.Mapping)
_OF_PARTS = (Union, tuple, set, frozenset)
_UNKEPT: tuple[Any, ...] = (type, collections.abc.Callable)
_KEPT_BY = (
    "__dataclass_fields__",
    "model_dump",
    "__pydantic_serializer__",
    "__await__",
    "_is_protocol",
)
"""Attributes of classes whose instances are converted or awaited, or of other classes."""


def writing(hint: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts a result to plain data by its declared type.

    None: it depends on the result alone.

    Args:
        hint: The type.

    Raises:
        ValidationError: No value of the type could be read again.
    """
    if not is_written_by_type(hint):
        return None

    try:
        values = python.typed_values.TypedValues(hint)
    except python.typed_values.UnknownType:
        return None
    except python.carried_values.NoPlainForm as error:
        raise ValidationError(f"the result could not be kept: {error}", retryable=False) from None

    def write(value: Any) -> Any:
        try:
            return values.plain(value, to_plain)
        except (ValidationError, ValueError, TypeError) as error:
            raise ValidationError(f"the result cannot be kept: {error}") from error

    return write


def unkept_class(hint: Any) -> type | None:
    """Return the class that a hint names, if its instances certainly have no plain form.

    Args:
        hint: The type of a result.
    """
    parts = getattr(hint, "__args__", ())
    origin = getattr(hint, "__origin__", None)
    found: type | None = next((cls for cls in _UNKEPT if cls in (hint, origin)), None)
    if found is not None:
        return found
    if isinstance(hint, UnionType) or origin in _OF_PARTS or origin in LISTS or origin in DICTS:
        return next(filter(None, map(unkept_class, parts)), None)
    if not isinstance(hint, type) or origin is not None or _is_kept(hint):
        return None

    try:
        python.typed_values.of_class(hint)
    except python.carried_values.NoPlainForm:
        return hint
    return None


def _is_kept(cls: type) -> bool:
    """Return whether instances of a class, or of a class that derives from it, are kept."""
    return (
        cls.__module__ in {"builtins", "typing", "collections.abc"}
        or issubclass(cls, _KEPT)
        or any(hasattr(cls, name) for name in _KEPT_BY)
        or any(map(_is_kept, type.__subclasses__(cls)))
    )
