"""Obvious properties of a function's parameters, determined without loading anything."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Collection, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union

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


def obvious_conversion(hint: Any) -> Convert | None:
    """Return the conversion of a value to a type of plain data, or None if it is unchanged.

    Raises:
        NotObvious: The type is another one, or contains floats.
    """
    if hint is float:
        return lambda value: float(value) if type(value) is int else value
    if not _is_plain(hint):
        raise NotObvious
    return None


def _is_plain(hint: Any, around: tuple[Any, ...] = ()) -> bool:
    """Return whether values of a type are plain data, and used unchanged.

    Args:
        hint: The type.
        around: The TypedDicts that it is part of.
    """
    if any(hint is known for known in (*_PLAIN, *around)) or hint in LISTS or hint in DICTS:
        return True
    origin: Any = getattr(hint, "__origin__", None)
    parts: tuple[Any, ...] = getattr(hint, "__args__", ())
    if hasattr(hint, "__metadata__") and all(isinstance(note, str) for note in hint.__metadata__):
        return _is_plain(origin, around)
    if hasattr(hint, "__required_keys__") and not hasattr(hint, "__pydantic_config__"):
        parts = tuple(known_hints(hint).values())
        return bool(parts) and all(_is_plain(part, (*around, hint)) for part in parts)
    if origin is Literal:
        return all(type(value) in {str, int, bool, NoneType} for value in parts)
    if (
        str(origin) in _QUALIFIERS
        or isinstance(hint, UnionType)
        or origin is Union
        or origin in LISTS
        or (origin in DICTS and parts[0] in (str, Any))
    ):
        return all(_is_plain(part, around) for part in parts)
    return False


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
