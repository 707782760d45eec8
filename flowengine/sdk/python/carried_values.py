"""Reading and writing of what JSON has no form for, by pydantic.

Pydantic writes JSON, in which bytes are text. Here a mark stands for them, and for values of any
type, until the value is complete.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, Flag
from secrets import token_hex
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationUnexpectedValue, to_json, to_jsonable_python
from pydantic_core import core_schema as forms

from flowengine.kernel.notation.times import parse_duration
from flowengine.sdk.errors import ValidationError
from flowengine.sdk.texts.json_values import SAME_KEYS, in_order, plain

Node = dict[str, Any]
_VALUES = frozenset({"default", "metadata", "cls", "expected", "members", "config"})
"""Keys of a core schema that contain no schemas."""
_FORMS = frozenset({"ser_json_timedelta", "ser_json_temporal", "ser_json_bytes", "val_json_bytes"})
"""Settings of models that choose another form of a type."""
FUNCTIONS = frozenset({"function-plain", "function-wrap"})
"""Serializers that are code of the program."""


def each_node(node: Any, change: Callable[[Node, bool], Node], own: bool = False) -> Any:
    """Return a core schema with every schema inside it changed, the inner ones first.

    Args:
        node: The core schema, or a part of it.
        change: Returns the replacement of a schema. Its second argument is whether code of the
            program writes the schema's values, here or around it.
        own: Whether the program does, around it.
    """
    if isinstance(node, list | tuple):
        return type(node)(each_node(part, change, own) for part in node)
    if not isinstance(node, dict):
        return node
    own = own or _is_written_by_program(node)
    made = {
        key: part if key in _VALUES else each_node(part, change, own) for key, part in node.items()
    }
    return change(made, own) if isinstance(node.get("type"), str) else made


def _is_written_by_program(node: Node) -> bool:
    written = node.get("serialization")
    if not isinstance(written, dict) or written.get("type") not in FUNCTIONS:
        return False
    return not written["function"].__module__.startswith("pydantic._internal")  # of a `Sequence`


def with_one_form(node: Node, _own: bool) -> Node:
    """Return a schema whose values are written in the names and forms in which they are read."""
    if "config" in node:
        config = {key: part for key, part in node["config"].items() if key not in _FORMS}
        node = {**node, "config": config}
    match node["type"]:
        case "model-fields" | "typed-dict":
            fields = {name: _renamed(name, field) for name, field in node["fields"].items()}
            return {**node, "fields": fields}
        case "dataclass-args":
            return {**node, "fields": [_renamed(each["name"], each) for each in node["fields"]]}
    return node


def _renamed(name: str, field: Node) -> Node:
    paths = field.get("validation_alias")
    others = {key: part for key, part in field.items() if key != "serialization_alias"}
    if paths is None:
        return others
    if isinstance(paths, str):
        return {**others, "serialization_alias": paths}
    choices = paths if isinstance(paths[0], list) else [paths]
    short = next((path[0] for path in choices if len(path) == 1), None)
    if short is not None:
        return {**others, "serialization_alias": short}
    return {**others, "validation_alias": [*choices, [name]]}


def computed_names(model: Node) -> list[str]:
    """Return the names of a model's computed fields in the plain form."""
    fields = model["schema"]
    while "fields" not in fields and isinstance(fields.get("schema"), dict):
        fields = fields["schema"]
    return [each.get("alias", each["property_name"]) for each in fields.get("computed_fields", ())]


def is_strict(node: Any) -> bool:
    """Return whether a type, or a part of it, accepts values of that type alone."""
    if isinstance(node, list | tuple):
        return any(map(is_strict, node))
    if not isinstance(node, dict):
        return False
    settings = node.get("config") or {}
    return (
        node.get("strict") is True
        or settings.get("strict") is True
        or any(is_strict(part) for key, part in node.items() if key not in _VALUES)
    )


def without_ban(node: Node) -> Node:
    """Return the schema of a model or its fields, in which other fields are ignored."""
    config = (
        {"config": {**node["config"], "extra_fields_behavior": "ignore"}}
        if "config" in node
        else {}
    )
    inner = {} if "fields" in node else {"schema": without_ban(node["schema"])}
    changed = {"extra_behavior": "ignore"} if node["type"] in {"model", "model-fields"} else {}
    return {**node, **config, **inner, **changed}


_MARK = f"\0{token_hex(8)}:"
"""Begins a text that stands for the part of a value that JSON does not have."""
_URL_SAFE = str.maketrans("-_", "+/")
_TEXT = (str, int, float)
_ASTERISKS = "*" * 10
_KEYS = frozenset(
    {"none", "nullable", "list", "set", "frozenset", "tuple", "dict", "model", "dataclass"}
    | {"typed-dict", "named-tuple", "generator", "callable", "json"}
)
"""Types whose values, as keys of a map, could not be read again."""


class Carried(NamedTuple):
    """The values behind marks while a value is written."""

    parts: list[Any]
    to_plain: Callable[[Any], Any]
    """Returns a value of any type as plain data."""


