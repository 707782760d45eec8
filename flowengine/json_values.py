"""JSON as this project reads and writes it: without `NaN`, and with bytes as base64 text."""

from __future__ import annotations

from typing import Any

from flowengine.errors import InputError


def read_json(received: str | bytes, what: str, field: str) -> Any:
    """Read JSON, as `received_json` does.

    Args:
        received: JSON.
        what: Its description in messages.
        field: Its name.

    Returns:
        Plain data.

    Raises:
        InputError: It is not JSON.
    """
    from flowengine.sdk.received import received_json

    try:
        return received_json(received)
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not UTF-8: {error}", field=field) from None
    except ValueError as error:
        raise InputError(f"{what} cannot be read as JSON: {error}", field=field) from None


def plain(value: object) -> str:
    """Return a value that JSON lacks as text: bytes as base64. For `json.dumps(default=plain)`."""
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    return str(value)
