"""Bodies of answers: which are text, in which encoding, and what JSON says."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable

from flowengine.sdk import HttpError, Plain

KEY_HEADER = "Idempotency-Key"
_ERROR_TEXT = 64 * 1024
"""Characters of a body that stay in the data of an error."""

_CHARSETS = ("utf", "iso8859", "cp", "windows", "ascii", "latin", "koi8", "big5", "gb", "euc",
             "shift_jis", "mac", "tis")  # fmt: skip
"""How names of encodings of text begin. Python has others, which are none or take for ever."""
_TEXT = re.compile(r"text/.*|application/(.*\+)?(json|xml|yaml)|application/(javascript|x-www-.*)")


def is_text(content_type: str) -> bool:
    """Return whether a body of this type is text, JSON included."""
    return _TEXT.fullmatch(content_type.partition(";")[0].strip().lower()) is not None


def encoding(charset: str | None) -> str:
    """Return an encoding by the name that a server gives it; UTF-8 if it is none."""
    try:
        name = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if name.startswith(_CHARSETS) else "utf-8"


def decoded(data: bytes, content_type: str) -> str:
    """Return a body as text; what cannot be decoded is replaced."""
    from email.message import Message

    message = Message()
    message["Content-Type"] = content_type.replace("\r", "").replace("\n", "")
    return data.decode(encoding(message.get_content_charset()), errors="replace")


def as_data(
    text: str, content_type: str, status: int, place: str, mask: Callable[[str], object]
) -> Plain:
    """Return the text of a body as data: JSON as what it says, anything else as it is.

    Args:
        text: The body.
        content_type: As the server gives it.
        status: Of the answer.
        place: Method and address, for the error.
        mask: Replaces secrets.

    Raises:
        HttpError: It claims to be JSON and is not, and nothing went wrong otherwise.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if not kind.endswith("json") or not text.strip():
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if status >= 400:  # the status says more than a broken error page
            return text
        raise HttpError(
            f"{place}: the answer claims to be JSON but is not: {error}",
            data={"status": status, "body": beginning(text, mask)},
            retryable=False,
        ) from None


def beginning(text: str, mask: Callable[[str], object]) -> str:
    """Return the beginning of a body, masked before it is cut: no half of a secret is left."""
    return str(mask(text))[:_ERROR_TEXT]
