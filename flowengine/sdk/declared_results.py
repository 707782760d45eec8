"""Results of functions, as far as their declared type matters before and after a call."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable
from types import UnionType
from typing import Any, Union

from flowengine.sdk.errors import ValidationError
from flowengine.sdk.plain_values import to_plain
from flowengine.sdk.python_functions.plain_hints import DICTS, LISTS, is_written_by_type

_KEPT = (str, int, float, bytes, bytearray, list, tuple, set, frozenset, collections.abc.Mapping)
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
    from flowengine.sdk.python_functions.carried_values import NoPlainForm
    from flowengine.sdk.python_functions.typed_values import TypedValues, UnknownType

    try:
        values = TypedValues(hint)
    except UnknownType:
        return None
    except NoPlainForm as error:
        raise ValidationError(f"the result could not be kept: {error}", retryable=False) from None

    def write(value: Any) -> Any:
        try:
            return values.plain(value, to_plain)
        except (ValueError, TypeError) as error:
            raise ValidationError(f"the result cannot be kept: {error}") from error

    return write


def unkept_class(hint: Any) -> type | None:
    """Return the class that a hint names, if its instances certainly have no plain form.

    Args:
        hint: The type of a result.
    """
    parts = getattr(hint, "__args__", ())
    origin = getattr(hint, "__origin__", None)
    if isinstance(hint, UnionType) or origin is Union or origin in LISTS or origin in DICTS:
        return next(filter(None, map(unkept_class, parts)), None)
    if not isinstance(hint, type) or origin is not None or _is_kept(hint):
        return None
    from flowengine.sdk.python_functions.carried_values import NoPlainForm
    from flowengine.sdk.python_functions.typed_values import of_class

    try:
        of_class(hint)
    except NoPlainForm:
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