class NoPlainForm(Exception):
    """Values of a type cannot be plain data. The message contains the reason."""


def carrying(node: Node, own: bool) -> Node:
    """Return a schema that also reads and writes what JSON has no form for."""
    node = _with_changed_parts(node)
    ref = {"ref": node["ref"]} if "ref" in node else {}
    inner = {key: part for key, part in node.items() if key != "ref"}
    before = forms.no_info_before_validator_function
    if _is_hidden(node):
        return {**before(_refuse_asterisks, inner), **ref}
    match node["type"]:
        case "bytes" if not own:
            exact = before(_decoded_strictly, inner)
            lax = forms.lax_or_strict_schema(before(_decoded, inner), exact)
            either = exact if node.get("strict") else lax
            return {**either, **ref, **_written(_carried)}
        case "json" if not own:
            function = forms.wrap_serializer_function_ser_schema(_as_json, info_arg=True)
            return {**node, "serialization": function}
        case "any" if not own:
            return {**node, **_written(_carried_plainly)}
        case "set" | "frozenset" if not own:
            function = forms.wrap_serializer_function_ser_schema(_sorted, info_arg=True)
            return {**node, "serialization": function}
        case "timedelta":
            # Its text is no longer JSON behind a function, and no text is a duration otherwise.
            return {**before(_duration, {**inner, "strict": False}), **ref}
        case "enum" | "literal" if members := _unreadable(node):
            return {**before(_member(members), inner), **ref}
        case "function-plain" if _is_pattern(node):
            return {**node, **_written(_carried_plainly)}
        case "model" if names := computed_names(node):
            # A function would make plain data of JSON, in which strict types do not read dates.
            strict = is_strict(node)
            return without_ban(node) if strict else {**before(_without(names), inner), **ref}
    return node


def _with_changed_parts(node: Node) -> Node:
    """Return a schema with other members, keys or fields, which remains one of its kind."""
    match node["type"]:
        case "union" if any(
            isinstance(one, dict) and one["type"] == "str" for one in node["choices"]
        ):
            return {**node, "choices": [_never_text(choice) for choice in node["choices"]]}
        case "tagged-union":
            # Pydantic finds them by members of enumerations alone, which JSON does not have.
            choices = node["choices"]
            values = {tag.value: each for tag, each in choices.items() if isinstance(tag, Enum)}
            return {**node, "choices": {**values, **choices}}
        case "typed-dict":
            return {"extra_behavior": "allow", **node}
        case "dict":
            return _with_keys(node)
    return node


def _is_pattern(node: Node) -> bool:
    """Return whether a schema is that of a regular expression.

    Raises:
        NoPlainForm: It is one of bytes.
    """
    function = node["function"]["function"] if isinstance(node["function"], dict) else None
    name = getattr(function, "__name__", "")
    if not name.startswith("pattern_") or "pydantic" not in function.__module__:
        return False
    if "bytes" in name:
        raise NoPlainForm("a regular expression of bytes has no text form: use one of text")
    return True


def _written(function: Callable[[Any, Any], Any]) -> Node:
    return {"serialization": forms.plain_serializer_function_ser_schema(function, info_arg=True)}


