"""Obvious properties of a function's parameters, determined without loading anything."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Collection, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, Unpack, get_args, get_origin

INJECTED = ("context_variables", "runtime_resources")
"""Parameters that the engine fills by name. Callers and models do not supply them."""
Convert = Callable[[Any], Any]
_NAMES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (str, int, float, bool, object, list, dict)},
    "None": None,
    "Any": Any,
    "Mapping": dict,
    "Sequence": list,
}
_PLAIN = (str, int, bool, None, NoneType, Any, object, list, dict)
LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Iterable,
    collections.abc.Collection,
)
DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_QUALIFIERS = frozenset({"typing.Required", "typing.NotRequired", "typing.ReadOnly"})
_MARKS = str.maketrans("[],|", "    ")


class NotObvious(Exception):
    """A hint does not stand for plain data."""


def obvious_conversions(hints: Mapping[str, Any], skip: Collection[str]) -> dict[str, Convert]:
    """Return the conversions of the parameters of a function that takes plain data.

    In JSON, `5` is a number like `5.0`. A parameter that is a float receives a float.

    Args:
        hints: The annotations of the function as written, including texts.
        skip: Parameters that do not matter.

    Returns:
        Parameter → its conversion, for those that hold floats.

    Raises:
        NotObvious: A parameter takes other data, as far as is obvious.
    """
    each = {
        name: obvious_conversion(_meant(hint))
        for name, hint in hints.items()
        if name != "return" and name not in skip
    }
    return {name: convert for name, convert in each.items() if convert is not None}


def obvious_conversion(hint: Any, around: tuple[Any, ...] = ()) -> Convert | None:
    """Return the conversion of a value to a type of plain data, or None if it is unchanged.

    Args:
        hint: The type.
        around: The TypedDicts that it is part of.

    Raises:
        NotObvious: The type is another one.
    """
    if hint is float:
        return _to_float
    if any(hint is known for known in _PLAIN) or hint in LISTS or hint in DICTS:
        return None
    origin: Any = getattr(hint, "__origin__", None)
    parts: tuple[Any, ...] = getattr(hint, "__args__", ())
    if hasattr(hint, "__metadata__") and all(isinstance(note, str) for note in hint.__metadata__):
        return obvious_conversion(origin, around)
    if str(origin) in _QUALIFIERS:
        return obvious_conversion(parts[0], around)
    if hasattr(hint, "__required_keys__") and hint not in around:
        return _of_fields(hint, (*around, hint))
    if isinstance(hint, UnionType) or origin is Union:
        return _of_union(parts, around)
    if origin is Literal and all(
        isinstance(value, NoneType) or type(value) in {str, int, bool} for value in parts
    ):
        return None
    if origin in LISTS and len(parts) == 1:
        return _of_items(obvious_conversion(parts[0], around))
    if origin in DICTS and len(parts) == 2 and parts[0] in (str, Any):
        return _of_values(obvious_conversion(parts[1], around))
    raise NotObvious


def is_written_by_type(hint: Any, around: tuple[Any, ...] = ()) -> bool:
    """Return whether the plain form of a value depends on its declared type, not on it alone.

    This holds for maps whose keys are numbers, and for types that define how they are written.

    Args:
        hint: The type.
        around: The TypedDicts and aliases that it is part of.
    """
    if any(hint is other for other in around) or isinstance(hint, str):
        return False
    parts: tuple[Any, ...] = getattr(hint, "__args__", ())
    notes: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    if not all(isinstance(note, str) for note in notes):
        return True
    origin = getattr(hint, "__origin__", None)
    if getattr(origin or hint, "__module__", "") == "pydantic.types":
        return True  # such as `Json`, whose values have other classes
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return parts[0] not in (str, Any) or is_written_by_type(parts[-1], around)
    inner = [*parts, *([origin] if notes else [])]
    if hasattr(hint, "__value__"):
        inner.append(hint.__value__)
    if hasattr(hint, "__required_keys__"):
        inner += known_hints(hint).values()
    return any(is_written_by_type(part, (*around, hint)) for part in inner)


def tuple_items(hint: Any) -> tuple[list[Any], int | None]:
    """Return the types of the items of a tuple, those of tuples unpacked in it included.

    Args:
        hint: `tuple[…]`.

    Returns:
        The types, and the index of the one that any number of items have. None: the number of
        items is fixed.
    """
    items = get_args(hint)
    if items[-1:] == (...,):
        return [items[0]], 0
    types: list[Any] = []
    repeated = None
    for item in items:
        if not _is_unpacked(item):
            types.append(item)
            continue
        inner = get_args(item)[0] if get_origin(item) is Unpack else item
        parts, index = tuple_items(inner) if get_origin(inner) is tuple else ([Any], 0)
        repeated = repeated if index is None else len(types) + index
        types += parts
    return types, repeated


def unpacks_tuples(hint: Any) -> bool:
    """Return whether a type is a tuple with items of others: `tuple[int, *tuple[str, ...]]`."""
    return get_origin(hint) is tuple and any(map(_is_unpacked, get_args(hint)))


def _is_unpacked(item: Any) -> bool:
    return get_origin(item) is Unpack or getattr(item, "__unpacked__", False) is True


def known_hints(owner: Any) -> dict[str, Any]:
    """Return the type hints of a function or class, none if a name in them is unknown."""
    from typing import get_type_hints

    try:
        return get_type_hints(owner, include_extras=True)
    except Exception:  # the name is not known here
        return {}


def is_field(default: object) -> bool:
    """Return whether a default is the result of pydantic's `Field(...)`."""
    kind = type(default)
    return kind.__name__ == "FieldInfo" and kind.__module__ == "pydantic.fields"


def _meant(hint: Any) -> Any:
    """Return a hint that is a text as a type."""
    if not isinstance(hint, str):
        return hint
    if not all(word in _NAMES for word in hint.translate(_MARKS).split()):
        raise NotObvious
    try:
        return eval(hint, {"__builtins__": {}}, _NAMES)  # these names and `[],|` alone
    except (SyntaxError, TypeError):
        raise NotObvious from None


def _to_float(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _of_union(parts: Collection[Any], around: tuple[Any, ...]) -> Convert | None:
    each = [obvious_conversion(part, around) for part in parts]
    converts = [convert for convert in each if convert is not None]
    if not converts:
        return None

    def convert(value: Any) -> Any:
        if type(value) in parts:
            return value
        for convert_part in converts:
            value = convert_part(value)
        return value

    return convert


def _of_fields(cls: Any, around: tuple[Any, ...]) -> Convert | None:
    hints = known_hints(cls)
    if not hints or hasattr(cls, "__pydantic_config__"):
        raise NotObvious
    each = {name: obvious_conversion(hint, around) for name, hint in hints.items()}
    if not any(each.values()):
        return None

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            return value
        return {
            name: convert_field(field) if (convert_field := each.get(name)) else field
            for name, field in value.items()
        }

    return convert


def _of_items(item: Convert | None) -> Convert | None:
    if item is None:
        return None
    return lambda value: [item(each) for each in value] if type(value) is list else value


def _of_values(item: Convert | None) -> Convert | None:
    if item is None:
        return None
    return lambda value: (
        {key: item(each) for key, each in value.items()} if type(value) is dict else value
    )
