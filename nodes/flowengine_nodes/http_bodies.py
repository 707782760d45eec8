"""Bodies of answers: which are text, and in which encoding."""

from __future__ import annotations

import codecs
import re

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
