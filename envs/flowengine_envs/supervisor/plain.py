"""Plain data as JSON: numbers, text, lists, maps, and bytes.

JSON has no bytes: they are written as `{"$bytes": "base64"}`, and a map that has a key beginning
with `$` as `{"$map": [[key, value], ...]}`, so that nothing can be taken for what it is not.
"""

from __future__ import annotations

import base64
import json
from typing import Any


def encode(value: Any) -> Any:
    """Return a value in a form that JSON can hold.

    Args:
        value: Plain data.

    Returns:
        The same with bytes and unusual maps written out.

    Raises:
        TypeError: It has something that is not plain data.
    """
    if value is None or type(value) in {str, int, float, bool}:
        return value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return _encode_map(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    for base in (str, int, float):  # an enumeration, a text with a class of its own
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"{type(value).__name__} is no plain data")


def _encode_map(value: dict[Any, Any]) -> Any:
    if not all(isinstance(key, str) for key in value):
        raise TypeError("a map with keys that are not text is no plain data")
    if any(key.startswith("$") for key in value):
        return {"$map": [[str(key), encode(item)] for key, item in value.items()]}
    return {str(key): encode(item) for key, item in value.items()}


def decode(value: Any) -> Any:
    """Return what `encode` was given.

    Args:
        value: What JSON gave.

    Returns:
        Plain data.

    Raises:
        ValueError: It was not made by `encode`.
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if "$map" in value:
        return {key: decode(item) for key, item in value["$map"]}
    return {key: decode(item) for key, item in value.items()}


def dumps(value: Any) -> str:
    """Return plain data as JSON text; errors as `encode`."""
    return json.dumps(encode(value), separators=(",", ":"))
