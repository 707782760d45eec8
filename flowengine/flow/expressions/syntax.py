"""The syntax of CEL: parsing of an expression into a tree with positions."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import count as count_from
from typing import Any, NamedTuple

from flowengine.flow.expressions.tokens import ExpressionSyntaxError, SyntaxToken, tokens


class Literal(NamedTuple):
    """A constant. `text` is its notation."""

    value: Any
    text: str
    start: int
    end: int


class Name(NamedTuple):
    """An identifier that is not a keyword. `dotted` are those with a leading dot: `.inputs`."""

    name: str
    start: int
    end: int
    dotted: bool = False


class Select(NamedTuple):
    """`base.field`."""

    base: Node
    field: str
    start: int
    end: int


class Index(NamedTuple):
    """`base[index]`."""

    base: Node
    key: Node
    start: int
    end: int


class CallNode(NamedTuple):
    """`name(args)` or `target.name(args)`. `at` is the position of the name."""

    target: Node | None
    name: str
    args: list[Node]
    start: int
    end: int
    at: int


class Items(NamedTuple):
    """A list literal."""

    items: list[Node]
    start: int
    end: int


class Entries(NamedTuple):
    """A map literal."""

    entries: list[tuple[Node, Node]]
    start: int
    end: int


class Unary(NamedTuple):
    """`!x`, `-x`."""

    op: str
    operand: Node
    start: int
    end: int


class Binary(NamedTuple):
    """`left op right`. `at` is the position of the operator."""

    op: str
    left: Node
    right: Node
    start: int
    end: int
    at: int


class Ternary(NamedTuple):
    """`condition ? yes : no`. `at` is the position of the `?`."""

    condition: Node
    yes: Node
    no: Node
    start: int
    end: int
    at: int


Node = Literal | Name | Select | Index | CallNode | Items | Entries | Unary | Binary | Ternary


# Values of literals: numbers, texts, bytes.

_ESCAPE = re.compile(
    r"""\\(?:([abfnrtv\\"'`?])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))"""
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def number_of(token: SyntaxToken) -> Literal:
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
    body = body[3:-3] if body[:3] in {'"' * 3, "'" * 3} else body[1:-1]
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


MAX_LENGTH = 100_000
MAX_DEPTH = 32
"""Maximum nesting of brackets."""
MAX_CHAIN = 200
"""Maximum number of operators, or fields, in a row."""

RESERVED = frozenset([
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
    "namespace", "package", "return", "var", "void", "while",
])  # fmt: skip
_RELATIONS = frozenset(["<", "<=", ">=", ">", "==", "!=", "in"])
_INSTEAD = {
    "and": "write '&&'",
    "or": "write '||'",
    "not": "write '!'",
    "is": "write '=='",
    "if": "write 'condition ? one : other'",
    "for": "write 'l.map(x, …)'",
}
"""Words of other languages → their form in CEL."""


def parse(source: str) -> Node:
    """Read an expression.

    Args:
        source: Its text.

    Returns:
        The tree.

    Raises:
        ExpressionSyntaxError: The text is not an expression.
    """
    if len(source) > MAX_LENGTH:
        raise ExpressionSyntaxError(
            f"the expression is longer than {MAX_LENGTH} characters",
            0,
            1,
            "put it into a tool",
        )
    return _parsed(source)


@lru_cache(maxsize=2048)
def _parsed(source: str) -> Node:
    """Parse and cache an expression: recompiled flows, and those of agents, share most of them."""
    return _Parser(source).whole()


class _Parser:
    """Recursive descent, with one method for each level of precedence."""

    def __init__(self, source: str) -> None:
        self.tokens = tokens(source)
        self.next = 0
        self.depth = 0

    def whole(self) -> Node:
        node = self.expression()
        token = self.peek()
        if token.kind != "end":
            raise self.unexpected(f"'{token.text}' was not expected here")
        return node

    def peek(self) -> SyntaxToken:
        return self.tokens[self.next]

    def take(self, *texts: str) -> SyntaxToken | None:
        """Take the next token if it is one of these operators."""
        token = self.tokens[self.next]
        if token.text in texts and token.kind in {"op", "word"}:
            self.next += 1
            return token
        return None

    def expect(self, text: str, after: str) -> SyntaxToken:
        token = self.take(text)
        if token is None:
            raise self.unexpected(f"'{text}' is missing {after}")
        return token

    def comma(self, close: str) -> None:
        if self.take(",") is None:
            raise self.unexpected(f"',' or '{close}' is missing")

    def unexpected(self, message: str) -> ExpressionSyntaxError:
        token = self.peek()
        hint = _INSTEAD.get(token.text)
        return ExpressionSyntaxError(message, token.start, len(token.text), hint)

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionSyntaxError(
                f"the expression is nested more than {MAX_DEPTH} levels deep",
                self.peek().start,
                hint="compute parts of it in separate steps",
            )
        node = self.either()
        mark = self.take("?")
        if mark:
            yes = self.either()
            self.expect(":", "after the first value of '?'")
            no = self.expression()
            node = Ternary(node, yes, no, node.start, no.end, mark.start)
        self.depth -= 1
        return node

    def left_to_right(self, operand: Callable[[], Node], *operators: str) -> Node:
        node = operand()
        for count in count_from(1):
            token = self.take(*operators)
            if token is None:
                break
            if count > MAX_CHAIN:
                raise ExpressionSyntaxError(
                    f"more than {MAX_CHAIN} '{token.text}' in a row", token.start, len(token.text)
                )
            right = operand()
            node = Binary(token.text, node, right, node.start, right.end, token.start)
        return node

    def either(self) -> Node:
        return self.left_to_right(self.both, "||")

    def both(self) -> Node:
        return self.left_to_right(self.relation, "&&")

    def relation(self) -> Node:
        return self.left_to_right(self.sum, *_RELATIONS)

    def sum(self) -> Node:
        return self.left_to_right(self.product, "+", "-")

    def product(self) -> Node:
        return self.left_to_right(self.unary, "*", "/", "%")

    def unary(self) -> Node:
        token = self.take("!", "-")
        if token is None:
            return self.member()
        number = self.peek()
        if token.text == "-" and number.kind in {"int", "float"} and number.start == token.end:
            self.next += 1
            node = number_of(SyntaxToken(number.kind, "-" + number.text, token.start, number.end))
            return self.rest_of_member(node)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionSyntaxError("too many signs in a row", token.start)
        operand = self.unary()
        self.depth -= 1
        return Unary(token.text, operand, token.start, operand.end)

    def member(self) -> Node:
        return self.rest_of_member(self.primary())

    def rest_of_member(self, node: Node) -> Node:
        for count in count_from(1):
            token = self.take(".", "[")
            if token is None:
                break
            if count > MAX_CHAIN:
                raise ExpressionSyntaxError("the path is too long", token.start)
            if token.text == "[":
                key = self.expression()
                node = Index(node, key, node.start, self.expect("]", "after the index").end)
                continue
            field = self.peek()
            if field.kind == "quoted":
                self.next += 1
                node = Select(node, field.text[1:-1], node.start, field.end)
                continue
            if field.kind != "word" or field.text in {"in", "true", "false", "null"}:
                error = self.unexpected("a name is missing after '.'")
                if field.kind == "word":
                    error.hint = f'write ["{field.text}"]'
                raise error
            self.next += 1
            if self.take("("):
                args, end = self.arguments(")")
                node = CallNode(node, field.text, args, node.start, end, field.start)
            else:
                node = Select(node, field.text, node.start, field.end)
        return node

    def primary(self) -> Node:
        token = self.peek()
        self.next += 1
        if token.kind == "string":
            return string_of(token)
        if token.kind in {"int", "float"}:
            return number_of(token)
        if token.text == "." and self.peek().kind == "word":
            node = self.primary()
            return node._replace(dotted=True) if isinstance(node, Name) else node
        if token.text == "(":
            node = self.expression()
            self.expect(")", "to close the '('")
            return node
        if token.text == "[":
            items, end = self.arguments("]")
            return Items(items, token.start, end)
        if token.text == "{":
            return self.map_literal(token)
        if token.kind == "word":
            return self.word(token)
        self.next -= 1
        if token.kind == "end":
            raise self.unexpected("the expression ends too early")
        raise self.unexpected(f"'{token.text}' was not expected here")

    def word(self, token: SyntaxToken) -> Node:
        constants = {"true": True, "false": False, "null": None}
        if token.text in constants:
            return Literal(constants[token.text], token.text, token.start, token.end)
        if token.text in RESERVED or token.text == "in":
            self.next -= 1
            raise self.unexpected(f"'{token.text}' is a reserved word")
        if token.text == "not" and self.peek().kind == "word":
            self.next -= 1
            raise self.unexpected("'not' was not expected here")
        if self.take("("):
            args, end = self.arguments(")")
            return CallNode(None, token.text, args, token.start, end, token.start)
        return Name(token.text, token.start, token.end)

    def arguments(self, close: str) -> tuple[list[Node], int]:
        """Parse expressions up to the closing bracket. A list may end with a comma."""
        nodes: list[Node] = []
        while True:
            end = self.take(close) if not nodes or close == "]" else None
            if end:
                return nodes, end.end
            nodes.append(self.expression())
            end = self.take(close)
            if end:
                return nodes, end.end
            self.comma(close)

    def map_literal(self, opening: SyntaxToken) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not (end := self.take("}")):
            if entries:
                self.comma("}")
                if end := self.take("}"):
                    break
            key = self.expression()
            self.expect(":", "after the key")
            entries.append((key, self.expression()))
        return Entries(entries, opening.start, end.end)
