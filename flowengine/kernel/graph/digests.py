"""Digests of plain data: the same for the same values, in every process."""

from __future__ import annotations

from typing import Any

from flowengine.kernel.graph.compiled import Plain, SecretText


def digest(value: Plain) -> str:
    """Return the SHA-256 of a value in its canonical form, in hexadecimal digits.

    Values that differ have different forms: `1` and `1.0`, bytes and any text, the reference to a
    secret and any map. The order of the keys of a map does not matter.
    """
    import hashlib
    import json

    text = json.dumps(_canonical(value), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {"map": [[key, _canonical(value[key])] for key in sorted(value)]}
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return {"secret": value.parts} if isinstance(value, SecretText) else value
