"""Queries and bodies of requests, and bodies of responses: text, JSON, decoding."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from flowengine.sdk import HttpError, Plain, ValidationError
from flowengine.sdk.texts.received import received_json, received_text
from flowengine_documents.encodings import charset_of, codec_of, declared_in, declared_text

# Bodies of responses: detection of text and JSON, decoding, and parsing.

KEY_HEADER = "Idempotency-Key"
ERROR_TEXT = 64 * 1024
"""Maximum characters of a body that are kept in the data of an error."""

_TEXT = re.compile(
    r"text/.*|application/((.*\+|x-)?(json|xml|yaml)|(x-)?(ndjson|jsonl(ines)?)|json-seq"
    r"|javascript|x-www-.*)"
)
_JSON = re.compile(r".*(/(x-)?|\+)json")


def is_text(content_type: str) -> bool:
    """Return whether a body of this type is text, JSON included."""
    return _TEXT.fullmatch(content_type.partition(";")[0].strip().lower()) is not None


def decoded(data: bytes, content_type: str) -> str:
    """Return a body as text, with undecodable bytes replaced.

    JSON is decoded as Unicode, unless that fails. Other text is in UTF-8 or the declared encoding.
    """
    if is_json(content_type):
        with suppress(UnicodeDecodeError):
            return received_text(data, json.detect_encoding(data))
    charset = charset_of(content_type)
    text = declared_text(data, charset or declared_in(data))
    return data.decode(codec_of(charset) or "utf-8", "replace") if text is None else text


def is_json(content_type: str) -> bool:
    """Return whether a body of this type is JSON."""
    return _JSON.fullmatch(content_type.partition(";")[0].strip().lower()) is not None


def as_data(text: str, status: int, place: str, mask: Callable[[str], object]) -> Plain:
    """Return the data of a body of JSON.

    Args:
        text: The body.
        status: The status of the response.
        place: Method and address, for the error.
        mask: Replaces secrets.

    Raises:
        HttpError: The body of a successful response is not JSON. The error contains it.
    """
    if not text.strip():
        return None
    try:
        return received_json(text, lenient=True)
    except ValueError as error:
        if status >= 400:  # the status is more useful than a broken error page
            return text
        raise HttpError(
            f"{place}: the body of the response cannot be read as JSON: {error}",
            data={"status": status, "body": beginning(text, mask)},
            retryable=False,
        ) from None


def beginning(text: str, mask: Callable[[str], object]) -> str:
    """Return the beginning of a body, masked before cutting so that no part of a secret remains."""
    return str(mask(text))[:ERROR_TEXT]


# Queries and bodies of requests.


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
