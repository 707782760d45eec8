"""JSON as this project reads and writes it: without `NaN`, and with bytes as base64 text."""

from __future__ import annotations

from typing import Any

from flowengine.errors import InputError


def read_json(text: str, what: str, field: str) -> Any:
    """Read JSON without `NaN` and infinities.

    Args:
        text: JSON.
        what: Its description in messages.
        field: Its name.

    Returns:
        Plain data.

    Raises:
        InputError: It is not JSON.
    """
    import json

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{what} is not JSON: {error.msg} ({place})", field=field) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON: {error}", field=field) from None


def plain(value: object) -> str:
    """Return a value that JSON lacks as text: bytes as base64. For `json.dumps(default=plain)`."""
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    return str(value)
