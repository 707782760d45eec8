r"""Characters beyond U+FFFF as JSON escapes them: `\ud83d\ude00`. YAML writes `\U0001F600`.

The text for the parser has the YAML escape in their place, in the same width, so that positions in
it are positions in the file.
"""

from __future__ import annotations

import re

PAIR = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
"""A pair without its first backslash."""
_ESCAPE = re.compile(rf"\\(?:({PAIR})|[\s\S])")
_FILL = "\U0001fffe" * 2
"""Noncharacters, which no text contains."""
_REPLACED = re.compile(rf"\\U[0-9A-F]{{8}}{_FILL}")


def for_parser(text: str) -> str:
    """Return the text of a file with the escapes of YAML."""
    if ("\\ud" not in text and "\\uD" not in text) or _FILL[0] in text:
        return text
    return _ESCAPE.sub(_in_yaml, text)


def read_value(value: str, style: str, written: str) -> str:
    """Return the value of a scalar as the file means it.

    Args:
        value: The value from the parser.
        style: The style of the scalar. Only double quotes have escapes.
        written: The scalar as the file has it.
    """
    if _FILL[0] not in value:
        return value
    if style == '"':
        return value.replace(_FILL, "")
    pairs = (match[0] for match in _ESCAPE.finditer(written) if match[1])
    return _REPLACED.sub(lambda _: next(pairs), value)


def _in_yaml(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    high, low = int(match[1][1:5], 16), int(match[1][7:], 16)
    return f"\\U{0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00:08X}{_FILL}"
