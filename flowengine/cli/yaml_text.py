"""Values as YAML on one line, written so that readers of YAML 1.1 and 1.2 agree on them."""

from __future__ import annotations

import re
from typing import Any

_PLAIN = re.compile(
    r"[A-Za-z0-9_/.($\u00a1-\u167f\u1681-\u1fff\u2070-\ud7ff\U00010000-\U0010ffff]"
    r"[^\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]*"
)
_CUT = re.compile(r": |:$| #| $")
"""What ends a text that stands without quotes."""
_FLOW_CUT = re.compile(r"[,\[\]{}:]")
"""What also ends it inside of `[…]` and `{…}`."""
_NO_TEXT = re.compile(
    r"(?i:null|true|false|yes|no|on|off|y|n)|[-+]?(?i:0x[0-9a-f_]+|0o[0-7_]+|0b[01_]+)"
    r"|[-+]?\.(?i:inf|nan)|[-+]?[.0-9][-+.0-9:_eETtZz ]*"
)
"""Texts that some reader takes for null, a boolean, a number or a time."""
_UNSEEN = re.compile(r"[\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def inline(value: Any, *, nested: bool = False) -> str:
    """Return a value on one line.

    Args:
        value: Plain data.
        nested: It stands inside of `[…]` or `{…}`.

    Returns:
        YAML that reads back as the value.
    """
    if isinstance(value, str):
        return _text(value, nested)
    if isinstance(value, list):
        return f"[{', '.join([inline(item, nested=True) for item in value])}]"
    if isinstance(value, dict):
        items = [f"{_text(k, True)}: {inline(v, nested=True)}" for k, v in value.items()]
        return f"{{{', '.join(items)}}}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        from base64 import b64encode

        return f'!!binary "{b64encode(value).decode()}"'
    if isinstance(value, float):
        return _float(value)
    return str(value)


def entry(key: str, value: Any) -> str:
    """Return one line of a mapping."""
    return f"{_text(key, True)}: {inline(value)}"


def _text(text: str, nested: bool) -> str:
    plain = (
        _PLAIN.fullmatch(text)
        and not _CUT.search(text)
        and not _NO_TEXT.fullmatch(text)
        and not (nested and _FLOW_CUT.search(text))
    )
    return text if plain else _quoted(text)


def _quoted(text: str) -> str:
    """Return text in double quotes; what JSON escapes, YAML reads the same way."""
    import json

    escaped = json.dumps(text, ensure_ascii=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", escaped)


def _float(value: float) -> str:
    """Return a number with a point, without which old readers take `1e+16` for text."""
    digits, e, exponent = repr(value).partition("e")
    return digits + ("" if "." in digits else ".0") + e + exponent