def _decoded(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        # not `bytes`: a text remains one where a type has both
        return bytearray(b64decode(text.translate(_URL_SAFE), validate=True))
    except ValueError:
        raise ValueError("must be base64") from None


def _decoded_strictly(text: Any) -> Any:
    return bytes(_decoded(text)) if isinstance(text, str) else text


def _shown(value: Any) -> str:
    """Return the JSON of the value of a member, by which it is found."""
    return to_json(value, bytes_mode="base64", fallback=repr).decode()


def _never_text(choice: Any) -> Any:
    """Return a member of a union, in which a text is never that of bytes."""
    written = choice.get("serialization", {}) if isinstance(choice, dict) else {}
    if written.get("function") is not _carried:
        return choice
    return {**forms.no_info_before_validator_function(_refuse_text, choice), **_written(_carried)}


def _refuse_text(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("must be bytes")
    return value


def _as_json(value: Any, write: Callable[[Any], Any], info: Any) -> str:
    made = put_in(write(value), info.context.parts)
    return json.dumps(made, ensure_ascii=False, default=plain)


def _carried(value: Any, info: Any) -> Any:
    """Return a mark in the place of bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise PydanticSerializationUnexpectedValue("not bytes")
    return _mark(info.context, bytes(value))


def _carried_plainly(value: Any, info: Any) -> Any:
    """Return a mark in the place of a value of any type."""
    if type(value) in {str, int, float, bool, type(None)}:
        return value
    try:
        return _mark(info.context, info.context.to_plain(value))
    except ValidationError as error:
        info.context.parts.append(error)  # pydantic does not keep it as the cause
        raise


def _mark(carried: Carried, part: Any) -> str:
    carried.parts.append(part)
    return f"{_MARK}{len(carried.parts) - 1}"


def put_in(made: Any, carried: list[Any]) -> Any:
    """Return a written value with what its marks stand for."""
    if isinstance(made, str):
        return carried[int(made.removeprefix(_MARK))] if made.startswith(_MARK) else made
    if isinstance(made, list):
        return [put_in(item, carried) for item in made]
    if isinstance(made, dict):
        return {_key(key, carried): put_in(item, carried) for key, item in made.items()}
    return made


def _key(key: str, carried: list[Any]) -> str:
    made = put_in(key, carried)
    return b64encode(made).decode() if isinstance(made, bytes) else str(made)


def _sorted(value: Any, write: Callable[[Any], Any], info: Any) -> Any:
    return in_order(write(value), lambda item: put_in(item, info.context.parts))


def _duration(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return timedelta(milliseconds=parse_duration(text))
    except ValueError:
        return text  # of another notation


def _unreadable(node: Node) -> list[Any]:
    """Return the members of an enumeration or a literal, if pydantic cannot read each by itself."""
    if node["type"] == "literal":
        members = node["expected"]
        return members if any(isinstance(each, Enum) for each in members) else []
    members = node["members"]
    return [] if all(isinstance(each.value, _TEXT) for each in members) else members


def _member(expected: list[Any]) -> Callable[[Any], Any]:
    members = {_shown(each.value): each for each in expected if isinstance(each, Enum)}

    def convert(value: Any) -> Any:
        return value if value in expected else members.get(_shown(value), value)

    return convert


def _named(expected: list[Any]) -> Callable[[Any], Any]:
    """Return a function that finds the member of a literal that the text of a key stands for."""
    members = {_shown(each): each for each in expected if not isinstance(each, str | Enum)}
    return lambda key: key if key in expected else members.get(key, key)


def _is_hidden(node: Node) -> bool:
    """Return whether pydantic writes the values as asterisks, such as those of `SecretStr`."""
    function = node.get("serialization", {}).get("function")
    return getattr(function, "__module__", "") == "pydantic.types" and "secret" in function.__name__


def _refuse_asterisks(value: Any) -> Any:
    if value in (_ASTERISKS, _ASTERISKS.encode()):
        raise ValueError(
            "is a secret of pydantic, which was stored as asterisks: read it where it is used, "
            "such as from the environment"
        )
    return value


def _without(names: list[str]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: item for name, item in value.items() if name not in names}

    return convert


def _with_keys(node: Node) -> Node:
    """Return the schema of a map, whose keys are read from text."""
    keys = node.get("keys_schema", {})
    _check_keys(keys)
    if "serialization" not in node and keys.get("type", "any") == "any":
        written = forms.wrap_serializer_function_ser_schema(_each_plain_key, info_arg=True)
        return {**node, "serialization": written}
    if "serialization" not in node and keys.get("type") in {"union", "enum", "literal"}:
        node = {**node, "serialization": forms.wrap_serializer_function_ser_schema(_each_key)}
    return {**node, "keys_schema": _read_from_text(keys)} if keys else node


def _read_from_text(keys: Any) -> Any:
    """Return the schema of keys, which finds members of enumerations and literals by their text."""
    if not isinstance(keys, dict):  # a choice with its label
        return keys
    inner = keys["schema"] if keys["type"] == "function-before" else keys
    match inner["type"]:
        case "union":
            return {**keys, "choices": [_read_from_text(each) for each in keys["choices"]]}
        case "literal":
            function = _named(inner["expected"])
        case "enum":
            function = _member_named(inner["cls"])
        case _:
            return keys
    return forms.no_info_before_validator_function(function, keys)


def _member_named(cls: type[Enum]) -> Callable[[Any], Any]:
    """Return a function that finds the member of an enumeration that the text of a key stands for.

    Raises:
        NoPlainForm: Two members have the same text.
    """
    values = [each.value for each in cls]
    members = {next(iter(to_jsonable_python({value: None}))): value for value in values}
    if len(members) < len(values):
        raise NoPlainForm(
            f"a map cannot have keys of the type {cls.__qualname__}: two have the same text"
        )

    def convert(key: Any) -> Any:
        if not isinstance(key, str):
            return key
        if key in members:
            return cls(members[key])
        return cls(int(key)) if issubclass(cls, Flag) and key.isdecimal() else key

    return convert


def _each_key(value: Any, write: Callable[[Any], Any]) -> Any:
    made = write(value)
    if len(made) < len(value):
        raise ValidationError(SAME_KEYS)
    return made


def _each_plain_key(value: Any, write: Callable[[Any], Any], info: Any) -> Any:
    """Write a map whose type declares no keys, as one of no declared type."""
    names = [key for key in value if type(key) is not str]
    if names:
        info.context.to_plain(dict.fromkeys(names))
    return _each_key(value, write)


def _check_keys(keys: Node) -> None:
    """Check that the keys of a map can be read from text.

    Raises:
        NoPlainForm: They cannot.
    """
    if keys.get("type") in _KEYS:
        raise NoPlainForm(
            f"a map cannot have keys of the type {keys['type']}, which have no text form: use "
            "text, numbers, dates, UUIDs or an enumeration"
        )
    for part in [keys.get("schema"), *keys.get("choices", ())]:
        if isinstance(part, dict):
            _check_keys(part)
