"""Queries and bodies of requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlencode

from flowengine.sdk import ValidationError


def with_query(url: str, query: Mapping[str, Any]) -> str:
    """Return an address with further values in its query."""
    pairs = [*_pairs(query)]
    if not pairs:
        return url
    before, mark, fragment = url.partition("#")
    return f"{before}{'&' if '?' in before else '?'}{urlencode(pairs)}{mark}{fragment}"


def request_body(body: Any, headers: MutableMapping[str, str]) -> bytes:
    """Return a body as bytes, adding its type to the headers unless they contain one.

    Raises:
        ValidationError: JSON has no form for it.
    """
    if body is None:
        return b""
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), None)
    if isinstance(body, dict) and (kind or "").startswith("application/x-www-form-urlencoded"):
        return urlencode([*_pairs(body)]).encode()
    if isinstance(body, bytes):
        return body
    if kind is None:
        headers["Content-Type"] = (
            "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
        )
    if isinstance(body, str):
        return body.encode()
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValidationError(f"this is not a valid request: {error}") from None


def as_text(value: Any) -> str:
    """Return a value as text, with numbers and booleans in JSON notation."""
    return value if isinstance(value, str) else json.dumps(value)


def _pairs(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values. A list repeats its name, and nulls are omitted."""
    for name, value in values.items():
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                yield name, as_text(item)
