"""What is obvious of a function's parameters, told without loading anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

INJECTED = ("context_variables", "runtime_resources")
"""Parameters that the engine fills in by their names: no caller and no model gives them."""
_NAMES = frozenset(
    {"str", "int", "float", "bool", "None", "Any", "object", "list", "dict", "Mapping", "Sequence"}
)
_TYPES = (str, int, float, bool, None, Any, object, list, dict)
_MARKS = str.maketrans("[],|", "    ")


def all_plain(hints: Mapping[str, Any], skip: Collection[str]) -> bool:
    """Return whether every parameter of a function takes plain data, as far as is obvious.

    Args:
        hints: The annotations of the function as they stand there, texts included.
        skip: Parameters that do not matter.
    """
    return all(
        _is_plain(hint) for name, hint in hints.items() if name != "return" and name not in skip
    )


def _is_plain(hint: Any) -> bool:
    if isinstance(hint, str):
        return all(word in _NAMES for word in hint.translate(_MARKS).split())
    if any(hint is known for known in _TYPES):
        return True
    of = getattr(hint, "__args__", ())
    return getattr(hint, "__origin__", None) in {list, dict} and all(map(_is_plain, of))


def is_field(default: object) -> bool:
    """Return whether a default is what pydantic's `Field(...)` returns."""
    kind = type(default)
    return kind.__name__ == "FieldInfo" and kind.__module__ == "pydantic.fields"
