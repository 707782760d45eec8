"""Reads parts from data in long form, and refuses values of a wrong type or form.

How a field is read follows from its annotation. It is found out when the first part of a model is
read, so that a program does this only for the models that its flow uses.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from flowengine.flow.models.base import FieldInfo, Part, listed
from flowengine.flow.models.types import CheckedType, Or, Refused, shown
from flowengine.flow.source.diagnostics import Fault, Loc
from flowengine.sdk.texts.near_words import did_you_mean

OLD_BOOLEANS = frozenset({"yes", "no", "on", "off"})
"""Booleans of YAML 1.1."""
P = TypeVar("P", bound=Part)


class Reading:
    """One pass over data.

    Args:
        base: The place of the data in its file, which the places of refusals do not contain.
    """

    def __init__(self, base: Loc = ()) -> None:
        self.base = base
        self.refusals: list[Fault] = []

    def part(self, cls: type[P], data: Any, loc: Loc = ()) -> P:
        """Return the part of some data. What is refused is in `refusals`, and has no value.

        Args:
            cls: The model.
            data: A mapping in long form, whose unknown keys were removed.
            loc: Its place in the data.
        """
        part = cls()
        part._loc = (*self.base, *loc)
        if not isinstance(data, dict):
            if cls.SHORT:
                words = [word for one in cls.SHORT for word in one.get("enum", ())]
                hint = did_you_mean(data, words) if isinstance(data, str) else None
                expected = f"{', '.join(words)}, a condition or a mapping"
            else:
                keys, expected = list(cls.fields_by_key()), "a mapping"
                hint = f"its keys are {', '.join(keys)}" if len(keys) <= 10 else None
                hint = "write {} for an empty one" if data is None else hint
            self.refuse(loc, f"expected {expected}, got {shown(data)}", hint)
            return part
        fields, read = cls.fields_by_key(), _readers(cls)
        for key, (name, info) in fields.items():
            if key in data:
                part.__dict__[name] = read[key](self, data[key], (*loc, key))
            elif info.is_required:
                example = info.examples[0]
                is_short = isinstance(example, str | int)
                hint = f"for example '{key}: {example}'" if is_short else f"add {key!r}"
                self.refusals.append(
                    Fault((*loc, key), "E104", f"{cls.NOUN} needs {key!r}", hint, missing=True)
                )
        if cls.OPEN:
            part._more = {key: value for key, value in data.items() if key not in fields}
        return part

    def refuse(self, loc: Loc, message: str, hint: str | None = None) -> None:
        """Refuse a value of a wrong type or form."""
        self.refusals.append(Fault(loc, "E103", message, hint))


Reader = Callable[[Reading, Any, Loc], Any]
"""Returns the stored form of a value at a place, or refuses it."""


@cache
def _readers(cls: type[Part]) -> dict[str, Reader]:
    return {key: _reader(info.annotation, info) for key, (_, info) in cls.fields_by_key().items()}


def _reader(annotation: Any, info: FieldInfo | None = None, instead: Or | None = None) -> Reader:
    """Return what reads values of a type.

    Args:
        annotation: The type.
        info: The field, if it is that of a whole field.
        instead: The description of the other form that a field may have.
    """
    origin, of = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        for marker in annotation.__metadata__:
            if isinstance(marker, CheckedType):
                return _checked(marker.check)
            instead = marker if isinstance(marker, Or) else instead
        return _reader(of[0], info, instead)
    if origin in {Union, types.UnionType}:
        return _either([one for one in of if one is not type(None)], info, instead)
    if origin is Literal:
        return _words(of, instead)
    if origin is list:
        return _list(_reader(of[0]), info)
    if origin is dict:
        return _dict(_reader(of[0]), _reader(of[1]), info)
    if annotation is Any:
        return lambda reading, value, loc: value
    if issubclass(annotation, Part):
        return lambda reading, value, loc: reading.part(annotation, value, loc)
    return _plain(annotation)


def _checked(check: Callable[[Any], Any]) -> Reader:
    def read(reading: Reading, value: Any, loc: Loc) -> Any:
        try:
            return check(value)
        except Refused as error:
            reading.refusals.append(Fault(loc, error.code, error.message, error.hint))
            return None

    return read


def _either(forms: list[Any], info: FieldInfo | None, instead: Or | None) -> Reader:
    """Return what reads one form, or a list."""
    one = next(form for form in forms if len(forms) == 1 or get_origin(form) is not list)
    single = _reader(one, info, instead)
    several = next((_reader(form, info) for form in forms if form is not one), single)
    return lambda reading, value, loc: (several if isinstance(value, list) else single)(
        reading, value, loc
    )


def _words(allowed: tuple[Any, ...], instead: Or | None) -> Reader:
    def read(reading: Reading, value: Any, loc: Loc) -> Any:
        if any(value == word and type(value) is type(word) for word in allowed):
            return value
        words = ", ".join(map(repr, allowed))
        expected = listed(allowed) if instead is None else f"{words} or {instead.form}"
        hint = did_you_mean(value, list(allowed)) if isinstance(value, str) else None
        if instead is not None and isinstance(value, dict):
            hint = instead.hint
        reading.refuse(loc, f"expected {expected}, got {shown(value)}", hint)
        return None

    return read


def _list(read_item: Reader, info: FieldInfo | None) -> Reader:
    def read(reading: Reading, value: Any, loc: Loc) -> Any:
        if not isinstance(value, list):
            hint = "begin each entry with '- '" if isinstance(value, dict) else None
            reading.refuse(loc, f"expected a list, got {shown(value)}", hint)
            return None
        _check_length(reading, value, loc, info)
        return [read_item(reading, item, (*loc, index)) for index, item in enumerate(value)]

    return read


def _dict(read_key: Reader, read_value: Reader, info: FieldInfo | None) -> Reader:
    def read(reading: Reading, value: Any, loc: Loc) -> Any:
        if not isinstance(value, dict):
            reading.refuse(loc, f"expected a mapping, got {shown(value)}")
            return None
        _check_length(reading, value, loc, info)
        read = {}
        for key, entry in value.items():
            known = len(reading.refusals)
            read_key(reading, key, (*loc, key))
            reading.refusals[known:] = [one._replace(key=True) for one in reading.refusals[known:]]
            read[key] = read_value(reading, entry, (*loc, key))
        return read

    return read


def _check_length(
    reading: Reading, value: list[Any] | dict[str, Any], loc: Loc, info: FieldInfo | None
) -> None:
    if info is not None and len(value) < info.min_length:
        reading.refuse(loc, f"expected at least {info.min_length} entry, there is none")
    if info is not None and info.max_length is not None and len(value) > info.max_length:
        reading.refuse(loc, f"expected at most {info.max_length} entries, got {shown(value)}")


def _plain(kind: type) -> Reader:
    expected = {bool: "true or false", str: "text"}[kind]

    def read(reading: Reading, value: Any, loc: Loc) -> Any:
        if isinstance(value, kind):
            return value
        old = kind is bool and isinstance(value, str) and value.lower() in OLD_BOOLEANS
        hint = "only true and false are booleans" if old else None
        reading.refuse(loc, f"expected {expected}, got {shown(value)}", hint)
        return None

    return read
