"""The names in an expression, determined from its text."""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.flow.expressions.syntax import Index, Literal, Name, Select, parse
from flowengine.flow.expressions.tokens import ExpressionSyntaxError


def names_in(source: str) -> Iterator[tuple[str, str | None]]:
    """Yield each name of an expression with the constant key after it, or None.

    The names of `map`, `filter` and similar macros are included. A text that is not an expression
    has no names.

    Args:
        source: The expression.
    """
    try:
        nodes: list[object] = [parse(source)]
    except ExpressionSyntaxError:  # reported elsewhere
        return
    while nodes:
        match nodes.pop():
            case Name(name):
                yield name, None
            case Select(Name(name), field):
                yield name, field
            case Index(Name(name), Literal(str(key))):
                yield name, key
            case [*inner]:
                nodes += inner
