"""Values of Python types and their plain form, through pydantic.

This is the one place where a value of a declared type becomes plain data and plain data becomes a
value again: between steps, as an argument of a tool, as an answer, as an input. A value that
pydantic can serialize and validate arrives unchanged. It differs from pydantic's JSON in these
points:

- Bytes stay bytes in plain data. As text they are base64, which is also how JSON has them.
- Fields have the names by which they are validated, so the same names lead out and in.
- Computed fields are part of the plain form, and are left out when it is read.
- The items of a set are sorted, so equal sets have equal forms.
- A duration may also be in the notation of flow files: `1h30m`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Flag
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import (
    PydanticSerializationError,
    SchemaSerializer,
    SchemaValidator,
)

from flowengine.sdk.errors import ValidationError
from flowengine.sdk.python.carried_values import (
    FUNCTIONS,
    Carried,
    Node,
    NoPlainForm,
    carrying,
    computed_names,
    each_node,
    is_strict,
    put_in,
    with_one_form,
)
from flowengine.sdk.python.plain_hints import known_hints
from flowengine.sdk.python.schema_forms import SCALARS


def _typed_dicts(hint: Any, seen: list[Any]) -> Iterator[Any]:
    """Yield the TypedDicts that a type names, alone or in dataclasses."""
    parts = list(get_args(hint))
    if isinstance(hint, type) and hint not in seen:
        seen.append(hint)
        if is_typeddict(hint) or hasattr(hint, "__dataclass_fields__"):
            parts += known_hints(hint).values()
        if is_typeddict(hint):
            yield hint
    for part in parts:
        yield from _typed_dicts(part, seen)


def _explain(classes: Iterable[Any]) -> None:
    """Make TypedDicts known to pydantic.

    Pydantic needs the bases of a class, which those of `typing` do not keep before Python 3.12. It
    is given an equal class of `typing_extensions` instead.
    """
    from typing_extensions import TypedDict

    same: dict[Any, Any] = {}
    for cls in list(classes):
        same[cls] = twin = TypedDict(cls.__name__, {})  # type: ignore[operator]
        for name in ("__module__", "__qualname__", "__doc__", "__pydantic_config__"):
            if hasattr(cls, name):
                setattr(twin, name, getattr(cls, name))
        twin.__required_keys__, twin.__optional_keys__ = (
            cls.__required_keys__,
            cls.__optional_keys__,
        )
        if type(cls).__module__ == "typing":
            schema = classmethod(lambda _, source, handler, twin=twin: handler(twin))
            cls.__get_pydantic_core_schema__ = schema
    for cls, twin in same.items():
        hints = known_hints(cls).items()
        twin.__annotations__ = {name: _exchanged(hint, same) for name, hint in hints}


def _exchanged(hint: Any, same: Mapping[Any, Any]) -> Any:
    """Return a type with classes in it exchanged."""
    parts = get_args(hint)
    if not parts or get_origin(hint) is Literal:
        return same.get(hint, hint) if isinstance(hint, Hashable) else hint
    changed = tuple(_exchanged(part, same) for part in parts)
    if origin := same.get(get_origin(hint)):
        return origin[changed]
    if changed == parts:
        return hint
    if isinstance(hint, UnionType):
        return Union[changed]  # noqa: UP007 - of any number
    return hint.copy_with(changed) if hasattr(hint, "copy_with") else get_origin(hint)[changed]


class UnknownType(NoPlainForm):
    """Pydantic does not know the type."""


class TypedValues:
    """The values of a type.

    Args:
        hint: The type, with all names in it resolved.

    Raises:
        NoPlainForm: Pydantic does not know it, or cannot read its own output.
    """

    def __init__(self, hint: Any) -> None:
        try:
            self._core = each_node(_core_schema(hint), with_one_form)
            self._is_strict = is_strict(self._core)
            changed = each_node(self._core, carrying)
            self._validator = _built(SchemaValidator, changed)
            self._serializer = _built(SchemaSerializer, changed)
        except PydanticUserError as error:
            raise UnknownType(_reason(error)) from None

    def json_schema(self, *, result: bool = False) -> Node:
        """Return the JSON Schema of the type.

        Args:
            result: Whether of values that the program makes, which have computed fields.

        Raises:
            UnknownType: A part of the type has no JSON form.
        """
        mode: Any = "serialization" if result else "validation"
        schemas = _JsonSchemas(by_alias=True)
        schemas.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}
        try:
            return schemas.generate(self._core, mode)
        except PydanticUserError as error:
            raise UnknownType(_reason(error)) from None

    def read(self, value: Any) -> Any:
        """Return a value from its plain form.

        Args:
            value: Plain data, which can contain values of the type itself.

        Raises:
            pydantic.ValidationError: It is not of this type.
        """
        default = _base64 if self._is_strict else _refuse
        try:
            text = json.dumps(value, default=default)
        except (TypeError, ValueError):  # bytes, or values of the program
            return self._validator.validate_python(value)
        return self._validator.validate_json(text)

    def plain(self, value: Any, to_plain: Callable[[Any], Any]) -> Any:
        """Return a value of the type in its plain form.

        Args:
            value: The value. One of another type is converted by its own.
            to_plain: Converts parts that are declared as any value.

        Raises:
            pydantic_core.PydanticSerializationError: A part of it has no plain form.
            ValidationError, ValueError: Likewise.
        """
        carried = Carried([], to_plain)
        try:
            made = self._serializer.to_python(
                value, mode="json", by_alias=True, warnings=False, context=carried
            )
        except PydanticSerializationError as error:
            refused = [error.__cause__, *carried.parts[-1:]]
            for reason in refused:
                if isinstance(reason, ValidationError):
                    raise reason from None
            raise
        return put_in(made, carried.parts) if carried.parts else made


@lru_cache(maxsize=1024)
def of_class(cls: type) -> TypedValues:
    """Return the values of a class, prepared once.

    Raises:
        NoPlainForm: Pydantic does not know it, or cannot read its own output.
    """
    return TypedValues(cls)


def _refuse(value: Any) -> Any:
    raise TypeError


def _base64(value: Any) -> str:
    if not isinstance(value, bytes):
        raise TypeError
    return b64encode(value).decode()


def _reason(error: PydanticUserError) -> str:
    """Return the first sentence, without the advice about a class of another library."""
    return error.message.splitlines()[0].partition(". Set `arbitrary_types_allowed")[0]


def _built(cls: Any, schema: Node) -> Any:
    try:
        # Without those that pydantic has prepared for classes, which know nothing of the changes.
        return cls(schema, None, _use_prebuilt=False)
    except TypeError:
        return cls(schema, None)  # before pydantic 2.12


class _JsonSchemas(GenerateJsonSchema):
    """JSON Schemas of pydantic for values in this form."""

    def encode_default(self, dft: Any) -> Any:
        """Return the JSON form of a default."""
        return b64encode(dft).decode() if isinstance(dft, bytes) else super().encode_default(dft)

    def enum_schema(self, schema: Any) -> Node:
        """Return the schema of an enumeration, whose flags can be combined."""
        if issubclass(schema["cls"], Flag):
            return {"type": "integer"}
        return super().enum_schema(schema)

    def dict_schema(self, schema: Any) -> Node:
        """Return the schema of a map, whose keys are texts: other members have no such names."""
        made, keys = super().dict_schema(schema), schema.get("keys_schema", {})
        values = [getattr(each, "value", None) for each in keys.get("members", (None,))]
        if keys.get("type") not in {"str", "literal"} and not all(type(v) is str for v in values):
            made.pop("propertyNames", None)
        return made

    def dataclass_args_schema(self, schema: Any) -> Node:
        """Return the schema of the fields of a dataclass. Values of `InitVar` are not kept."""
        if self._mode == "serialization":
            kept = [each for each in schema["fields"] if not each.get("init_only")]
            schema = {**schema, "fields": kept}
        return super().dataclass_args_schema(schema)

    def ser_schema(self, schema: Any) -> Node | None:
        """Return the output schema of a function of the program. It can be any schema."""
        if schema["type"] in FUNCTIONS and "return_schema" not in schema:
            return {}
        return super().ser_schema(schema)

    def bytes_schema(self, schema: Any) -> Node:
        """Return the schema of bytes. Their limits are not those of the text."""
        return dict(SCALARS["bytes"])

    def datetime_schema(self, schema: Any) -> Node:
        """Return the schema of a time, whose offset is optional unless the type requires it."""
        offset = {"aware": "aware-date-time", "naive": "naive-date-time"}
        return {
            "type": "string",
            "format": offset.get(schema.get("tz_constraint"), "iso-date-time"),
        }

    def json_schema(self, schema: Any) -> Node:
        """Return the schema of a text with JSON, which stays a text when it is written."""
        mode, self._mode = self._mode, "validation"
        try:
            return super().json_schema(schema)
        finally:
            self._mode = mode

    def timedelta_schema(self, schema: Any) -> Node:
        """Return the schema of a duration, which is always a text."""
        return {"type": "string", "format": "duration"}

    def model_schema(self, schema: Any) -> Node:
        """Return the schema of a model, which may be given its computed fields."""
        made = super().model_schema(schema)
        if (names := computed_names(schema)) and self.mode == "validation":
            made["patternProperties"] = {f"^({'|'.join(map(re.escape, names))})$": {}}
        return made


def _core_schema(hint: Any) -> Node:
    try:
        adapter = TypeAdapter(hint)
    except ImportError as error:  # of a package that the type needs
        raise NoPlainForm(str(error)) from None
    except PydanticUserError as error:
        has_fields = any(hasattr(each, "__dataclass_fields__") for each in (hint, *get_args(hint)))
        if error.code == "schema-for-unknown-type" and has_fields:
            return _with_other_classes(hint)
        if error.code != "typed-dict-version":
            raise
        _explain(_typed_dicts(hint, []))
        adapter = TypeAdapter(hint)
    return dict(adapter.core_schema)


def _with_other_classes(hint: Any) -> Node:
    """Return the schema of a type whose dataclasses have fields of classes of the program."""
    settings = ConfigDict(arbitrary_types_allowed=True)
    # Pydantic takes settings for what contains a dataclass, but not for the dataclass itself.
    schema: Any = TypeAdapter(list[hint], config=settings).core_schema
    if schema["type"] == "definitions":
        return {**schema, "schema": schema["schema"]["items_schema"]}
    return dict(schema["items_schema"])
