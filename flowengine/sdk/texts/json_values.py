"""Plain data: its JSON as this project reads and writes it, and equality of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowengine.errors import InputError
from flowengine.sdk.texts.received import RepeatedKey, received_json

SAME_KEYS = "two keys of a map are the same as text"

# JSON as this project reads and writes it: without `NaN`, and with bytes as base64 text.


class RepeatedKeyError(InputError):
    """An object in JSON has a key twice."""


def read_json(received: str | bytes, what: str, field: str) -> Any:
    """Read JSON that a person or a client has written, as `received_json` does.

    An object that has a key twice is refused, since only one of its values could count.

    Args:
        received: JSON.
        what: Its description in messages.
        field: Its name.

    Returns:
        Plain data.

    Raises:
        RepeatedKeyError: An object has a key twice.
        InputError: It is not JSON.
    """
    try:
        return received_json(received, distinct=True)
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not UTF-8: {error}", field=field) from None
    except RepeatedKey as error:
        raise RepeatedKeyError(f"{what} cannot be read: {error}", field=field) from None
    except ValueError as error:
        raise InputError(f"{what} cannot be read as JSON: {error}", field=field) from None


def plain(value: object) -> str:
    """Return a non-JSON value as text: bytes as base64. For `json.dumps(default=plain)`."""
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    return str(value)


# Equality of values of plain data.


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal. `true` is not a number, but `1` equals `1.0`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def in_order(items: list[Any], shown: Callable[[Any], Any] = lambda item: item) -> list[Any]:
    """Return the items of a set in an order that depends on them alone.

    Args:
        items: In any order.
        shown: Returns the sort key of an item.
    """
    try:
        return sorted(items, key=shown)
    except TypeError:
        import json

        return sorted(items, key=lambda one: json.dumps(shown(one), sort_keys=True, default=repr))
