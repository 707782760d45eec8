"""Values as YAML on one line, written so that readers of YAML 1.1 and 1.2 agree on them."""

from __future__ import annotations

from typing import Any

_NO_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan"})
"""Words that some YAML readers take for null, a boolean or a number."""
_FLOW = frozenset(",[]{}:?")
"""Characters that end a plain scalar inside `[…]` and `{…}`."""
_OF_NUMBERS = frozenset("0123456789.+-:_eETtZz ")
"""Characters of numbers and times."""


def inline(value: Any, *, nested: bool = False) -> str:
    """Return a value on one line.

    Args:
        value: Plain data.
        nested: The value is inside `[…]` or `{…}`.

    Returns:
        YAML that reads back as the value.
    """
    if isinstance(value, str):
        return value if _is_plain(value) and not (nested and _FLOW & set(value)) else _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join([inline(item, nested=True) for item in value])}]"
    if isinstance(value, dict):
        # Keys are text, except in damaged data.
        items = [f"{inline(k, nested=True)}: {inline(v, nested=True)}" for k, v in value.items()]
        return f"{{{', '.join(items)}}}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        from base64 import b64encode

        return f'!!binary "{b64encode(value).decode()}"'
    if isinstance(value, float):
        # Without a point, readers of YAML 1.1 take `1e+16` for text.
        digits, e, exponent = repr(value).partition("e")
        return digits + ("" if "." in digits else ".0") + e + exponent
    return str(value)


def entry(key: str, value: Any) -> str:
    """Return one line of a mapping."""
    return f"{inline(key, nested=True)}: {inline(value)}"


def _is_plain(text: str) -> bool:
    """Return whether a text needs no quotes.

    Without regular expressions: compiling them would take longer than running a small flow.
    """
    first = text[:1]
    if not text.isprintable() or not (first.isalnum() or first in {"_", "/", ".", "(", "$"}):
        return False
    if ": " in text or " #" in text or text[-1] in ": ":
        return False
    return text.lower() not in _NO_TEXT and not (
        first in "0123456789."
        and (_OF_NUMBERS.issuperset(text) or text[:2].lower() in {"0x", "0o", "0b"})
    )


def _quoted(text: str) -> str:
    """Return text in double quotes. YAML reads the escapes of JSON in the same way."""
    import json

    escaped = json.dumps(text, ensure_ascii=False)
    if escaped.isprintable():
        return escaped
    return "".join([c if c.isprintable() else _escape(ord(c)) for c in escaped])


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
