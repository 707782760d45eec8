"""Values of literals: numbers, texts, bytes."""

from __future__ import annotations

import re

from flowengine.flow.expressions.syntax_tree import Literal
from flowengine.flow.expressions.tokens import ExpressionSyntaxError, SyntaxToken

_ESCAPE = re.compile(
    r"""\\(?:([abfnrtv\\"'`?])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))"""
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def number_of(token: SyntaxToken) -> Literal:
    """Return the literal of a number."""
    if token.kind == "float":
        return Literal(float(token.text), token.text, token.start, token.end)
    digits = token.text.rstrip("uU")
    value = int(digits[:100], 16 if "x" in digits else 10)
    if not (0 <= value < 2**64 if digits != token.text else -(2**63) <= value < 2**63):
        raise ExpressionSyntaxError("the integer is beyond 64 bits", token.start, len(token.text))
    return Literal(value, token.text, token.start, token.end)


def string_of(token: SyntaxToken) -> Literal:
    """Return the literal of a text or of bytes."""
    prefix = re.match("[bBrR]*", token.text)
    marks = prefix.group().lower() if prefix else ""
    body = token.text[len(marks) :]
    body = body[3:-3] if body[:3] in {'"""', "'''"} else body[1:-1]
    value = body if "r" in marks else _unescape(body, token)
    if "b" in marks:
        escaped = "\\" in body and "r" not in marks
        data = _octets(body) if escaped else value.encode("utf-8", "surrogatepass")
        return Literal(data, token.text, token.start, token.end)
    return Literal(value, token.text, token.start, token.end)


def _unescape(body: str, token: SyntaxToken) -> str:
    """Return the value of a string literal."""
    parts = []
    at = 0
    while (slash := body.find("\\", at)) >= 0:
        parts.append(body[at:slash])
        match = _ESCAPE.match(body, slash)
        code = int(match[2] or match[3] or match[4] or "0", 16) if match else -1
        if match is None or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise ExpressionSyntaxError(
                f"'{body[slash : slash + 2]}' is not an escape sequence",
                token.start,
                len(token.text),
                "write '\\\\' for a backslash, or r'…' for a text without escapes",
            )
        if match[1]:
            parts.append(_SIMPLE.get(match[1], match[1]))
        else:
            parts.append(chr(int(match[5], 8)) if match[5] else chr(code))
        at = match.end()
    return "".join([*parts, body[at:]])


def _octets(body: str) -> bytes:
    """Return the value of a bytes literal: hex and octal escapes are bytes, the rest is UTF-8."""
    data = b""
    at = 0
    for match in _ESCAPE.finditer(body):
        data += body[at : match.start()].encode()
        if match[2] or match[5]:
            data += bytes([int(match[2], 16) if match[2] else int(match[5], 8)])
        elif match[1]:
            data += _SIMPLE.get(match[1], match[1]).encode()
        else:
            data += chr(int(match[3] or match[4], 16)).encode()
        at = match.end()
    return data + body[at:].encode()
