"""Plain data as JSON: numbers, text, lists, maps, and bytes.

JSON has no bytes: they are written as `{"$bytes": "base64"}`, and a map that has a key beginning
with `$` as `{"$map": [[key, value], ...]}`, so that nothing can be taken for what it is not.
"""

from __future__ import annotations

import base64
import json
from typing import Any

DEPTH = 200
"""Lists and maps in one another; with more, JSON itself gives up somewhere on the way."""


def encode(value: Any, depth: int = DEPTH) -> Any:
    """Return a value in a form that JSON can hold.

    Args:
        value: Plain data.
        depth: How deep it may be.

    Returns:
        The same with bytes and unusual maps written out.

    Raises:
        TypeError: It has something that is not plain data, or is too deep.
    """
    if value is None or type(value) in {str, int, float, bool}:
        return value
    if isinstance(value, (list, tuple, dict)) and not depth:
        raise TypeError(f"what is nested more than {DEPTH} deep is not plain data")
    if isinstance(value, (list, tuple)):
        return [encode(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return _encode_map(value, depth - 1)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    for base in (str, int, float):  # an enumeration, a text with a class of its own
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
    """Return what `encode` was given.

    Args:
        value: What JSON gave.
        depth: How deep it may be.

    Returns:
        Plain data.

    Raises:
        ValueError: It was not made by `encode`.
    """
    if not isinstance(value, (list, dict)):
        return value
    if not depth:
        raise ValueError(f"a value that is nested more than {DEPTH} deep")
    if isinstance(value, list):
        return [decode(item, depth - 1) for item in value]
    if "$bytes" in value:
        return _decode_bytes(value)
    if "$map" in value:
        return _decode_map(value, depth - 1)
    if any(key.startswith("$") for key in value):
        raise ValueError("a map with a key that is not written out")
    return {key: decode(item, depth - 1) for key, item in value.items()}


def _decode_bytes(value: dict[str, Any]) -> bytes:
    text = value["$bytes"]
    if len(value) > 1 or not isinstance(text, str):
        raise ValueError("bytes that are none")
    return base64.b64decode(text, validate=True)


def _decode_map(value: dict[str, Any], depth: int) -> dict[str, Any]:
    pairs = value["$map"]
    if len(value) > 1 or not isinstance(pairs, list):
        raise ValueError("a map that is none")
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise ValueError("a map that is none")
    return {key: decode(item, depth) for key, item in pairs}


def dumps(value: Any) -> str:
    """Return plain data as JSON text; errors as `encode`."""
    return json.dumps(encode(value), separators=(",", ":"))
