"""JSON Schemas of the types of a running program.

Data types are read here, in the forms of `schema_forms`. Types with their own validation - pydantic
models, constraints, dates - supply their schema through pydantic.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import json
import typing
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from flowengine.errors import UsageError
from flowengine.sdk import python
from flowengine.sdk.python.plain_hints import is_field, known_hints, tuple_items
from flowengine.sdk.python.schema_forms import (
    DICTS,
    LISTS,
    SCALARS,
    SETS,
    ClassSchemas,
    Schema,
    Unread,
    array,
    choices,
    each_part,
    is_plain,
    mapping,
    record,
    references,
    tuple_of,
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
        name = "AbstractSet" if origin is collections.abc.Set else name
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
        if name in SETS:
            return array(self.schema(items[0]), unique=True)
        if name in DICTS:
            made = mapping(self.schema(items[-1]))
            if items[0] not in (str, Any):  # not hashed: a note in it need not be hashable
                self._asked(type)  # whether such keys can be text
                names = _member_names(items[0])
                made |= {"propertyNames": {"enum": names}} if names else {}
            return made
        if origin is tuple:
            types, repeated = tuple_items(type)
            return tuple_of([self.schema(each) for each in types], repeated)
        return self._asked(type)

    def _class(self, cls: Any) -> Schema:
        if issubclass(cls, Unread):
            return {}
        if cls in {list, tuple} or cls in {collections.abc.Sequence, collections.abc.Iterable}:
            return array({})
        if cls in {set, frozenset}:
            return array({}, unique=True)
        if cls in {dict, collections.abc.Mapping}:
            return mapping({})
        if issubclass(cls, enum.Enum) and all(type(each.value) in _MEMBERS for each in cls):
            return self.records.refer(cls, cls.__name__, lambda: _members(cls))
        if _names_fields(cls) or _has_init_only(cls):
            return self._asked(cls)
        if is_typeddict(cls):
            return self.records.refer(cls, cls.__name__, lambda: self._typed_dict(cls))
        if hasattr(cls, "__dataclass_fields__") and not hasattr(cls, "__pydantic_core_schema__"):
            return self.records.refer(cls, cls.__name__, lambda: self._dataclass(cls))
        return self._asked(cls)

    def _typed_dict(self, cls: Any) -> Schema:
        hints = get_type_hints(cls, include_extras=True)
        properties = {name: self.schema(hint) for name, hint in hints.items()}
        required = [name for name in hints if _is_required(cls, name)]
        return record(properties, required, description=_docstring(cls))

    def _dataclass(self, cls: Any) -> Schema:
        hints = get_type_hints(cls, include_extras=True)
        properties: Schema = {}
        required = []
        for field in dataclasses.fields(cls):
            if not field.init or field.name.startswith("_"):
                continue
            schema = self.schema(hints[field.name])
            if field.default is not dataclasses.MISSING:
                default = plain_default(field.default)
                schema = {**schema, "default": default} if is_plain(default) else schema
            elif field.default_factory is dataclasses.MISSING:
                required.append(field.name)
            properties[field.name] = schema
        return record(properties, required, description=_docstring(cls))

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
        return adopted


def _names_fields(cls: Any) -> bool:
    """Return whether a TypedDict or dataclass gives its fields other names, by `Field(...)`."""
    if not is_typeddict(cls) and not hasattr(cls, "__dataclass_fields__"):
        return False
    notes = [
        note for hint in known_hints(cls).values() for note in getattr(hint, "__metadata__", ())
    ]
    given = [vars(cls).get(name) for name in getattr(cls, "__dataclass_fields__", ())]
    return any(map(is_field, given)) or any(getattr(note, "alias", None) for note in notes)


def _has_init_only(cls: Any) -> bool:
    """Return whether a dataclass is made from values that it does not keep, of `InitVar`."""
    known: Any = getattr(cls, "__dataclass_fields__", {})
    return any("InitVar" in str(each.type) for each in known.values())


def _is_postponed(type: Any) -> bool:
    """Return whether names in a type are texts."""
    return isinstance(type, str | typing.ForwardRef) or any(map(_is_postponed, get_args(type)))


def computed_fields(types: Iterable[Any]) -> set[str] | None:
    """Return the names of the computed fields of models in types, or None if they are not known."""
    from pydantic import TypeAdapter

    names = set[str]()
    for type in types:
        try:
            adapter = TypeAdapter(type)
            written, read = (adapter.json_schema(mode=m) for m in ("serialization", "validation"))
        except Exception:  # such as a class of the program in another hint
            return None
        names |= _names_in(written) - _names_in(read)
    return names


def _names_in(schema: Schema) -> set[str]:
    names = set(schema.get("properties", ()))

    def add_names(part: Schema) -> Schema:
        names.update(_names_in(part))
        return part

    each_part(schema, add_names)
    return names


def plain_default(value: Any) -> Any:
    """Return a default in its JSON form, or unchanged if it has none."""
    return value.value if isinstance(value, enum.Enum) else value


def _member_names(keys: Any) -> list[Any]:
    """Return the texts that keys can be, or an empty list if they can be any or are not texts."""
    members = get_args(keys) if get_origin(keys) is Literal else ()
    if inspect.isclass(keys) and issubclass(keys, enum.Enum):
        members = tuple(keys)
    names = [plain_default(each) for each in members]
    return names if all(type(name) is str for name in names) else []


def _members(cls: type[enum.Enum]) -> Schema:
    if issubclass(cls, enum.Flag):
        return {"type": "integer"}
    values = [member.value for member in cls]
    schema = choices(values)
    description = _docstring(cls)
    return {"description": description, **schema} if description else schema


def _is_required(cls: Any, name: str) -> bool:
    """Return whether a key is required, which Python does not know for postponed annotations."""
    hint = cls.__annotations__[name]
    text = str(getattr(hint, "__forward_arg__", hint)).partition("[")[0].rpartition(".")[2]
    return text == "Required" or (text != "NotRequired" and name in cls.__required_keys__)


def _docstring(cls: Any) -> str | None:
    text = cls.__dict__.get("__doc__")
    generated = str(text).startswith(f"{cls.__name__}(")  # by `dataclass`
    if not text or generated or text == "An enumeration.":
        return None
    return inspect.cleandoc(text)


def needed(schema: Schema, definitions: Schema) -> Schema:
    """Return the definitions that a schema refers to, directly or indirectly."""
    merged: Schema = {}
    pending = references(schema)
    while pending:
        name = pending.pop()
        if name not in merged:
            merged[name] = definitions[name]
            pending += references(definitions[name])
    return merged
