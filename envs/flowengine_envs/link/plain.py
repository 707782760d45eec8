"""Plain data as JSON: numbers, text, lists, maps, and bytes.

JSON cannot represent bytes. They are written as `{"$bytes": "base64"}`, and a map with a key that
starts with `$` as `{"$map": [[key, value], ...]}`, so that the encoding is unambiguous.
"""

from __future__ import annotations

import base64
import json
from typing import Any

DEPTH = 200
"""Maximum nesting of lists and maps. JSON libraries fail on deeper values."""


def encode(value: Any, depth: int = DEPTH) -> Any:
    """Return a value in a form that JSON can represent.

    Args:
        value: Plain data.
        depth: Maximum nesting.

    Returns:
        The value with bytes and special maps encoded.

    Raises:
        TypeError: It contains other data, or is nested too deep.
    """
    if value is None or type(value) in {str, int, float, bool}:
        return value
    if isinstance(value, (list, tuple, dict)) and not depth:
        raise TypeError(f"values nested more than {DEPTH} deep are not plain data")
    if isinstance(value, (list, tuple)):
        return [encode(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return _encode_map(value, depth - 1)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    for base in (str, int, float):  # an enumeration, or an instance of a subclass
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def _encode_map(value: dict[Any, Any], depth: int) -> Any:
    if not all(isinstance(key, str) for key in value):
        raise TypeError("a map with keys that are not text is not plain data")
    if any(key.startswith("$") for key in value):
        return {"$map": [[str(key), encode(item, depth)] for key, item in value.items()]}
    return {str(key): encode(item, depth) for key, item in value.items()}


def decode(value: Any, depth: int = DEPTH) -> Any:
    """Return the value that `encode` received.

    Args:
        value: Parsed JSON.
        depth: Maximum nesting.

    Returns:
        Plain data.

    Raises:
        ValueError: It was not created by `encode`.
    """
    if not isinstance(value, (list, dict)):
        return value
    if not depth:
        raise ValueError(f"a value that is nested more than {DEPTH} deep")
    if isinstance(value, list):
        return [decode(item, depth - 1) for item in value]
    if "$bytes" in value:
        text = value["$bytes"]
        if len(value) > 1 or not isinstance(text, str):
            raise ValueError("bytes that are none")
        return base64.b64decode(text, validate=True)
    if "$map" in value:
        return _decode_map(value, depth - 1)
    if any(key.startswith("$") for key in value):
        raise ValueError("a map with a key that is not written out")
    return {key: decode(item, depth - 1) for key, item in value.items()}


def _decode_map(value: dict[str, Any], depth: int) -> dict[str, Any]:
    pairs = value["$map"]
    if len(value) > 1 or not isinstance(pairs, list):
        raise ValueError("a map that is none")
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise ValueError("a map that is none")
    return {key: decode(item, depth) for key, item in pairs}


def dumps(value: Any) -> str:
    """Return plain data as JSON text. Errors are those of `encode`."""
    return json.dumps(encode(value), separators=(",", ":"))
